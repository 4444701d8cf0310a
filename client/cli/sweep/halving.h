// Successive halving (Jamieson and Talwalkar 2016, "Non-stochastic best arm identification and hyperparameter
// optimization", algorithm 1): all trials train to the first rung, the best 1/factor of them to the next one, and so
// on; the last ones train to the end.
//
// Pure functions; any thread. The choice is a function of the figures alone: the same for the same figures, whatever
// was ready first.
#pragma once

#include <optional>
#include <vector>

#include "common/base/status.h"

namespace cairn {

struct HalvingOptions {
  bool on = false;
  int factor = 3;      // 2 or more: of so many trials one goes on
  int min_epochs = 1;  // the first rung
};

// Epochs at which trials are compared: min_epochs, min_epochs * factor, ... below `epochs`. Errors: INVALID_ARGUMENT:
// there is none.
absl::StatusOr<std::vector<int>> Rungs(const HalvingOptions& options, int epochs);

struct Standing {
  int trial = 0;
  // The figure at the rung; nullopt: the trial has none, or is out (failed or cancelled).
  std::optional<double> score;
};

// Whether a is better than b: a number beats none and NaN; equal ones: the smaller trial number.
bool IsBetter(const Standing& a, const Standing& b, bool more_is_better);

// The trials that go on, best first: floor(n / factor) of the n, at least one; those without a figure never do.
std::vector<int> Survivors(std::vector<Standing> standings, int factor, bool more_is_better);

}  // namespace cairn
