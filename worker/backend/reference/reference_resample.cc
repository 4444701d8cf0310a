// Resizing, CenterCrop and adaptive pooling.
#include <algorithm>

#include "worker/backend/reference/reference_ops.h"

namespace cairn::reference {
namespace {

// Calls fn(index in [examples, axes...] of the output, index of the input, weight) for every number of the input that
// contributes to a number of the output, and outside(index of the output, share) for contributions of padding. axes:
// see common/model/resample.h.
template <typename Fn, typename Outside>
void ForEachShare(int64_t examples, const std::vector<ResampledAxis>& axes, Fn fn, Outside outside) {
  int64_t outs = 1;
  for (const ResampledAxis& axis : axes) outs *= static_cast<int64_t>(axis.places.size());
  for (int64_t to = 0; to < examples * outs; ++to) {
    std::vector<const ResampledPlace*> places(axes.size());
    int64_t rest = to;
    for (size_t a = axes.size(); a-- > 0;) {
      const int64_t out = static_cast<int64_t>(axes[a].places.size());
      places[a] = &axes[a].places[static_cast<size_t>(rest % out)];
      rest /= out;
    }
    std::vector<std::pair<int64_t, double>> from = {{rest, 1.0}};  // place so far, weight
    double inside = 1;
    for (size_t a = 0; a < axes.size(); ++a) {
      std::vector<std::pair<int64_t, double>> more;
      for (const auto& [place, weight] : from) {
        for (size_t i = 0; i < places[a]->weights.size(); ++i)
          more.push_back(
              {place * axes[a].in + places[a]->first + static_cast<int64_t>(i), weight * places[a]->weights[i]});
      }
      from = std::move(more);
      inside *= 1 - places[a]->outside;
    }
    for (const auto& [place, weight] : from) fn(to, place, weight);
    outside(to, 1 - inside);
  }
}

// The index of the input number that is the maximum for each output number; of equal ones the first.
std::vector<int64_t> ArgMaxOfAdaptive(const Geometry& g, In x) {
  const Extent in(g.input), out(g.output);
  const int64_t channels = g.input.back();
  std::vector<int64_t> largest;
  for (int64_t pixel = 0; pixel < g.examples * out.pixels(); ++pixel) {
    const AdaptiveWindow z = AdaptiveWindowOf(pixel / (out.width * out.height) % out.depth, in.depth, out.depth),
                         y = AdaptiveWindowOf(pixel / out.width % out.height, in.height, out.height),
                         w = AdaptiveWindowOf(pixel % out.width, in.width, out.width);
    for (int64_t c = 0; c < channels; ++c) {
      int64_t best = -1;
      for (int64_t iz = z.begin; iz < z.end; ++iz) {
        for (int64_t iy = y.begin; iy < y.end; ++iy) {
          for (int64_t ix = w.begin; ix < w.end; ++ix) {
            const int64_t e = pixel / out.pixels();
            const int64_t here = (((e * in.depth + iz) * in.height + iy) * in.width + ix) * channels + c;
            if (best < 0 || x[here] > x[best]) best = here;
          }
        }
      }
      largest.push_back(best);
    }
  }
  return largest;
}

}  // namespace

void Resample(int64_t examples, int64_t channels, const std::vector<ResampledAxis>& axes, double fill, In x, Out y) {
  std::fill(y.begin(), y.end(), 0.0);
  ForEachShare(
      examples, axes,
      [&](int64_t to, int64_t from, double weight) {
        for (int64_t c = 0; c < channels; ++c) y[to * channels + c] += weight * x[from * channels + c];
      },
      [&](int64_t to, double share) {
        for (int64_t c = 0; c < channels; ++c) y[to * channels + c] += share * fill;
      });
}

void ResampleBackward(int64_t examples, int64_t channels, const std::vector<ResampledAxis>& axes, In dy, Out dx) {
  ForEachShare(
      examples, axes,
      [&](int64_t to, int64_t from, double weight) {
        for (int64_t c = 0; c < channels; ++c) dx[from * channels + c] += weight * dy[to * channels + c];
      },
      [](int64_t, double) {});
}

void AdaptiveMaxPooling(const Geometry& g, In x, Out y) {
  const std::vector<int64_t> largest = ArgMaxOfAdaptive(g, x);
  for (size_t i = 0; i < y.size(); ++i) y[i] = x[largest[i]];
}

void AdaptiveMaxPoolingBackward(const Geometry& g, In x, In dy, Out dx) {
  const std::vector<int64_t> largest = ArgMaxOfAdaptive(g, x);
  for (size_t i = 0; i < dy.size(); ++i) dx[largest[i]] += dy[i];
}

}  // namespace cairn::reference
