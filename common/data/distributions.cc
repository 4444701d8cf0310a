#include "common/data/distributions.h"

#include <algorithm>
#include <cmath>

#include "common/data/elementary.h"

namespace cairn {
namespace {

// Far below what a float tells from 0.
constexpr double kLogLeast = -700;

double Positive(AugmentDraws& draws) { return 1 - static_cast<double>(ToUniform(draws.Bits())); }  // in (0, 1]

}  // namespace

float DrawNormal(AugmentDraws& draws) {
  double sine, cosine;
  const double u = Positive(draws);
  SinCos(static_cast<double>(ToUniform(draws.Bits())), &sine, &cosine);
  return static_cast<float>(std::sqrt(-2 * ExactLog(u)) * cosine);
}

double DrawLogGamma(AugmentDraws& draws, double alpha) {
  // Below 1 by way of alpha + 1.
  const double boost = alpha < 1 ? ExactLog(Positive(draws)) / alpha : 0;
  const double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = DrawNormal(draws), root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (ExactLog(Positive(draws)) < 0.5 * x * x + d - d * v + d * ExactLog(v)) return ExactLog(d * v) + boost;
  }
}

float DrawBeta(AugmentDraws& draws, double alpha) {
  const double one = DrawLogGamma(draws, alpha), other = DrawLogGamma(draws, alpha);
  return static_cast<float>(1 / (1 + ExactExp(std::clamp(other - one, kLogLeast, -kLogLeast))));
}

}  // namespace cairn
