// Layers that add noise in training: y = x * factor + offset, with random factors and offsets. Their tensor may be
// smaller than the input: it is repeated along its axes of size 1. The factor and the offset of a number:
//
//   Dropout, SpatialDropout   0 or 1 / (1 - rate); 0
//   AlphaDropout              a or 0; b or a * alpha' + b (Klambauer et al. 2017, section "New dropout technique")
//   GaussianNoise             1; stddev * z
//   GaussianDropout           1 + sqrt(rate / (1 - rate)) * z; 0
//
// The random bits of number i are those of DropoutMask (dropout.h). z: standard normal, by Box and Muller 1958, from
// two numbers of a block each. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "common/model/graph.h"
#include "worker/backend/backend.h"

namespace cairn {

enum class NoiseKind { kDropout, kAlphaDropout, kGaussianNoise, kGaussianDropout };

struct LayerNoise {
  NoiseKind kind = NoiseKind::kDropout;
  float rate = 0;  // kGaussianNoise: stddev
  uint64_t seed = 0;
  Shape shape;  // of the factors of one example: each axis has the size of the input's, or 1
};

// Whether layers of this kind only add noise: without it they return their input.
bool DrawsNoise(LayerKind kind);
// nullopt: the layer adds no noise, since its rate is 0.
std::optional<LayerNoise> NoiseOf(const Node& node);

// AlphaDropout's constants: a kept number is a * x + b, a dropped one a * kAlphaDropped + b.
inline constexpr double kAlphaDropped = -1.7580993408473766;  // -alpha * scale of SELU
struct AlphaFactors {
  double a = 1, b = 0;
};
AlphaFactors AlphaFactorsOf(double rate);

// Computes the factors of the numbers 0 .. size - 1 of [examples, shape]. offsets: as many, or empty if the kind has
// none.
bool HasOffsets(NoiseKind kind);
void FillNoise(const StepInfo& info, int node, const LayerNoise& noise, absl::Span<float> factors,
               absl::Span<float> offsets);

}  // namespace cairn
