// TextFunction: the computation of a layer that takes texts: StringLookup, TextVectorization, Hashing, HashedCrossing.
// The data pipeline calls it for each example; no backend computes these layers.
//
// Immutable after construction; any thread.
#pragma once

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cairn/v1/model.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"
#include "common/model/vocabulary.h"

namespace cairn {

// One value that such a layer takes: a text, or a number that a HashedCrossing crosses with texts.
struct TextOrNumber {
  bool is_text = true;
  absl::string_view text;
  double number = 0;
};

// Turns the values of one example into indices.
class TextIndices {
 public:
  virtual ~TextIndices() = default;
  // Appends to `indices`. Errors: INVALID_ARGUMENT says which value the layer does not take.
  virtual absl::Status Of(absl::Span<const TextOrNumber> values, std::vector<int64_t>* indices) const = 0;
};

class TextFunction {
 public:
  // node: a checked layer of one of the kinds above, with Node::texts.
  explicit TextFunction(const Node& node);

  // values: those of all inputs of one example, in their order. y: the layer's output, overwritten. Errors:
  // INVALID_ARGUMENT names the layer and the value.
  absl::Status Write(absl::Span<const TextOrNumber> values, float* y) const;

 private:
  const std::string name_;
  std::unique_ptr<const TextIndices> indices_;
  CategoryCode code_;
  int64_t length_ = -1;  // of a sequence: it is cut, or filled up with 0; -1: as many as there are
};

// Of a StringLookup or a TextVectorization that has been checked.
Vocabulary<std::string> TextVocabularyOf(const v1::Layer& layer);

}  // namespace cairn
