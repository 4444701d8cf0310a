// Parts of tensors.
#include "worker/backend/cudnn/kernels/strides.h"

namespace cairn::cudnn::kernels {
namespace {

struct Filling {
  float value;
  Out y;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    Numbers<V> n;
    CAIRN_UNROLL
    for (int k = 0; k < V; ++k) n.at[k] = value;
    Store<V>(y, i, n);
  }
};

struct PartCopy {
  AxisPlaces axes;
  Strides from_strides, to_strides;
  bool add;
  In from;
  Out to;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    int64_t at[kAxesMax];
    axes.Split(i, at);
    StoreOrAdd<V>(to, PlaceOf(to_strides, at), Load<V>(from, PlaceOf(from_strides, at)), add);
  }
};

// Groups of eight side by side in both tensors.
bool WidePart(const Dims& dims, const Strides& s) {
  constexpr int kLast = kAxesMax - 1;
  bool wide = Wide(dims.of[kLast]) && s.of[kLast] == 1 && Wide(s.begin);
  for (int d = 0; d < kLast; ++d) wide = wide && (dims.of[d] == 1 || Wide(s.of[d]));
  return wide;
}

}  // namespace

Error Fill(Stream stream, int64_t n, float value, void* y, DType type) {
  return LaunchForEach(stream, n, true, Filling{value, {y, type}});
}

Error CopyPart(Stream stream, const Dims& dims, const Strides& from_strides, const void* from,
               const Strides& to_strides, void* to, DType type, bool add) {
  return LaunchForEach(stream, dims.Count(), WidePart(dims, from_strides) && WidePart(dims, to_strides),
                       PartCopy{AxisPlaces(dims), from_strides, to_strides, add, {from, type}, {to, type}});
}

}  // namespace cairn::cudnn::kernels
