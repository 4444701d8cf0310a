// The circle loss (Sun et al. 2020), as keras.losses.Circle: it draws embeddings of one class together, and those of
// different classes apart. It is of the pairs of a batch: a replica's.
//
// A pure function; any thread. Sums run in float64 in a fixed order.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/backend/batch_formulas.h"

namespace cairn {

// x: embeddings of length 1, [examples, size]. classes, weights: one of each example; no weights: all 1. gradient: that
// of the returned sum, of the same size as x, or empty.
//
// With d the distances 1 - x x^T, not below 0, the loss of an example is
//   log(1 + e^(p + n)),  p = log of the sum over its class of e^(gamma (d + margin) (d - margin)),
//                        n = log of the sum over the others of e^(gamma max(1 + margin - d, 0) (1 - margin - d))
// and 0 if one of the two has no pairs. As Keras masks examples of loss 0, the others stand for all: the sum is
// multiplied by examples / (those with a loss that is not 0 as float32).
template <typename Real>
double CircleLoss(const CircleSettings& settings, int64_t examples, absl::Span<const Real> x,
                  absl::Span<const float> classes, absl::Span<const float> weights, absl::Span<Real> gradient);

}  // namespace cairn
