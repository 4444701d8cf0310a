// The space of a sweep: which values the fields of a job take, and the trials of a grid or at random.
//
//   grid  := path '=' value (',' value)*      commas within [ ], { } and " " do not separate; "\," is a comma
//   range := path '=' low ':' high [':log']   low <= high; with log both are above 0
//
// Paths and values are those of `--set` (client/cli/set_field.h). Pure functions; any thread. The trials are a function
// of the space alone: the same for the same flags and seed, on any machine.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cairn/v1/job.pb.h"
#include "common/base/status.h"

namespace cairn {

struct GridAxis {
  std::string path;
  std::vector<std::string> values;
};
struct RangeAxis {
  std::string path;
  double low = 0, high = 0;  // both included
  bool log = false;          // uniform in the logarithm
  bool whole = false;        // whole numbers: told from the field
};
struct SweepSpace {
  std::vector<GridAxis> grid;
  std::vector<RangeAxis> ranges;
  int random = 0;  // so many trials at random; 0: every combination of the grid
  uint64_t seed = 0;
};

// Path and value of each swept field, in the order in which they are set.
using Assignment = std::vector<std::pair<std::string, std::string>>;

// Errors: INVALID_ARGUMENT names the flag and what to write.
absl::StatusOr<GridAxis> ParseGrid(const std::string& text);
// spec: the job, which tells whether the field takes whole numbers.
absl::StatusOr<RangeAxis> ParseRange(const std::string& text, const v1::JobSpec& spec);

// At most kSweepTrialsMax trials, no two alike. The first axis of a grid varies slowest. Errors: INVALID_ARGUMENT:
// a field named twice, too many trials, ranges without `random`, fewer different trials than `random`.
absl::StatusOr<std::vector<Assignment>> MakeTrials(const SweepSpace& space);

// "learning_rate=0.1 batch_size=32": the last names of the paths, or whole paths where those are not unique.
std::string AssignmentText(const Assignment& assignment);
std::vector<std::string> ShortNames(const Assignment& assignment);

}  // namespace cairn
