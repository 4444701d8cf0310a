// Shapes of tensors that are read along the axes of others, for the tests of kernels.
#pragma once

#include <algorithm>
#include <vector>

#include "worker/backend/cudnn/kernels/tensors.h"

namespace cairn::cudnn::kernels {

inline Dims DimsOf(const std::vector<int64_t>& sizes) {
  Dims dims;
  std::copy(sizes.begin(), sizes.end(), dims.of + kAxesMax - sizes.size());
  return dims;
}

// Of a dense tensor of these sizes, each that of `dims` or 1.
inline Strides Along(const Dims& dims, const std::vector<int64_t>& sizes) {
  Strides strides;
  int64_t stride = 1;
  for (size_t i = sizes.size(), d = kAxesMax; i-- > 0;) {
    --d;
    if (sizes[i] == dims.of[d]) strides.of[d] = sizes[i] == 1 ? 0 : stride;
    stride *= sizes[i];
  }
  return strides;
}

inline int64_t Count(const std::vector<int64_t>& sizes) {
  int64_t n = 1;
  for (const int64_t size : sizes) n *= size;
  return n;
}

// The place of number i of a dense tensor of `dims` in one with these strides.
inline int64_t PlaceAlong(const Dims& dims, const Strides& strides, int64_t i) {
  int64_t place = strides.begin;
  for (int d = kAxesMax; d-- > 0; i /= dims.of[d]) place += i % dims.of[d] * strides.of[d];
  return place;
}

}  // namespace cairn::cudnn::kernels
