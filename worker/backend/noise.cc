#include "worker/backend/noise.h"

#include <cmath>
#include <numbers>

#include "common/base/random.h"
#include "worker/backend/dropout.h"

namespace cairn {
namespace {

template <typename Layer>
LayerNoise Of(NoiseKind kind, float rate, const Layer& layer, Shape shape) {
  return {kind, rate, layer.seed(), std::move(shape)};
}

// The shape of the noise: an axis that the layer sets to 1 shares one number.
template <typename Layer>
Shape NamedShape(const Node& node, const Layer& layer) {
  Shape shape = node.output;
  for (int i = 0; i < layer.noise_shape_size(); ++i) {
    if (layer.noise_shape(i) == 1) shape[static_cast<size_t>(i)] = 1;
  }
  return shape;
}

// The shape of noise with one number for each channel.
Shape ChannelShape(const Node& node) {
  Shape shape(node.output.size(), 1);
  shape.back() = node.output.back();
  return shape;
}

}  // namespace

bool DrawsNoise(LayerKind kind) {
  switch (kind) {
    case LayerKind::kDropout:
    case LayerKind::kSpatialDropout1D:
    case LayerKind::kSpatialDropout2D:
    case LayerKind::kSpatialDropout3D:
    case LayerKind::kAlphaDropout:
    case LayerKind::kGaussianNoise:
    case LayerKind::kGaussianDropout: return true;
    default: return false;
  }
}

std::optional<LayerNoise> NoiseOf(const Node& node) {
  const v1::Layer& l = node.layer;
  LayerNoise noise;
  switch (node.kind) {
    case LayerKind::kDropout:
      noise = Of(NoiseKind::kDropout, l.dropout().rate(), l.dropout(), NamedShape(node, l.dropout()));
      break;
    case LayerKind::kSpatialDropout1D:
      noise = Of(NoiseKind::kDropout, l.spatial_dropout1d().rate(), l.spatial_dropout1d(), ChannelShape(node));
      break;
    case LayerKind::kSpatialDropout2D:
      noise = Of(NoiseKind::kDropout, l.spatial_dropout2d().rate(), l.spatial_dropout2d(), ChannelShape(node));
      break;
    case LayerKind::kSpatialDropout3D:
      noise = Of(NoiseKind::kDropout, l.spatial_dropout3d().rate(), l.spatial_dropout3d(), ChannelShape(node));
      break;
    case LayerKind::kAlphaDropout:
      noise = Of(NoiseKind::kAlphaDropout, l.alpha_dropout().rate(), l.alpha_dropout(),
                 NamedShape(node, l.alpha_dropout()));
      break;
    case LayerKind::kGaussianNoise:
      noise = Of(NoiseKind::kGaussianNoise, l.gaussian_noise().stddev(), l.gaussian_noise(), node.output);
      break;
    case LayerKind::kGaussianDropout:
      noise = Of(NoiseKind::kGaussianDropout, l.gaussian_dropout().rate(), l.gaussian_dropout(), node.output);
      break;
    default: return std::nullopt;
  }
  if (noise.rate == 0) return std::nullopt;
  return noise;
}

AlphaFactors AlphaFactorsOf(double rate) {
  const double a = 1 / std::sqrt((1 - rate) * (1 + rate * kAlphaDropped * kAlphaDropped));
  return {a, -a * kAlphaDropped * rate};
}

bool HasOffsets(NoiseKind kind) { return kind == NoiseKind::kAlphaDropout || kind == NoiseKind::kGaussianNoise; }

void FillNoise(const StepInfo& info, int node, const LayerNoise& noise, absl::Span<float> factors,
               absl::Span<float> offsets) {
  const DropoutMask mask(info, node, noise.kind == NoiseKind::kGaussianNoise ? 0.0f : noise.rate, noise.seed);
  if (noise.kind == NoiseKind::kDropout) return mask.Fill(0, factors);
  const AlphaFactors alpha = AlphaFactorsOf(noise.rate);
  const double spread = std::sqrt(static_cast<double>(noise.rate) / (1 - noise.rate));
  for (size_t begin = 0; begin < factors.size(); begin += 4) {
    const std::array<uint32_t, 4> bits = mask.BitsAt(static_cast<int64_t>(begin / 4));
    for (size_t k = 0; k < 4 && begin + k < factors.size(); ++k) {
      if (noise.kind == NoiseKind::kAlphaDropout) {
        const bool kept = ToUniform(bits[k]) >= noise.rate;
        factors[begin + k] = kept ? static_cast<float>(alpha.a) : 0.0f;
        offsets[begin + k] = static_cast<float>(kept ? alpha.b : alpha.a * kAlphaDropped + alpha.b);
        continue;
      }
      const double radius = std::sqrt(-2 * std::log(1 - static_cast<double>(ToUniform(bits[k & ~size_t{1}]))));
      const double angle = 2 * std::numbers::pi * static_cast<double>(ToUniform(bits[k | 1]));
      const double z = radius * (k % 2 == 0 ? std::cos(angle) : std::sin(angle));
      if (noise.kind == NoiseKind::kGaussianNoise) {
        factors[begin + k] = 1;
        offsets[begin + k] = static_cast<float>(noise.rate * z);
      } else {
        factors[begin + k] = static_cast<float>(1 + spread * z);
      }
    }
  }
}

}  // namespace cairn
