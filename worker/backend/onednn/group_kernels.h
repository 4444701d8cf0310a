// Group normalization over [examples, positions, channels], channels last.
//
// Thread-safe. Sums are float64, in the order of the positions, each example on one thread, so that the bits depend
// neither on the vector width nor on the number of threads.
#pragma once

#include <cstdint>

namespace cairn::onednn {

struct GroupShape {
  int64_t examples = 0, positions = 0, channels = 0, groups = 0;  // groups divide channels
  float epsilon = 0;
};

int64_t GroupScratchBytes(const GroupShape& s);

// Per channel; null: 1 and 0.
struct GroupWeights {
  const float* gamma = nullptr;
  const float* beta = nullptr;
};
// Computes y and the statistics: the mean and 1 / sqrt(variance + epsilon) of each example and group.
void GroupForward(const GroupShape& s, const float* x, const GroupWeights& weights, double* scratch, float* statistics,
                  float* y);

// What GroupForward normalized, with the statistics that it computed.
struct GroupInput {
  const float* x = nullptr;
  const float* statistics = nullptr;
};
// Writes to scratch, for each example and channel, the sums over the positions of dy and of dy * normalized x. Their
// sums over the examples are the gradients of beta and gamma, either of which may be null.
void GroupBackwardSums(const GroupShape& s, const GroupInput& in, const float* dy, double* scratch, float* dgamma,
                       float* dbeta);
// Computes dx. scratch: as GroupBackwardSums left it. gamma may be null.
void GroupBackward(const GroupShape& s, const GroupInput& in, const float* gamma, const float* dy,
                   const double* scratch, float* dx);

}  // namespace cairn::onednn
