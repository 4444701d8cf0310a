// Places of numbers that are read along the axes of another tensor.
#pragma once

#include "worker/backend/cudnn/kernels/places.h"
#include "worker/backend/cudnn/kernels/tensors.h"

namespace cairn::cudnn::kernels {

// Where number i of a dense tensor is along its axes.
struct AxisPlaces {
  Divider dims[kAxesMax];  // the first is not used
  AxisPlaces() = default;
  explicit AxisPlaces(const Dims& from) {
    const int64_t n = from.Count();
    for (int d = 0; d < kAxesMax; ++d) dims[d] = Divider(from.of[d], n);
  }
  CAIRN_DEVICE void Split(int64_t i, int64_t at[kAxesMax]) const {
    at[0] = i;
    CAIRN_UNROLL
    for (int d = kAxesMax - 1; d > 0; --d) at[d] = dims[d].Split(at[0], &at[0]);
  }
};

CAIRN_DEVICE int64_t PlaceOf(const Strides& s, const int64_t at[kAxesMax]) {
  int64_t place = s.begin;
  CAIRN_UNROLL
  for (int d = 0; d < kAxesMax; ++d) place += at[d] * s.of[d];
  return place;
}

// Whether it is read number by number in its own order.
inline bool Dense(const Dims& dims, const Strides& s) {
  int64_t stride = 1;
  for (int d = kAxesMax; d-- > 0; stride *= dims.of[d]) {
    if (dims.of[d] != 1 && s.of[d] != stride) return false;
  }
  return s.begin == 0;
}
// Whether eight numbers along the last axis lie side by side, or are one and the same.
inline bool Wide(const Dims& dims, const Strides& s) {
  constexpr int kLast = kAxesMax - 1;
  if (Dense(dims, s)) return true;
  if (!Wide(dims.of[kLast])) return false;
  if (s.of[kLast] == 0) return true;
  bool wide = s.of[kLast] == 1 && Wide(s.begin);
  for (int d = 0; d < kLast; ++d) wide = wide && (dims.of[d] == 1 || Wide(s.of[d]));
  return wide;
}

// The numbers of a tensor that is read along axes.
struct AlongAxes {
  In x;
  Strides strides;
  bool dense = false;
  AlongAxes() = default;
  AlongAxes(const Dims& dims, const Strides& s, const void* data, DType type)
      : x{data, type}, strides(s), dense(Dense(dims, s)) {}
  // Those of the places i .. i + V - 1 of the other tensor; `at`: the first place, not needed if dense.
  template <int V>
  CAIRN_DEVICE Numbers<V> Of(int64_t i, const int64_t at[kAxesMax]) const {
    if (dense) return Load<V>(x, i);
    const int64_t place = PlaceOf(strides, at);
    if (V > 1 && strides.of[kAxesMax - 1] == 0) {
      const float all = At(x, place);
      Numbers<V> n;
      CAIRN_UNROLL
      for (int k = 0; k < V; ++k) n.at[k] = all;
      return n;
    }
    return Load<V>(x, place);
  }
};

}  // namespace cairn::cudnn::kernels
