// What the losses of batches (batch_loss.h) are made of: sums of logarithms for CTC, pairs of embeddings for CIRCLE.
//
// Written once for all backends: plain C++ that nvcc compiles too. Pure functions, in float64.
#pragma once

#include <cmath>

#include "worker/backend/row_loss.h"

namespace cairn {

// log(e^a + e^b). -infinity is the logarithm of 0.
CAIRN_ROW_LOSS double AddLogs(double a, double b) {
  using std::exp;
  using std::log1p;
  const double most = a < b ? b : a, least = b < a ? b : a;
  return least == -INFINITY ? most : most + log1p(exp(least - most));
}

// The larger one; NaN if either is.
CAIRN_ROW_LOSS double LargerOrNan(double a, double b) { return a < b || b != b ? b : a; }

struct CircleSettings {
  double gamma = 80, margin = 0.4;
  bool remove_diagonal = true;  // an example is no pair with itself
};

// A number and its derivative.
struct Sloped {
  double value, slope;
};

// The score of a pair at a distance, and its derivative with respect to that. same: of one class.
CAIRN_ROW_LOSS Sloped CircleScore(const CircleSettings& s, bool same, double distance) {
  if (same) return {s.gamma * (distance + s.margin) * (distance - s.margin), s.gamma * 2 * distance};
  const double room = 1 + s.margin - distance, weight = room < 0 ? 0 : room, short_of = 1 - s.margin - distance;
  return {s.gamma * weight * short_of, weight > 0 ? -s.gamma * (weight + short_of) : 0};
}

// log(1 + e^z), the loss of an example, and its derivative.
CAIRN_ROW_LOSS Sloped CircleOf(double z) {
  using std::exp;
  using std::log1p;
  if (z >= 0) return {z + log1p(exp(-z)), 1 / (1 + exp(-z))};
  return {log1p(exp(z)), exp(z) / (1 + exp(z))};
}

}  // namespace cairn
