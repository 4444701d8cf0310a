// CategoryCode: how Keras' layers of categories write the indices that they find: as they are (INT), as rows of zeros
// with a one (ONE_HOT), or as one row for all of an example's indices: which are there (MULTI_HOT), how often (COUNT),
// how often times a weight (TF_IDF). kNoCategory is left out.
//
// Immutable after construction; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "cairn/v1/category_layers.pb.h"
#include "common/base/status.h"
#include "common/tensor/buffer.h"

namespace cairn {

inline constexpr int64_t kNoCategory = -1;  // an index that counts nowhere: of a masked token

struct CategoryCode {
  v1::EncodingMode mode = v1::INT;
  int64_t depth = 0;           // indices are below it; the size of a row
  std::vector<float> weights;  // TF_IDF: of each index

  // The shape of the code of indices of the shape `indices`. Errors: the mode does not take it.
  absl::StatusOr<Shape> Of(const Shape& indices) const;

  // One example's code, into y, which has as many numbers as Of() says.
  template <typename T>
  void Write(absl::Span<const int64_t> indices, T* y) const;
};

// `fallback` for UNSPECIFIED. Errors: not one of `allowed`.
absl::StatusOr<v1::EncodingMode> EncodingModeOf(v1::EncodingMode given, v1::EncodingMode fallback,
                                                absl::Span<const v1::EncodingMode> allowed);

}  // namespace cairn
