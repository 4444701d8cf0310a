// Depthwise convolutions, and plain ones as loops over the definition.
#include "worker/backend/cudnn/kernels/columns.h"
#include "worker/backend/cudnn/kernels/window.h"

namespace cairn::cudnn::kernels {
namespace {

template <int V>
CAIRN_DEVICE void AddProduct(Numbers<V>& sum, const In& a, int64_t i, const In& b, int64_t k) {
  const Numbers<V> m = Load<V>(a, i), n = Load<V>(b, k);
  CAIRN_UNROLL
  for (int j = 0; j < V; ++j) sum.at[j] += m.at[j] * n.at[j];
}

struct DepthwiseForward {
  Geometry g;
  Divider multiplier;
  In x, kernel;
  Out y;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    const Place p = g.out.Of(i);
    const int64_t from = multiplier(p.channel), channels = g.out.channels.divisor();
    Numbers<V> sum = {};
    g.ForEachTap(p.y, p.x, [&](int32_t row, int32_t column, int32_t place) {
      AddProduct<V>(sum, x, g.in.Index(p.example, row, column, from), kernel, place * channels + p.channel);
    });
    Store<V>(y, i, sum);
  }
};

struct DepthwiseData {
  Geometry g;
  int64_t multiplier;  // 1 where V > 1
  bool add;
  In dy, kernel;
  Out dx;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    const Place p = g.in.Of(i);
    const int64_t channels = g.out.channels.divisor();
    Numbers<V> sum = {};
    g.ForEachWindow(p.y, p.x, [&](int32_t out_y, int32_t out_x, int32_t place) {
      for (int64_t m = 0; m < multiplier; ++m) {
        const int64_t channel = p.channel * multiplier + m;
        AddProduct<V>(sum, dy, g.out.Index(p.example, out_y, out_x, channel), kernel, place * channels + channel);
      }
    });
    StoreOrAdd<V>(dx, i, sum, add);
  }
};

// The batch of the sums is the window's places, their rows the output's pixels.
struct DepthwiseFilterSums {
  static constexpr int kValues = 1;
  template <int V>
  struct Values {
    float at[kValues][V];
    Geometry::Tap tap;
    int64_t from;  // the input's channel
  };
  Geometry g;
  Divider multiplier;
  In x, dy;
  float* dkernel;
  template <int V>
  CAIRN_DEVICE Values<V> Begin(int64_t place, int64_t channel) const {
    Values<V> v = {};
    v.tap = g.TapOf(static_cast<int32_t>(place));
    v.from = multiplier(channel);
    return v;
  }
  template <int V>
  CAIRN_DEVICE void Add(Values<V>& v, int64_t, int64_t row, int64_t channel) const {
    const int64_t under = g.InputUnder(v.tap, row, v.from);
    if (under < 0) return;
    const Numbers<V> d = Load<V>(dy, row * g.out.channels.divisor() + channel), n = Load<V>(x, under);
    CAIRN_UNROLL
    for (int j = 0; j < V; ++j) v.at[0][j] += d.at[j] * n.at[j];
  }
  template <int V>
  CAIRN_DEVICE void End(Values<V>&) const {}
  CAIRN_DEVICE static void Join(float* a, const float* b) { a[0] += b[0]; }
  CAIRN_DEVICE void Finish(int64_t place, int64_t channel, const float* v) const {
    dkernel[place * g.out.channels.divisor() + channel] = v[0];
  }
};

ColumnShape DepthwiseShape(const Window& w) {
  return ShapeOfColumns(w.kernel[0] * w.kernel[1], w.examples * w.out[0] * w.out[1], w.out[2],
                        w.in[2] == w.out[2] && Wide(w.out[2]));
}

// ---- plain ----

// One number a thread, as Kernel::One computes it.
template <class Kernel>
struct OneByOne {
  Kernel kernel;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    for (int64_t o = i; o < i + V; ++o) kernel.One(o);
  }
};

struct PlainForward {
  Geometry g;
  In x, kernel;
  Out y;
  CAIRN_DEVICE void One(int64_t o) const {
    const Place p = g.out.Of(o);
    const int64_t in = g.in.channels.divisor(), places = int64_t{g.kernel[0]} * g.kernel[1];
    float sum = 0;
    g.ForEachTap(p.y, p.x, [&](int32_t row, int32_t column, int32_t place) {
      const int64_t from = g.in.Index(p.example, row, column, 0), of = (p.channel * places + place) * in;
      for (int64_t c = 0; c < in; ++c) sum += At(x, from + c) * At(kernel, of + c);
    });
    Set(y, o, sum);
  }
};

