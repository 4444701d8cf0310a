// Tensors whose numbers are those of another one at other places.
#include "worker/backend/cudnn/kernels/moves.h"
#include "worker/backend/cudnn/kernels/strides.h"

namespace cairn::cudnn::kernels {
namespace {

Strides DenseStrides(const Dims& dims) {
  Strides strides;
  int64_t stride = 1;
  for (int d = kAxesMax; d-- > 0; stride *= dims.of[d]) strides.of[d] = stride;
  return strides;
}

struct Moving {
  Moves m;
  AxisPlaces axes;  // of the output
  Strides from;
  float constant;
  In x;
  Out y;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    int64_t at[kAxesMax], place = 0;
    bool moved = true;
    axes.Split(i, at);
    CAIRN_UNROLL
    for (int d = 0; d < kAxesMax; ++d) {
      const int64_t along = m.begin[d] < 0 ? at[d] : m.places[m.begin[d] + at[d]];
      moved = moved && along >= 0;
      place += along * from.of[d];
    }
    Set(y, i, moved ? At(x, place) : constant);
  }
};

// One number of dx: the sum over all combinations of the places that read it along each axis.
struct MovingBackward {
  Readers r;
  AxisPlaces axes;  // of the input
  Strides to;
  bool add;
  In dy;
  Out dx;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    int64_t at[kAxesMax], combinations = 1, fixed = 0;
    axes.Split(i, at);
    CAIRN_UNROLL
    for (int d = 0; d < kAxesMax; ++d) {
      if (r.begin[d] < 0) {
        fixed += at[d] * to.of[d];
      } else {
        const int32_t* const first = r.readers + r.begin[d] + at[d];
        combinations *= first[1] - first[0];
      }
    }
    float sum = 0;
    for (int64_t c = 0; c < combinations; ++c) {
      int64_t rest = c, place = fixed;
      CAIRN_UNROLL
      for (int d = kAxesMax - 1; d >= 0; --d) {
        if (r.begin[d] < 0) continue;
        const int32_t* const first = r.readers + r.begin[d] + at[d];
        const int64_t count = first[1] - first[0], above = rest / count;
        place += r.readers[first[0] + (rest - above * count)] * to.of[d];
        rest = above;
      }
      sum += At(dy, place);
    }
    SetOrAdd(dx, i, sum, add);
  }
};

}  // namespace

Error Move(Stream stream, const Moves& m, float constant, const void* x, void* y, DType type) {
  return LaunchForEach(stream, m.to.Count(), false,
                       Moving{m, AxisPlaces(m.to), DenseStrides(m.from), constant, {x, type}, {y, type}});
}

Error MoveBackward(Stream stream, const Moves& m, const Readers& readers, const void* dy, void* dx, DType type,
                   bool add) {
  return LaunchForEach(stream, m.from.Count(), false,
                       MovingBackward{readers, AxisPlaces(m.from), DenseStrides(m.to), add, {dy, type}, {dx, type}});
}

}  // namespace cairn::cudnn::kernels
