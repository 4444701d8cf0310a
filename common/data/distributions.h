// Random numbers of the normal, the gamma and the beta distribution for augmentation.
//
// They draw from AugmentDraws; every processor computes the same bits (common/data/elementary.h).
#pragma once

#include "common/data/augment.h"

namespace cairn {

// Of mean 0 and deviation 1: the Box-Muller transform (1958).
float DrawNormal(AugmentDraws& draws);
// The logarithm of a gamma-distributed number of shape alpha > 0 and scale 1 (Marsaglia and Tsang 2000). A logarithm,
// since numbers of a small alpha underflow.
double DrawLogGamma(AugmentDraws& draws, double alpha);
// Of Beta(alpha, alpha), alpha > 0.
float DrawBeta(AugmentDraws& draws, double alpha);

}  // namespace cairn
