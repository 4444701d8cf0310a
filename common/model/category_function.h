// CategoryFunction: the computation of Keras' category layers: Discretization, CategoryEncoding, Hashing,
// HashedCrossing and IntegerLookup. Used by the CPU backends. These layers have no gradient with respect to their
// inputs.
//
// Immutable after construction; any thread. Tensors are dense, [examples, shape...].
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/model/category_code.h"
#include "common/model/graph.h"

namespace cairn {

// Maps the numbers at one position of a layer's inputs to an index.
class CategoryIndex {
 public:
  virtual ~CategoryIndex() = default;
  // x: one number of each input. nullopt: the layer does not accept these numbers; Refusal says why.
  virtual std::optional<int64_t> Of(absl::Span<const double> x) const = 0;
  virtual std::string Refusal(absl::Span<const double> x) const = 0;  // "5 is not in the vocabulary, ..."
};

class CategoryFunction {
 public:
  // node: a layer of one of the kinds above, with its defaults filled in.
  CategoryFunction(const Graph& graph, const Node& node);

  // x: one array per input. y is overwritten. T: float or double. Errors: INVALID_ARGUMENT names the layer, the number
  // and the example.
  template <typename T>
  absl::Status Forward(int64_t examples, absl::Span<const T* const> x, T* y) const;
  // The error of numbers that the layer does not accept, one of each input, in this example of a batch.
  absl::Status Refusal(int64_t example, absl::Span<const double> numbers) const;

 private:
  const Node& node_;
  std::unique_ptr<const CategoryIndex> index_;
  CategoryCode code_;
  int64_t numbers_ = 0;  // in one example of an input
};

// The encoding of a category layer whose fields have been checked.
CategoryCode CategoryCodeOf(const v1::Layer& layer);

}  // namespace cairn
