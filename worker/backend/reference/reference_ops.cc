#include "worker/backend/reference/reference_ops.h"

#include <algorithm>
#include <cmath>

namespace cairn::reference {
namespace {

// One input number under the window of one output pixel; indices of [example, z, y, x] without the channel.
struct Tap {
  int64_t output_pixel = 0;
  int64_t input_pixel = 0;
  int64_t kernel_pixel = 0;
};

// Calls fn(place in the input, place in the kernel) for every tap of output place `o` along one axis, of the input's
// `size`.
template <typename Fn>
void ForEachOfAxis(const WindowAxis& axis, int64_t o, int64_t size, Fn fn) {
  for (int64_t k = 0; k < axis.kernel; ++k) {
    const int64_t i = o * axis.stride + k * axis.dilation - axis.pad_begin;
    if (i >= 0 && i < size) fn(i, k);
  }
}

WindowAxis AxisOf(const Window& w, int i) {
  return {w.kernel[i], w.strides[i], w.dilation[i], w.pad_begin[i], w.pad_end[i]};
}

// Calls fn for every tap within the picture: example by example, output plane by plane and row by row, kernel plane by
// plane and row by row.
template <typename Fn>
void ForEachTap(const Geometry& g, Fn fn) {
  const Extent in(g.input), out(g.output);
  const WindowAxis z = g.window.depth, y = AxisOf(g.window, 0), x = AxisOf(g.window, 1);
  for (int64_t pixel = 0; pixel < g.examples * out.pixels(); ++pixel) {
    const int64_t e = pixel / out.pixels(), oz = pixel / (out.width * out.height) % out.depth,
                  oy = pixel / out.width % out.height, ox = pixel % out.width;
    ForEachOfAxis(z, oz, in.depth, [&](int64_t iz, int64_t kz) {
      ForEachOfAxis(y, oy, in.height, [&](int64_t iy, int64_t ky) {
        ForEachOfAxis(x, ox, in.width, [&](int64_t ix, int64_t kx) {
          fn(Tap{pixel, ((e * in.depth + iz) * in.height + iy) * in.width + ix, (kz * y.kernel + ky) * x.kernel + kx});
        });
      });
    });
  }
}

void SetToBias(In bias, Out y) {
  for (size_t i = 0; i < y.size(); ++i) y[i] = bias.empty() ? 0.0 : bias[i % bias.size()];
}

void BiasBackward(In dy, Out dbias) {
  if (dbias.empty()) return;
  for (size_t i = 0; i < dy.size(); ++i) dbias[i % dbias.size()] += dy[i];
}

// The index of the largest input number of each window.
std::vector<int64_t> ArgMaxOfWindows(const Geometry& g, In x) {
  const int64_t channels = g.output.back();
  std::vector<int64_t> largest(g.examples * NumElements(g.output), -1);
  ForEachTap(g, [&](const Tap& tap) {
    for (int64_t c = 0; c < channels; ++c) {
      int64_t& best = largest[tap.output_pixel * channels + c];
      const int64_t here = tap.input_pixel * channels + c;
      if (best < 0 || x[here] > x[best]) best = here;
    }
  });
  return largest;
}

std::vector<int64_t> TapsPerPixel(const Geometry& g) {
  std::vector<int64_t> taps(g.examples * Extent(g.output).pixels(), 0);
  ForEachTap(g, [&](const Tap& tap) { ++taps[tap.output_pixel]; });
  return taps;
}

}  // namespace

namespace {

// Calls fn(input channel, output channel, index in the kernel) for all channels that one position of the kernel
// connects: within each group, all with all.
template <typename Fn>
void ForEachWeight(const Geometry& g, int64_t kernel_pixel, Fn fn) {
  const int64_t groups = g.window.groups, in = g.input.back() / groups, out = g.output.back();
  for (int64_t i = 0; i < in; ++i) {
    for (int64_t o = 0; o < out; ++o) fn(o / (out / groups) * in + i, o, (kernel_pixel * in + i) * out + o);
  }
}

}  // namespace

void Conv2D(const Geometry& g, In x, In kernel, In bias, Out y) {
  const int64_t in = g.input.back(), out = g.output.back();
  SetToBias(bias, y);
  ForEachTap(g, [&](const Tap& tap) {
    ForEachWeight(g, tap.kernel_pixel, [&](int64_t i, int64_t o, int64_t k) {
      y[tap.output_pixel * out + o] += x[tap.input_pixel * in + i] * kernel[k];
    });
  });
}

void Conv2DBackward(const Geometry& g, In x, In kernel, In dy, const KernelGradients& to) {
  const int64_t in = g.input.back(), out = g.output.back();
  BiasBackward(dy, to.bias);
  ForEachTap(g, [&](const Tap& tap) {
    ForEachWeight(g, tap.kernel_pixel, [&](int64_t i, int64_t o, int64_t k) {
      const double d = dy[tap.output_pixel * out + o];
      to.x[tap.input_pixel * in + i] += d * kernel[k];
      to.kernel[k] += d * x[tap.input_pixel * in + i];
    });
  });
}

void DepthwiseConv2D(const Geometry& g, In x, In kernel, In bias, Out y) {
  const int64_t in = g.input.back(), out = g.output.back(), multiplier = out / in;
  SetToBias(bias, y);
  ForEachTap(g, [&](const Tap& tap) {
    for (int64_t o = 0; o < out; ++o) {
      y[tap.output_pixel * out + o] += x[tap.input_pixel * in + o / multiplier] * kernel[tap.kernel_pixel * out + o];
    }
  });
}

void DepthwiseConv2DBackward(const Geometry& g, In x, In kernel, In dy, const KernelGradients& to) {
  const int64_t in = g.input.back(), out = g.output.back(), multiplier = out / in;
  BiasBackward(dy, to.bias);
  ForEachTap(g, [&](const Tap& tap) {
    for (int64_t o = 0; o < out; ++o) {
      const double d = dy[tap.output_pixel * out + o];
      to.x[tap.input_pixel * in + o / multiplier] += d * kernel[tap.kernel_pixel * out + o];
      to.kernel[tap.kernel_pixel * out + o] += d * x[tap.input_pixel * in + o / multiplier];
    }
  });
}

namespace {

// The geometry of the convolution from the transposed one's output to its input.
Geometry Turned(const Geometry& g) { return {g.examples, g.output, g.input, g.window}; }

}  // namespace

void Conv2DTranspose(const Geometry& g, In x, In kernel, In bias, Out y) {
  const int64_t in = g.input.back(), out = g.output.back();
  SetToBias(bias, y);
  ForEachTap(Turned(g), [&](const Tap& tap) {
    for (int64_t o = 0; o < out; ++o) {
      for (int64_t i = 0; i < in; ++i) {
        y[tap.input_pixel * out + o] += x[tap.output_pixel * in + i] * kernel[(tap.kernel_pixel * out + o) * in + i];
      }
    }
  });
}

void Conv2DTransposeBackward(const Geometry& g, In x, In kernel, In dy, const KernelGradients& to) {
  const int64_t in = g.input.back(), out = g.output.back();
  BiasBackward(dy, to.bias);
  ForEachTap(Turned(g), [&](const Tap& tap) {
    for (int64_t o = 0; o < out; ++o) {
      for (int64_t i = 0; i < in; ++i) {
        const int64_t k = (tap.kernel_pixel * out + o) * in + i;
        const double d = dy[tap.input_pixel * out + o];
        to.x[tap.output_pixel * in + i] += d * kernel[k];
        to.kernel[k] += d * x[tap.output_pixel * in + i];
      }
    }
  });
}

void MaxPooling2D(const Geometry& g, In x, Out y) {
  const std::vector<int64_t> largest = ArgMaxOfWindows(g, x);
  for (size_t i = 0; i < y.size(); ++i) y[i] = x[largest[i]];
}

void MaxPooling2DBackward(const Geometry& g, In x, In dy, Out dx) {
  const std::vector<int64_t> largest = ArgMaxOfWindows(g, x);
  for (size_t i = 0; i < dy.size(); ++i) dx[largest[i]] += dy[i];
}

void AveragePooling2D(const Geometry& g, In x, Out y) {
  const int64_t channels = g.output.back();
  const std::vector<int64_t> taps = TapsPerPixel(g);
  std::fill(y.begin(), y.end(), 0.0);
  ForEachTap(g, [&](const Tap& tap) {
    for (int64_t c = 0; c < channels; ++c) {
      y[tap.output_pixel * channels + c] +=
          x[tap.input_pixel * channels + c] / static_cast<double>(taps[tap.output_pixel]);
    }
  });
}

void AveragePooling2DBackward(const Geometry& g, In dy, Out dx) {
  const int64_t channels = g.output.back();
  const std::vector<int64_t> taps = TapsPerPixel(g);
  ForEachTap(g, [&](const Tap& tap) {
    for (int64_t c = 0; c < channels; ++c) {
      dx[tap.input_pixel * channels + c] +=
          dy[tap.output_pixel * channels + c] / static_cast<double>(taps[tap.output_pixel]);
    }
  });
}

void GlobalAveragePooling2D(const Geometry& g, In x, Out y) {
  const int64_t pixels = Extent(g.input).pixels(), channels = g.input.back();
  std::fill(y.begin(), y.end(), 0.0);
  for (size_t i = 0; i < x.size(); ++i) {
    const int64_t example = static_cast<int64_t>(i) / (pixels * channels);
    y[example * channels + static_cast<int64_t>(i) % channels] += x[i] / static_cast<double>(pixels);
  }
}

void GlobalAveragePooling2DBackward(const Geometry& g, In dy, Out dx) {
  const int64_t pixels = Extent(g.input).pixels(), channels = g.input.back();
  for (size_t i = 0; i < dx.size(); ++i) {
    const int64_t example = static_cast<int64_t>(i) / (pixels * channels);
    dx[i] += dy[example * channels + static_cast<int64_t>(i) % channels] / static_cast<double>(pixels);
  }
}

namespace {

// Calls fn(index in the padded tensor, index in the input) for every number of the input.
template <typename Fn>
void ForEachPadded(const Geometry& g, Fn fn) {
  const Extent in(g.input), out(g.output);
  const int64_t line = in.width * g.input.back();
  for (int64_t row = 0; row < g.examples * in.depth * in.height; ++row) {
    const int64_t e = row / (in.depth * in.height), z = row / in.height % in.depth + g.window.depth.pad_begin,
                  y = row % in.height + g.window.pad_begin[0];
    const int64_t to = ((e * out.depth + z) * out.height + y) * out.width + g.window.pad_begin[1];
    for (int64_t i = 0; i < line; ++i) fn(to * g.input.back() + i, row * line + i);
  }
}

}  // namespace

void ZeroPadding2D(const Geometry& g, In x, Out y) {
  std::fill(y.begin(), y.end(), 0.0);
  ForEachPadded(g, [&](int64_t to, int64_t from) { y[to] = x[from]; });
}

void ZeroPadding2DBackward(const Geometry& g, In dy, Out dx) {
  ForEachPadded(g, [&](int64_t to, int64_t from) { dx[from] += dy[to]; });
}

void Dense(int64_t in, int64_t out, In x, In kernel, In bias, Out y) {
  SetToBias(bias, y);
  const int64_t rows = static_cast<int64_t>(x.size()) / in;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < in; ++i) {
      for (int64_t o = 0; o < out; ++o) y[r * out + o] += x[r * in + i] * kernel[i * out + o];
    }
  }
}

