#include "client/cli/sweep/halving.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace cairn {

absl::StatusOr<std::vector<int>> Rungs(const HalvingOptions& options, int epochs) {
  if (options.factor < 2) return absl::InvalidArgumentError("--halving-factor: is below 2; use 2, 3 or 4");
  if (options.min_epochs < 1) return absl::InvalidArgumentError("--min-epochs: is below 1");
  std::vector<int> rungs;
  for (int64_t rung = options.min_epochs; rung < epochs; rung *= options.factor)
    rungs.push_back(static_cast<int>(rung));
  if (!rungs.empty()) return rungs;
  return absl::InvalidArgumentError(absl::StrCat("--halving: a trial has ", epochs,
                                                 " epochs, and is first compared after --min-epochs ",
                                                 options.min_epochs, "; give the job more epochs"));
}

bool IsBetter(const Standing& a, const Standing& b, bool more_is_better) {
  const bool a_counts = a.score && !std::isnan(*a.score), b_counts = b.score && !std::isnan(*b.score);
  if (a_counts != b_counts) return a_counts;
  if (a_counts && *a.score != *b.score) return more_is_better ? *a.score > *b.score : *a.score < *b.score;
  return a.trial < b.trial;
}

std::vector<int> Survivors(std::vector<Standing> standings, int factor, bool more_is_better) {
  const size_t most = std::max<size_t>(1, standings.size() / static_cast<size_t>(factor));
  std::erase_if(standings, [](const Standing& s) { return !s.score.has_value(); });
  std::sort(standings.begin(), standings.end(),
            [&](const Standing& a, const Standing& b) { return IsBetter(a, b, more_is_better); });
  if (standings.size() > most) standings.resize(most);
  std::vector<int> trials;
  for (const Standing& standing : standings) trials.push_back(standing.trial);
  return trials;
}

}  // namespace cairn
