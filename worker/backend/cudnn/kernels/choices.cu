// The largest numbers of rows; classes as ones among zeros.
#include <cmath>

#include "worker/backend/cudnn/kernels/moves.h"
#include "worker/backend/cudnn/kernels/numbers.h"

namespace cairn::cudnn::kernels {
namespace {

struct Encoding {
  Divider inner, classes;
  In x;
  Out y;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    int64_t above, outer;
    const int64_t place = inner.Split(i, &above);
    const int64_t number = classes.Split(above, &outer);
    const bool one = truncf(At(x, outer * inner.divisor() + place)) == static_cast<float>(number);
    Set(y, i, one ? 1.0f : 0.0f);
  }
};

struct Ranked {
  float number;
  int32_t place;  // negative: there is none
};
// The order of TopK: strict whatever the numbers are.
CAIRN_DEVICE bool ComesBefore(const Ranked& a, const Ranked& b) {
  if (a.place < 0 || b.place < 0) return a.place >= 0 && b.place < 0;
  const bool none_a = a.number != a.number, none_b = b.number != b.number;
  if (none_a != none_b) return none_a;
  if (!none_a && a.number != b.number) return a.number > b.number;
  return a.place < b.place;
}

// One block a row, which finds one number after the other: the first of those that come behind the last one.
template <int threads>
struct Choosing {
  static constexpr int kThreads = threads;
  static constexpr int kSharedBytes = threads * static_cast<int>(sizeof(Ranked));
  Largest t;
  In x;
  Out y;
  int32_t* places;
  template <class B>
  CAIRN_DEVICE void operator()(B& block) const {
    Ranked* values = block.template Shared<Ranked>();
    const int64_t row = block.index();
    Ranked last{0, -1};
    for (int64_t n = 0; n < t.k; ++n) {
      block.ForEachThread([&](int thread) {
        Ranked best{0, -1};
        for (int64_t place = thread; place < t.size; place += kThreads) {
          const Ranked one{At(x, row * t.size + place), static_cast<int32_t>(place)};
          if ((n == 0 || ComesBefore(last, one)) && ComesBefore(one, best)) best = one;
        }
        values[thread] = best;
      });
      last = block.Reduce(values, [](const Ranked& a, const Ranked& b) { return ComesBefore(b, a) ? b : a; });
      block.ForEachThread([&](int thread) {
        if (thread != 0) return;
        places[row * t.k + n] = last.place;
        Set(y, row * t.k + n, t.indices ? static_cast<float>(last.place) : last.number);
      });
    }
  }
};

struct ChoosingBackward {
  Divider k;
  int64_t size;
  const int32_t* places;
  In dy;
  Out dx;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    SetOrAdd(dx, k(i) * size + places[i], At(dy, i), true);
  }
};

}  // namespace

Error OneHot(Stream stream, const Classes& c, const void* x, DType x_type, void* y, DType type) {
  const int64_t n = c.outer * c.classes * c.inner;
  return LaunchForEach(stream, n, false, Encoding{Divider(c.inner, n), Divider(c.classes, n), {x, x_type}, {y, type}});
}

Error TopK(Stream stream, const Largest& t, const void* x, DType x_type, void* y, DType y_type, int32_t* places) {
  if (t.size <= kWarpColumnsMax) return Launch(stream, t.rows, Choosing<32>{t, {x, x_type}, {y, y_type}, places});
  return Launch(stream, t.rows, Choosing<kBlockThreads>{t, {x, x_type}, {y, y_type}, places});
}

Error TopKBackward(Stream stream, const Largest& t, const int32_t* places, const void* dy, DType dy_type, void* dx,
                   DType dx_type) {
  const int64_t n = t.rows * t.k;
  return LaunchForEach(stream, n, false,
                       ChoosingBackward{Divider(t.k, n), t.size, places, {dy, dy_type}, {dx, dx_type}});
}

}  // namespace cairn::cudnn::kernels
