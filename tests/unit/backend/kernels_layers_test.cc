// Goal: the GPU's kernels for windows (pooling, padding, up-sampling, convolutions) compute what the reference
// computes, in every type, for wide and odd shapes, with the same bits in any order of blocks.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/unit/backend/kernels_testing.h"
#include "worker/backend/reference/reference_ops.h"

namespace cairn::cudnn::kernels {
namespace {

class Layers : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Kernels, Layers, testing::ValuesIn(kAllTypes), TypeName);

// pads: top, left, bottom, right.
struct WindowCase {
  int64_t examples, in[2], channels, kernel[2], strides[2], dilation[2], pads[4];
};
const std::vector<WindowCase>& WindowCases() {
  static const auto* cases = new std::vector<WindowCase>{
      {2, {5, 6}, 3, {2, 2}, {2, 2}, {1, 1}, {0, 0, 0, 0}},  {3, {7, 7}, 8, {3, 3}, {2, 2}, {1, 1}, {1, 1, 1, 1}},
      {2, {6, 5}, 16, {3, 2}, {1, 2}, {1, 1}, {1, 0, 1, 1}}, {1, {1, 9}, 5, {1, 4}, {1, 2}, {1, 1}, {0, 1, 0, 2}},
      {2, {8, 9}, 8, {3, 3}, {1, 1}, {2, 3}, {2, 3, 2, 3}},  {1, {3, 3}, 1, {3, 3}, {3, 3}, {1, 1}, {0, 0, 0, 0}},
      {2, {6, 6}, 4, {2, 2}, {3, 3}, {1, 1}, {0, 0, 0, 0}}};
  return *cases;
}

int64_t OutputSize(const WindowCase& c, int axis) {
  const int64_t padded = c.in[axis] + c.pads[axis] + c.pads[axis + 2];
  return (padded - ((c.kernel[axis] - 1) * c.dilation[axis] + 1)) / c.strides[axis] + 1;
}

Window WindowOf(const WindowCase& c, int64_t out_channels) {
  Window w;
  w.examples = c.examples;
  w.in[2] = c.channels;
  w.out[2] = out_channels;
  for (int d = 0; d < 2; ++d) {
    w.in[d] = c.in[d];
    w.out[d] = OutputSize(c, d);
    w.kernel[d] = c.kernel[d];
    w.strides[d] = c.strides[d];
    w.dilation[d] = c.dilation[d];
    w.pad[d] = c.pads[d];
  }
  return w;
}
reference::Geometry GeometryOf(const Window& w) {
  reference::Geometry g;
  g.examples = w.examples;
  g.input = {w.in[0], w.in[1], w.in[2]};
  g.output = {w.out[0], w.out[1], w.out[2]};
  for (int d = 0; d < 2; ++d) {
    g.window.kernel[d] = w.kernel[d];
    g.window.strides[d] = w.strides[d];
    g.window.dilation[d] = w.dilation[d];
    g.window.pad_begin[d] = w.pad[d];
  }
  return g;
}
int64_t InputCount(const Window& w) { return w.examples * w.in[0] * w.in[1] * w.in[2]; }
int64_t OutputCount(const Window& w) { return w.examples * w.out[0] * w.out[1] * w.out[2]; }

TEST_P(Layers, Pooling) {
  for (const WindowCase& c : WindowCases()) {
    const Window w = WindowOf(c, c.channels);
    const reference::Geometry g = GeometryOf(w);
    const Tensor x(Coarse(InputCount(w), 1), type()), dy(Random(OutputCount(w), 2), type());
    std::vector<double> y(OutputCount(w)), dx(InputCount(w), 0.0);
    reference::MaxPooling2D(g, x.exact(), absl::MakeSpan(y));
    reference::MaxPooling2DBackward(g, x.exact(), dy.exact(), absl::MakeSpan(dx));
    Memory argmax(OutputCount(w));
    ExpectNear(Launched(OutputCount(w), type(),
                        [&](void* out) {
                          return MaxPooling(nullptr, w, false, x.data(), out, static_cast<uint8_t*>(argmax.data()),
                                            type());
                        }),
               y, 0, "max");
    ExpectNear(Launched(OutputCount(w), type(),
                        [&](void* out) { return MaxPooling(nullptr, w, false, x.data(), out, nullptr, type()); }),
               y, 0, "max in evaluation");
    ExpectBoth(dx, type(), precision(), "max backward", [&](void* out, bool add) {
      return MaxPoolingBackward(nullptr, w, static_cast<const uint8_t*>(argmax.data()), dy.data(), out, type(), add);
    });
    ExpectBoth(dx, type(), precision(), "max backward, searched", [&](void* out, bool add) {
      return MaxPoolingBackwardSearch(nullptr, w, x.data(), dy.data(), out, type(), add);
    });

    std::fill(dx.begin(), dx.end(), 0.0);
    reference::AveragePooling2D(g, x.exact(), absl::MakeSpan(y));
    reference::AveragePooling2DBackward(g, dy.exact(), absl::MakeSpan(dx));
    ExpectNear(
        Launched(OutputCount(w), type(), [&](void* out) { return AveragePooling(nullptr, w, x.data(), out, type()); }),
        y, precision(), "average");
    ExpectBoth(dx, type(), precision(), "average backward",
               [&](void* out, bool add) { return AveragePoolingBackward(nullptr, w, dy.data(), out, type(), add); });
  }
}

// As for a picture with a border of zeros; all numbers are below 0, so that the border shows.
TEST_P(Layers, MaxPoolingOverZeros) {
  for (int64_t channels : {3, 16}) {
    Window padded;
    padded.examples = 2;
    padded.in[0] = 9, padded.in[1] = 7, padded.in[2] = padded.out[2] = channels;
    padded.out[0] = 4, padded.out[1] = 3;
    for (int d = 0; d < 2; ++d) padded.kernel[d] = 3, padded.strides[d] = 2;
    Window w = padded, around = padded;
    w.in[0] = around.in[0] = 7, w.in[1] = around.in[1] = 5;
    around.out[0] = 9, around.out[1] = 7;
    for (Window* window : {&w, &around}) window->pad[0] = window->pad[1] = 1;
    const Tensor x(Random(InputCount(w), 1, -2, -1), type()), dy(Random(OutputCount(w), 2), type());
    Memory framed(InputCount(padded) * SizeOf(WireType(type()))), frame_places(OutputCount(w)), places(OutputCount(w));
    ASSERT_EQ(Pad(nullptr, around, x.data(), framed.data(), type()), 0);
    const std::vector<float> of_framed = Launched(OutputCount(w), type(), [&](void* out) {
      return MaxPooling(nullptr, padded, false, framed.data(), out, static_cast<uint8_t*>(frame_places.data()), type());
    });
    const std::vector<float> y = Launched(OutputCount(w), type(), [&](void* out) {
      return MaxPooling(nullptr, w, true, x.data(), out, static_cast<uint8_t*>(places.data()), type());
    });
    EXPECT_EQ(y, of_framed);
    EXPECT_GT(std::count(y.begin(), y.end(), 0.0f), 0);
    EXPECT_EQ(places.Get(OutputCount(w), 0), frame_places.Get(OutputCount(w), 0));
  }
}

TEST_P(Layers, GlobalAverage) {
  for (auto [examples, positions, channels] :
       {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1}, {3, 49, 72}, {2, 300, 5}, {4, 7, 40}}) {
    const int64_t n = examples * positions * channels;
    const reference::Geometry g{examples, {1, positions, channels}, {channels}, {}};
    const Tensor x(Random(n, 3), type()), dy(Random(examples * channels, 4), type());
    std::vector<double> y(examples * channels), dx(n, 0.0);
    reference::GlobalAveragePooling2D(g, x.exact(), absl::MakeSpan(y));
    reference::GlobalAveragePooling2DBackward(g, dy.exact(), absl::MakeSpan(dx));
    const int64_t e = examples, p = positions, c = channels;
    ExpectNear(
        Launched(e * c, type(), [&](void* out) { return GlobalAverage(nullptr, e, p, c, x.data(), out, type()); }), y,
        precision(), "average");
    ExpectBoth(dx, type(), precision(), "average backward", [&](void* out, bool add) {
      return GlobalAverageBackward(nullptr, e, p, c, dy.data(), out, type(), add);
    });
  }
}