struct PlainData {
  Geometry g;
  bool add;
  In dy, kernel;
  Out dx;
  CAIRN_DEVICE void One(int64_t i) const {
    const Place p = g.in.Of(i);
    const int64_t in = g.in.channels.divisor(), out = g.out.channels.divisor(),
                  places = int64_t{g.kernel[0]} * g.kernel[1];
    float sum = 0;
    g.ForEachWindow(p.y, p.x, [&](int32_t out_y, int32_t out_x, int32_t place) {
      const int64_t from = g.out.Index(p.example, out_y, out_x, 0);
      for (int64_t o = 0; o < out; ++o) sum += At(dy, from + o) * At(kernel, (o * places + place) * in + p.channel);
    });
    SetOrAdd(dx, i, sum, add);
  }
};

// One block a number of the kernel.
struct PlainFilter {
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kSharedBytes = kThreads * 4;
  Geometry g;
  int64_t rows;  // the output's pixels
  In x, dy;
  float* dkernel;
  template <class B>
  CAIRN_DEVICE void operator()(B& block) const {
    float* values = block.template Shared<float>();
    const int64_t in = g.in.channels.divisor(), channel = block.index() % in, above = block.index() / in;
    const int32_t places = g.kernel[0] * g.kernel[1];
    const int64_t out_channel = above / places;
    const Geometry::Tap tap = g.TapOf(static_cast<int32_t>(above % places));
    block.ForEachThread([&](int thread) {
      float sum = 0;
      for (int64_t row = thread; row < rows; row += kThreads) {
        const int64_t under = g.InputUnder(tap, row, channel);
        if (under >= 0) sum += At(dy, row * g.out.channels.divisor() + out_channel) * At(x, under);
      }
      values[thread] = sum;
    });
    const float sum = block.Reduce(values, [](float a, float b) { return a + b; });
    block.ForEachThread([&](int thread) {
      if (thread == 0) dkernel[block.index()] = sum;
    });
  }
};

}  // namespace

Error Depthwise(Stream stream, const Window& w, const void* x, const void* kernel, void* y, DType type) {
  const int64_t multiplier = w.out[2] / w.in[2];
  return LaunchForEach(
      stream, Count(w, w.out), multiplier == 1 && Wide(w.out[2]),
      DepthwiseForward{Geometry(w), Divider(multiplier, w.out[2]), {x, type}, {kernel, type}, {y, type}});
}

Error DepthwiseBackwardData(Stream stream, const Window& w, const void* dy, const void* kernel, void* dx, DType type,
                            bool add) {
  const int64_t multiplier = w.out[2] / w.in[2];
  return LaunchForEach(stream, Count(w, w.in), multiplier == 1 && Wide(w.out[2]),
                       DepthwiseData{Geometry(w), multiplier, add, {dy, type}, {kernel, type}, {dx, type}});
}

int64_t DepthwiseScratch(const Window& w) { return ColumnScratch<DepthwiseFilterSums>(DepthwiseShape(w)); }

Error DepthwiseBackwardFilter(Stream stream, const Window& w, const void* x, const void* dy, float* dkernel,
                              float* scratch, DType type) {
  const DepthwiseFilterSums sums{Geometry(w), Divider(w.out[2] / w.in[2], w.out[2]), {x, type}, {dy, type}, dkernel};
  return LaunchColumns(stream, DepthwiseShape(w), sums, scratch);
}

Error Convolution(Stream stream, const Window& w, const void* x, const void* kernel, void* y, DType type) {
  return LaunchForEach(stream, Count(w, w.out), false,
                       OneByOne<PlainForward>{{Geometry(w), {x, type}, {kernel, type}, {y, type}}});
}

Error ConvolutionBackwardData(Stream stream, const Window& w, const void* dy, const void* kernel, void* dx, DType type,
                              bool add) {
  return LaunchForEach(stream, Count(w, w.in), false,
                       OneByOne<PlainData>{{Geometry(w), add, {dy, type}, {kernel, type}, {dx, type}}});
}

Error ConvolutionBackwardFilter(Stream stream, const Window& w, const void* x, const void* dy, float* dkernel,
                                DType type) {
  return Launch(stream, w.out[2] * w.kernel[0] * w.kernel[1] * w.in[2],
                PlainFilter{Geometry(w), w.examples * w.out[0] * w.out[1], {x, type}, {dy, type}, dkernel});
}

}  // namespace cairn::cudnn::kernels
