// Shared by onnx_fold.cc and onnx_fold_shapes.cc: strided access to tensors, and one operator's inputs.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/base/bad.h"
#include "common/base/lacks.h"
#include "common/base/status.h"
#include "common/model/limits.h"
#include "common/model/onnx/onnx_attributes.h"
#include "common/model/onnx/onnx_tensor.h"

namespace cairn {

inline int64_t CountOf(const OnnxTensor& x) { return static_cast<int64_t>(x.whole ? x.ints.size() : x.floats.size()); }

// Errors: the tensor would be too large.
inline absl::StatusOr<int64_t> CountIn(const Shape& dims) {
  if (dims.size() > kOnnxAxesMax) return Lacks("a constant of ", dims.size(), " dimensions");
  int64_t count = 1;
  for (const int64_t dim : dims) {
    if (dim < 0) return Bad("a dimension of ", dim);
    if (__builtin_mul_overflow(count, dim, &count) || count > kOnnxFoldedNumbersMax)
      return Lacks("a computed constant of more than ", kOnnxFoldedNumbersMax, " numbers");
  }
  return count;
}

inline std::vector<int64_t> StridesOf(const Shape& dims) {
  std::vector<int64_t> strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

// Iterates over the positions from which a tensor of shape `dims` takes its numbers. A stride of 0 repeats.
class StridedWalk {
 public:
  StridedWalk(Shape dims, std::vector<int64_t> strides, int64_t first)
      : dims_(std::move(dims)), strides_(std::move(strides)), at_(dims_.size(), 0), place_(first) {}
  int64_t place() const { return place_; }
  void Next() {
    for (size_t i = dims_.size(); i-- > 0;) {
      place_ += strides_[i];
      if (++at_[i] < dims_[i]) return;
      place_ -= strides_[i] * dims_[i];
      at_[i] = 0;
    }
  }

 private:
  const Shape dims_;
  const std::vector<int64_t> strides_;
  Shape at_;
  int64_t place_;
};

// Copies x by these strides into a tensor of shape `dims`.
inline absl::StatusOr<OnnxTensor> Strided(const OnnxTensor& x, const Shape& dims, std::vector<int64_t> strides,
                                          int64_t first = 0) {
  CAIRN_ASSIGN_OR_RETURN(const int64_t count, CountIn(dims));
  OnnxTensor result;
  result.dims = dims;
  result.whole = x.whole;
  result.of_batch = x.of_batch;
  StridedWalk walk(dims, std::move(strides), first);
  for (int64_t i = 0; i < count; ++i, walk.Next()) {
    const size_t place = static_cast<size_t>(walk.place());
    if (x.whole) result.ints.push_back(x.ints[place]);
    if (!x.whole) result.floats.push_back(x.floats[place]);
  }
  return result;
}

// One operator, its inputs and attributes.
class OnnxFoldNode {
 public:
  OnnxFoldNode(const onnx::NodeProto& node, int64_t opset, absl::Span<const OnnxTensor* const> inputs)
      : node(node), opset(opset), attributes(node), inputs_(inputs) {}

  bool Has(size_t input) const { return input < inputs_.size() && inputs_[input] != nullptr; }
  size_t count() const { return inputs_.size(); }
  absl::StatusOr<const OnnxTensor*> Input(size_t input) const {
    if (!Has(input)) return Bad("its input ", input, " is missing");
    return inputs_[input];
  }
  // Returns integers. Errors: the batch size is among them.
  absl::StatusOr<std::vector<int64_t>> Ints(size_t input) const {
    CAIRN_ASSIGN_OR_RETURN(const OnnxTensor* const x, Input(input));
    if (!x->whole) return Bad("its input ", input, " are not whole numbers");
    for (const int64_t n : x->ints) {
      if (x->of_batch && IsOfBatch(n)) return Lacks("it computes with the batch's size");
    }
    return x->ints;
  }
  // Reads input `input`, or the attribute that older opsets use instead.
  absl::StatusOr<std::vector<int64_t>> Ints(size_t input, const char* attribute) {
    std::vector<int64_t> given = attributes.Ints(attribute);
    if (Has(input)) return Ints(input);
    return given;
  }
  // Normalizes an axis of `rank` axes to count from 0.
  static absl::StatusOr<size_t> Axis(int64_t axis, size_t rank) {
    const int64_t count = static_cast<int64_t>(rank);
    if (axis < -count || axis >= count) return Bad("axis ", axis, " of a value of ", rank, " dimensions");
    return static_cast<size_t>(axis < 0 ? axis + count : axis);
  }

  const onnx::NodeProto& node;
  const int64_t opset;
  OnnxAttributes attributes;

 private:
  const absl::Span<const OnnxTensor* const> inputs_;
};

// In onnx_fold_shapes.cc: operators that rearrange. NOT_FOUND: the operator is not one of them.
absl::StatusOr<OnnxTensor> FoldArranging(OnnxFoldNode& op);

}  // namespace cairn