TEST_P(Layers, PadCropUpSampling) {
  for (int64_t channels : {3, 8}) {
    Window w;
    w.examples = 2;
    w.in[0] = 4, w.in[1] = 3, w.in[2] = w.out[2] = channels;
    w.out[0] = 7, w.out[1] = 5;
    w.pad[0] = 1, w.pad[1] = 2;
    const Tensor small(Random(InputCount(w), 5), type()), large(Random(OutputCount(w), 6), type());
    std::vector<double> y(OutputCount(w)), dx(InputCount(w), 0.0);
    reference::ZeroPadding2D(GeometryOf(w), small.exact(), absl::MakeSpan(y));
    reference::ZeroPadding2DBackward(GeometryOf(w), large.exact(), absl::MakeSpan(dx));
    ExpectNear(Launched(OutputCount(w), type(), [&](void* out) { return Pad(nullptr, w, small.data(), out, type()); }),
               y, 0, "pad");
    ExpectBoth(dx, type(), precision(), "crop",
               [&](void* out, bool add) { return Crop(nullptr, w, large.data(), out, type(), add); });
  }
  for (auto [height, width, channels] :
       {std::tuple<int64_t, int64_t, int64_t>{2, 3, 3}, {4, 2, 8}, {1, 1, 1}, {3, 2, 16}}) {
    for (int64_t factor : {1, 2, 3}) {
      for (bool bilinear : {false, true}) {
        Window w;
        w.examples = 2;
        w.in[0] = height, w.in[1] = width, w.in[2] = w.out[2] = channels;
        w.out[0] = height * factor, w.out[1] = width * (factor + 1);
        const Tensor x(Random(InputCount(w), 7), type()), dy(Random(OutputCount(w), 8), type());
        std::vector<double> y(OutputCount(w)), dx(InputCount(w), 0.0);
        reference::UpSampling2D(GeometryOf(w), bilinear, x.exact(), absl::MakeSpan(y));
        reference::UpSampling2DBackward(GeometryOf(w), bilinear, dy.exact(), absl::MakeSpan(dx));
        ExpectNear(Launched(OutputCount(w), type(),
                            [&](void* out) { return UpSampling(nullptr, w, bilinear, x.data(), out, type()); }),
                   y, precision(), "up-sampling");
        ExpectBoth(dx, type(), precision(), "up-sampling backward", [&](void* out, bool add) {
          return UpSamplingBackward(nullptr, w, bilinear, dy.data(), out, type(), add);
        });
      }
    }
  }
}

