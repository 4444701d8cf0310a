// Replay: a step of a synchronous job, computed again from the checkpoint before it (ReplayStep), or the first number
// of a job that is not finite (FindNotFinite). It needs the job's status, its data and a checkpoint, and no cluster.
//
// Free functions, blocking for as long as the steps take; any thread, one at a time in a process.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cairn/v1/job_status.pb.h"
#include "common/base/status.h"
#include "replay/not_finite.h"
#include "replay/replay_job.h"

namespace cairn {

struct ReplayOptions {
  ReplaySource source;
  int64_t step = 0;             // from 0
  std::string device = "auto";  // the kind that the job ran on; else as cairn-worker --device
  // Called before each step; may be null. False: the replay ends with CANCELLED.
  std::function<bool(int64_t step)> go_on;
};

// Euclidean norms over the layer's variables.
struct LayerNorms {
  std::string layer;
  double weights = 0;   // after the step
  double gradient = 0;  // of the mean loss, of what is trained; before clipping, without penalties
  double update = 0;    // what the step changed
};

// Where a replay begins, and on what.
struct ReplayOrigin {
  std::string from;                  // a checkpoint's path, or what the initial values are
  int64_t first_step = 0;            // computed
  std::vector<std::string> skipped;  // newer checkpoints that could not be used, and why
  std::string device;                // "cpu: Intel Xeon ... (AVX-512)"
};

struct ReplayResult {
  ReplayOrigin origin;
  int64_t step = 0;
  v1::MetricSums sums;  // over the step's examples
  double learning_rate = 0;
  double loss_scale = 0;  // 0: the job has none
  std::vector<LayerNorms> layers;
  std::string digest;  // after the step
  // The comparison: after the step, or after the next step of which there is a digest.
  struct Check {
    int64_t updates = 0;
    std::string digest;  // as computed here
    RecordedDigest recorded;
    bool same() const { return digest == recorded.digest; }
  };
  std::optional<Check> check;  // nullopt: none is recorded
};

// Errors: those of CheckReplayable and FindReplayStart; INVALID_ARGUMENT, the data is not the job's; CANCELLED.
absl::StatusOr<ReplayResult> ReplayStep(const v1::JobStatus& job, const ReplayOptions& options);

struct FindResult {
  ReplayOrigin origin;
  int64_t last_step = 0;           // that was computed
  std::optional<NotFinite> found;  // nullopt: everything was finite
};

// Computes steps from the newest checkpoint with finite weights on, up to options.step. A job that has noticed such a
// number (not_finite_step) is computed from a checkpoint before that epoch. Errors: as ReplayStep.
absl::StatusOr<FindResult> FindNotFinite(const v1::JobStatus& job, const ReplayOptions& options);

}  // namespace cairn
