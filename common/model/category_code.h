// CategoryCode: how Keras' category layers encode the indices that they compute: as they are (INT), as one-hot rows
// (ONE_HOT), or as one row for all indices of an example, which says whether each index occurs (MULTI_HOT), how often
// (COUNT), or how often times a weight (TF_IDF). kNoCategory is skipped.
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

inline constexpr int64_t kNoCategory = -1;  // an index that is not counted: that of a masked token

struct CategoryCode {
  v1::EncodingMode mode = v1::INT;
  int64_t depth = 0;           // indices are below it; the length of a row
  std::vector<float> weights;  // TF_IDF: one weight per index

  // The shape of the encoding of indices whose shape is `indices`. Errors: the mode does not accept that shape.
  absl::StatusOr<Shape> Of(const Shape& indices) const;

  // Writes one example's encoding to y, whose size is given by Of().
  template <typename T>
  void Write(absl::Span<const int64_t> indices, T* y) const;
};

// Returns `fallback` for UNSPECIFIED. Errors: the mode is not one of `allowed`.
absl::StatusOr<v1::EncodingMode> EncodingModeOf(v1::EncodingMode given, v1::EncodingMode fallback,
                                                absl::Span<const v1::EncodingMode> allowed);

}  // namespace cairn