TEST_P(Layers, Depthwise) {
  for (const WindowCase& c : WindowCases()) {
    for (int64_t multiplier : {1, 2}) {
      const Window w = WindowOf(c, c.channels * multiplier);
      const reference::Geometry g = GeometryOf(w);
      const int64_t kernel_size = w.kernel[0] * w.kernel[1] * w.out[2];
      const Tensor x(Random(InputCount(w), 9), type()), dy(Random(OutputCount(w), 10), type()),
          kernel(Random(kernel_size, 11), type());
      std::vector<double> y(OutputCount(w)), dx(InputCount(w), 0.0), dkernel(kernel_size, 0.0);
      reference::DepthwiseConv2D(g, x.exact(), kernel.exact(), {}, absl::MakeSpan(y));
      reference::DepthwiseConv2DBackward(g, x.exact(), kernel.exact(), dy.exact(),
                                         {.x = absl::MakeSpan(dx), .kernel = absl::MakeSpan(dkernel), .bias = {}});
      ExpectNear(
          Launched(OutputCount(w), type(),
                   [&](void* out) { return kernels::Depthwise(nullptr, w, x.data(), kernel.data(), out, type()); }),
          y, precision(), "depthwise");
      ExpectBoth(dx, type(), precision(), "depthwise data", [&](void* out, bool add) {
        return DepthwiseBackwardData(nullptr, w, dy.data(), kernel.data(), out, type(), add);
      });
      Memory scratch(DepthwiseScratch(w) * 4);
      ExpectNear(Launched(kernel_size, DType::kFloat32,
                          [&](void* out) {
                            return DepthwiseBackwardFilter(nullptr, w, x.data(), dy.data(), static_cast<float*>(out),
                                                           static_cast<float*>(scratch.data()), type());
                          }),
                 dkernel, 3e-6, "depthwise filter");
    }
  }
}

// [h, w, in, out] -> [out, h, w, in].
std::vector<double> Keras(const std::vector<double>& kernel, const Window& w) {
  const int64_t places = w.kernel[0] * w.kernel[1];
  std::vector<double> out(kernel.size());
  for (int64_t o = 0; o < w.out[2]; ++o) {
    for (int64_t k = 0; k < places * w.in[2]; ++k) out[k * w.out[2] + o] = kernel[o * places * w.in[2] + k];
  }
  return out;
}

TEST_P(Layers, Convolution) {
  for (const WindowCase& c : WindowCases()) {
    const Window w = WindowOf(c, 6);
    const reference::Geometry g = GeometryOf(w);
    const int64_t kernel_size = w.kernel[0] * w.kernel[1] * w.in[2] * w.out[2];
    const Tensor x(Random(InputCount(w), 12), type()), dy(Random(OutputCount(w), 13), type()),
        kernel(Random(kernel_size, 14), type());
    const std::vector<double> of_reference = Keras(kernel.exact(), w);
    std::vector<double> y(OutputCount(w)), dx(InputCount(w), 0.0), dkernel(kernel_size, 0.0);
    reference::Conv2D(g, x.exact(), of_reference, {}, absl::MakeSpan(y));
    reference::Conv2DBackward(g, x.exact(), of_reference, dy.exact(),
                              {.x = absl::MakeSpan(dx), .kernel = absl::MakeSpan(dkernel), .bias = {}});
    ExpectNear(
        Launched(OutputCount(w), type(),
                 [&](void* out) { return kernels::Convolution(nullptr, w, x.data(), kernel.data(), out, type()); }),
        y, precision(), "convolution");
    ExpectBoth(dx, type(), precision(), "convolution data", [&](void* out, bool add) {
      return ConvolutionBackwardData(nullptr, w, dy.data(), kernel.data(), out, type(), add);
    });
    const std::vector<float> filter = Launched(kernel_size, DType::kFloat32, [&](void* out) {
      return ConvolutionBackwardFilter(nullptr, w, x.data(), dy.data(), static_cast<float*>(out), type());
    });
    ExpectNear(Floats(Keras({filter.begin(), filter.end()}, w)), dkernel, 3e-6, "convolution filter");
  }
}

}  // namespace
}  // namespace cairn::cudnn::kernels