void DenseBackward(int64_t in, int64_t out, In x, In kernel, In dy, const KernelGradients& to) {
  BiasBackward(dy, to.bias);
  const int64_t rows = static_cast<int64_t>(x.size()) / in;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < in; ++i) {
      for (int64_t o = 0; o < out; ++o) {
        to.x[r * in + i] += dy[r * out + o] * kernel[i * out + o];
        to.kernel[i * out + o] += dy[r * out + o] * x[r * in + i];
      }
    }
  }
}

BatchStatistics Statistics(int64_t channels, In x) {
  const double rows = static_cast<double>(x.size()) / static_cast<double>(channels);
  BatchStatistics s{std::vector<double>(channels, 0.0), std::vector<double>(channels, 0.0)};
  for (size_t i = 0; i < x.size(); ++i) s.mean[i % channels] += x[i] / rows;
  for (size_t i = 0; i < x.size(); ++i) s.variance[i % channels] += std::pow(x[i] - s.mean[i % channels], 2) / rows;
  return s;
}

void BatchNormalization(In x, const Normalizer& by, Out y) {
  const size_t channels = by.mean.size();
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t c = i % channels;
    const double normalized = (x[i] - by.mean[c]) / std::sqrt(by.variance[c] + by.epsilon);
    y[i] = normalized * (by.gamma.empty() ? 1.0 : by.gamma[c]) + (by.beta.empty() ? 0.0 : by.beta[c]);
  }
}

