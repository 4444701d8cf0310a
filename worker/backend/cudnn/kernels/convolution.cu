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

// The positions of the window are the batch of the sums, the output's pixels their rows.
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

// One thread a number, as Kernel::One computes it.
template <class Kernel>
struct OneByOne {
  Kernel kernel;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    for (int64_t o = i; o < i + V; ++o) kernel.One(o);
  }
};

// A window over volumes: the geometry is that of their planes, [examples * depth, height, width, channels].
struct Volumes {
  Geometry g;
  Depth depth;
  Divider in_planes, out_planes;
  int64_t in, out, places;  // channels of a group, places of a kernel's plane
  explicit Volumes(const Window& w)
      : g(Planes(w)),
        depth(w.depth),
        in_planes(w.depth.in, w.examples * w.depth.in),
        out_planes(w.depth.out, w.examples * w.depth.out),
        in(w.in[2] / w.groups),
        out(w.out[2] / w.groups),
        places(w.kernel[0] * w.kernel[1]) {}
  static Window Planes(Window w) {
    w.examples *= w.depth.in > w.depth.out ? w.depth.in : w.depth.out;
    return w;
  }
  // The index in the kernel of output channel `o`, plane `z`, position `place`.
  CAIRN_DEVICE int64_t KernelOf(int64_t o, int64_t z, int64_t place) const {
    return ((o * depth.kernel + z) * places + place) * in;
  }
  // The input plane under plane `z` of the window at output plane `to`; negative: there is none.
  CAIRN_DEVICE int64_t InputPlane(int64_t to, int64_t z) const {
    int64_t example;
    const int64_t at = out_planes.Split(to, &example) * depth.stride + z * depth.dilation - depth.pad;
    return at < 0 || at >= depth.in ? -1 : example * depth.in + at;
  }
  // The output plane whose window has plane `z` on input plane `from`; negative: there is none.
  CAIRN_DEVICE int64_t OutputPlane(int64_t from, int64_t z) const {
    int64_t example;
    const int64_t at = in_planes.Split(from, &example) + depth.pad - z * depth.dilation;
    if (at < 0 || at % depth.stride != 0 || at / depth.stride >= depth.out) return -1;
    return example * depth.out + at / depth.stride;
  }
};

struct PlainForward {
  Volumes v;
  In x, kernel;
  Out y;
  CAIRN_DEVICE void One(int64_t o) const {
    const Place p = v.g.out.Of(o);
    const int64_t first = p.channel / v.out * v.in;
    float sum = 0;
    for (int64_t z = 0; z < v.depth.kernel; ++z) {
      const int64_t plane = v.InputPlane(p.example, z);
      if (plane < 0) continue;
      v.g.ForEachTap(p.y, p.x, [&](int32_t row, int32_t column, int32_t place) {
        const int64_t from = v.g.in.Index(plane, row, column, first), of = v.KernelOf(p.channel, z, place);
        for (int64_t c = 0; c < v.in; ++c) sum += At(x, from + c) * At(kernel, of + c);
      });
    }
    Set(y, o, sum);
  }
};

struct PlainData {
  Volumes v;
  bool add;
  In dy, kernel;
  Out dx;
  CAIRN_DEVICE void One(int64_t i) const {
    const Place p = v.g.in.Of(i);
    const int64_t group = p.channel / v.in, channel = p.channel - group * v.in, first = group * v.out;
    float sum = 0;
    for (int64_t z = 0; z < v.depth.kernel; ++z) {
      const int64_t plane = v.OutputPlane(p.example, z);
      if (plane < 0) continue;
      v.g.ForEachWindow(p.y, p.x, [&](int32_t out_y, int32_t out_x, int32_t place) {
        const int64_t from = v.g.out.Index(plane, out_y, out_x, first);
        for (int64_t o = 0; o < v.out; ++o)
          sum += At(dy, from + o) * At(kernel, v.KernelOf(first + o, z, place) + channel);
      });
    }
    SetOrAdd(dx, i, sum, add);
  }
};

// One block a number of the kernel.
struct PlainFilter {
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kSharedBytes = kThreads * 4;
  Volumes v;
  int64_t rows;  // the output's pixels
  In x, dy;
  float* dkernel;
  template <class B>
  CAIRN_DEVICE void operator()(B& block) const {
    float* values = block.template Shared<float>();
    const Geometry& g = v.g;
    const int64_t channel = block.index() % v.in, above = block.index() / v.in, plane_above = above / v.places,
                  z = plane_above % v.depth.kernel, out_channel = plane_above / v.depth.kernel;
    const Geometry::Tap tap = g.TapOf(static_cast<int32_t>(above % v.places));
    const int64_t pixels = int64_t{g.out.height.divisor()} * g.out.width.divisor(),
                  plane_numbers = int64_t{g.height()} * g.width() * g.in.channels.divisor();
    block.ForEachThread([&](int thread) {
      float sum = 0;
      for (int64_t row = thread; row < rows; row += kThreads) {
        // In the plane of the same number; the window is on another one.
        const int64_t under = g.InputUnder(tap, row, out_channel / v.out * v.in + channel);
        if (under < 0) continue;
        const int64_t to = row / pixels, from = v.InputPlane(to, z);
        if (from >= 0)
          sum += At(dy, row * g.out.channels.divisor() + out_channel) * At(x, under + (from - to) * plane_numbers);
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
  return LaunchForEach(stream, Count(w, w.out) * w.depth.out, false,
                       OneByOne<PlainForward>{{Volumes(w), {x, type}, {kernel, type}, {y, type}}});
}

Error ConvolutionBackwardData(Stream stream, const Window& w, const void* dy, const void* kernel, void* dx, DType type,
                              bool add) {
  return LaunchForEach(stream, Count(w, w.in) * w.depth.in, false,
                       OneByOne<PlainData>{{Volumes(w), add, {dy, type}, {kernel, type}, {dx, type}}});
}

Error ConvolutionBackwardFilter(Stream stream, const Window& w, const void* x, const void* dy, float* dkernel,
                                DType type) {
  return Launch(
      stream, w.out[2] * w.depth.kernel * w.kernel[0] * w.kernel[1] * (w.in[2] / w.groups),
      PlainFilter{Volumes(w), w.examples * w.depth.out * w.out[0] * w.out[1], {x, type}, {dy, type}, dkernel});
}

}  // namespace cairn::cudnn::kernels
