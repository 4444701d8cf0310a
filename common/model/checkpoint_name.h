// Names of a job's checkpoints in checkpoints.dir. The code that writes, removes and looks up checkpoints shares this
// rule.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "cairn/v1/job.pb.h"

namespace cairn {

inline constexpr char kStepPrefix[] = "step-";
inline constexpr char kBestCheckpoint[] = "best";

inline std::string CheckpointName(int64_t step) { return absl::StrCat(kStepPrefix, step); }

// "/run/step-12", or "/run/best" if `best` is true.
inline std::string CheckpointPath(const v1::JobSpec& spec, int64_t step, bool best = false) {
  return absl::StrCat(spec.checkpoints().dir(), "/", best ? kBestCheckpoint : CheckpointName(step));
}

}  // namespace cairn
