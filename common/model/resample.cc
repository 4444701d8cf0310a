#include "common/model/resample.h"

#include <algorithm>
#include <cmath>

namespace cairn {
namespace {

using Interpolation = v1::Resizing;

using Box = ResampledBox;

// The centred part of an axis of `size` positions that has the output's aspect ratio. other: the other axis; target,
// other_target: those of the output (keras.src.utils.image_utils.smart_resize).
Box CropToAspect(int64_t size, int64_t other, int64_t target, int64_t other_target) {
  const int64_t cropped = std::max<int64_t>(std::min(size, other * target / other_target), 1);
  return {(size - cropped) / 2, cropped};
}

// Pads both ends equally to reach the output's aspect ratio, rounded down.
Box PadToAspect(int64_t size, int64_t other, int64_t target, int64_t other_target) {
  const int64_t pad = (std::max(size, other * target / other_target) - size) / 2;
  return {-pad, size + 2 * pad};
}

double Lanczos(double x, double radius) {
  if (x < 1e-3) return 1;
  return radius * std::sin(M_PI * x) * std::sin(M_PI * x / radius) / (M_PI * M_PI * x * x);
}

double RadiusOf(Interpolation::Interpolation kind) {
  switch (kind) {
    case Interpolation::BICUBIC: return 2;
    case Interpolation::LANCZOS3: return 3;
    case Interpolation::LANCZOS5: return 5;
    default: return 1;
  }
}

// The weight of a number at distance x from the requested position. BICUBIC: Keys 1981 with a = -1/2.
double WeightAt(Interpolation::Interpolation kind, double x) {
  const double radius = RadiusOf(kind);
  if (x >= radius) return 0;
  switch (kind) {
    case Interpolation::BICUBIC: return x <= 1 ? ((1.5 * x - 2.5) * x) * x + 1 : ((-0.5 * x + 2.5) * x - 4) * x + 2;
    case Interpolation::LANCZOS3:
    case Interpolation::LANCZOS5: return Lanczos(x, radius);
    default: return 1 - x;
  }
}

// The weights for position `o` of an axis resized from the box to `out` positions, with half-pixel centers. At the ends
// of the box the remaining weights are scaled to a sum of 1 (tf.image.resize without antialias).
ResampledPlace PlaceOf(Interpolation::Interpolation kind, const Box& box, int64_t o, int64_t out) {
  if (kind == Interpolation::NEAREST) return {box.begin + (2 * o + 1) * box.size / (2 * out), {1}, 0};
  const double at = (static_cast<double>(o) + 0.5) * static_cast<double>(box.size) / static_cast<double>(out);
  const double radius = RadiusOf(kind);
  const int64_t begin = std::max<int64_t>(0, static_cast<int64_t>(std::ceil(at - radius - 0.5))),
                end = std::min(box.size - 1, static_cast<int64_t>(std::floor(at + radius - 0.5)));
  ResampledPlace place{box.begin + begin, {}, 0};
  double sum = 0;
  for (int64_t i = begin; i <= end; ++i) {
    place.weights.push_back(WeightAt(kind, std::abs(static_cast<double>(i) + 0.5 - at)));
    sum += place.weights.back();
  }
  for (double& weight : place.weights) weight /= sum;
  return place;
}

// Positions outside the input become a share of the padding; weights of 0 at the ends are dropped.
ResampledPlace WithinInput(ResampledPlace place, int64_t in) {
  while (!place.weights.empty() && (place.first < 0 || place.weights.front() == 0)) {
    place.outside += place.weights.front();
    place.weights.erase(place.weights.begin());
    ++place.first;
  }
  while (!place.weights.empty() &&
         (place.first + static_cast<int64_t>(place.weights.size()) > in || place.weights.back() == 0)) {
    place.outside += place.weights.back();
    place.weights.pop_back();
  }
  if (place.weights.empty()) place.first = 0;
  return place;
}

}  // namespace

ResampledBox ResampledBoxOf(const Node& node, const Shape& input, int axis) {
  const int64_t size = input[axis], other = input[1 - axis], target = node.output[axis],
                other_target = node.output[1 - axis];
  if (node.kind == LayerKind::kCenterCrop) {
    if (size >= target && other >= other_target) return {(size - target) / 2, target};
    return CropToAspect(size, other, target, other_target);
  }
  if (node.layer.resizing().crop_to_aspect_ratio()) return CropToAspect(size, other, target, other_target);
  if (node.layer.resizing().pad_to_aspect_ratio()) return PadToAspect(size, other, target, other_target);
  return {0, size};
}

bool ResampledAxis::identity() const {
  if (static_cast<int64_t>(places.size()) != in) return false;
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].first != static_cast<int64_t>(i) || places[i].weights != std::vector<double>{1}) return false;
  }
  return true;
}

AdaptiveWindow AdaptiveWindowOf(int64_t i, int64_t in, int64_t out) {
  return {i * in / out, ((i + 1) * in + out - 1) / out};
}

std::vector<ResampledAxis> ResampledAxesOf(const Node& node, const Shape& input) {
  std::vector<ResampledAxis> axes;
  for (size_t axis = 0; axis + 1 < input.size(); ++axis) {
    ResampledAxis& a = axes.emplace_back();
    a.in = input[axis];
    const int64_t out = node.output[axis];
    for (int64_t o = 0; o < out; ++o) {
      switch (node.kind) {
        case LayerKind::kResizing:
        case LayerKind::kCenterCrop: {
          const auto kind =
              node.kind == LayerKind::kCenterCrop ? Interpolation::BILINEAR : node.layer.resizing().interpolation();
          const Box box = ResampledBoxOf(node, input, static_cast<int>(axis));
          a.places.push_back(WithinInput(PlaceOf(kind, box, o, out), a.in));
          break;
        }
        default: {
          const AdaptiveWindow w = AdaptiveWindowOf(o, a.in, out);
          const size_t count = static_cast<size_t>(w.end - w.begin);
          a.places.push_back({w.begin, std::vector<double>(count, 1.0 / static_cast<double>(count)), 0});
        }
      }
    }
  }
  return axes;
}

float FillOf(const Node& node) {
  return node.kind == LayerKind::kResizing && node.layer.resizing().pad_to_aspect_ratio()
             ? node.layer.resizing().fill_value()
             : 0;
}

}  // namespace cairn