void BatchNormalizationBackward(In x, const Normalizer& by, In dy, const NormalizationGradients& to) {
  const size_t channels = by.mean.size();
  const double rows = static_cast<double>(x.size()) / static_cast<double>(channels);
  const auto normalized = [&](size_t i) {
    return (x[i] - by.mean[i % channels]) / std::sqrt(by.variance[i % channels] + by.epsilon);
  };
  std::vector<double> sum_dy(channels, 0.0), sum_dy_normalized(channels, 0.0);
  for (size_t i = 0; i < x.size(); ++i) {
    sum_dy[i % channels] += dy[i];
    sum_dy_normalized[i % channels] += dy[i] * normalized(i);
  }
  for (size_t c = 0; c < to.gamma.size(); ++c) to.gamma[c] += sum_dy_normalized[c];
  for (size_t c = 0; c < to.beta.size(); ++c) to.beta[c] += sum_dy[c];
  // Section 3 of the paper, with the terms through mean and variance collected.
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t c = i % channels;
    const double scale = (by.gamma.empty() ? 1.0 : by.gamma[c]) / std::sqrt(by.variance[c] + by.epsilon);
    to.x[i] += scale * (dy[i] - sum_dy[c] / rows - normalized(i) * sum_dy_normalized[c] / rows);
  }
}

void ConstantBatchNormalizationBackward(In x, const Normalizer& by, In dy, const NormalizationGradients& to) {
  for (size_t i = 0; i < to.x.size(); ++i) {
    const size_t c = i % by.variance.size();
    const double factor = 1 / std::sqrt(by.variance[c] + by.epsilon);
    to.x[i] += dy[i] * (by.gamma.empty() ? 1.0 : by.gamma[c]) * factor;
    if (!to.gamma.empty()) to.gamma[c] += dy[i] * (x[i] - by.mean[c]) * factor;
    if (!to.beta.empty()) to.beta[c] += dy[i];
  }
}

}  // namespace cairn::reference
