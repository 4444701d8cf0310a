// CategoryFunction: what Keras' layers of categories compute of numbers: Discretization, CategoryEncoding, Hashing,
// HashedCrossing and IntegerLookup. Of the backends on the CPU. They have no gradient with regard to their inputs.
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

// The index that a layer gives to the numbers at one place of its inputs.
class CategoryIndex {
 public:
  virtual ~CategoryIndex() = default;
  // x: one number of each input. nullopt: the layer takes none such; Refusal says why.
  virtual std::optional<int64_t> Of(absl::Span<const double> x) const = 0;
  virtual std::string Refusal(absl::Span<const double> x) const = 0;  // "5 is no token of the vocabulary; ..."
};

class CategoryFunction {
 public:
  // node: of one of the kinds above, with its defaults filled in.
  CategoryFunction(const Graph& graph, const Node& node);

  // x: of each input; y is overwritten. T: float or double. Errors: INVALID_ARGUMENT names the layer, the number and
  // the example.
  template <typename T>
  absl::Status Forward(int64_t examples, absl::Span<const T* const> x, T* y) const;

 private:
  const Node& node_;
  std::unique_ptr<const CategoryIndex> index_;
  CategoryCode code_;
  int64_t numbers_ = 0;  // of an example of an input
};

// The code of a layer of categories whose fields are checked.
CategoryCode CategoryCodeOf(const v1::Layer& layer);

}  // namespace cairn
