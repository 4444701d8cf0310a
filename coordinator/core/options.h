// Options of the coordinator's core.
#pragma once

#include "absl/time/time.h"
#include "common/base/status.h"
#include "coordinator/core/limits.h"
#include "coordinator/core/retention.h"

namespace cairn {

struct CoordinatorOptions {
  // Nodes send a heartbeat this often. 10 ms .. 60 s. Shorter: fresher figures, but more messages.
  absl::Duration heartbeat_interval = absl::Milliseconds(500);
  // A node with an open session is dead after this long without a message. At least 3 heartbeats, at most 10 min.
  // Shorter: losses are noticed sooner, but a busy machine is more often declared dead.
  absl::Duration lease = absl::Seconds(3);
  // A node whose session broke is dead if it opens no new one within this time. At most the lease.
  absl::Duration reopen_grace = absl::Milliseconds(500);
  // After its own start, the coordinator treats the stored nodes as alive this long. At least reopen_grace.
  absl::Duration start_grace = absl::Seconds(5);
  // When all copies of a partition lost their memory, in a job that does not log before the reply: how long to wait for
  // the other copies after the first is back, since one of them may have a newer version on its disk.
  absl::Duration copies_grace = absl::Seconds(5);
  // How long to wait for a worker's answer before asking another worker.
  absl::Duration inspect_timeout = absl::Seconds(30);
  absl::Duration finalize_timeout = absl::Seconds(60);
  // Workers asked in turn before giving up: on InspectData, a shard of Evaluate or a restore; on Finalize.
  int attempts_max = 3;
  int finalize_attempts_max = 5;
  // How long to wait for late reports before an epoch's figures are closed without them.
  absl::Duration report_grace = absl::Seconds(2);
  // Dead nodes are listed this long, and at most `most` of them.
  struct DeadNodesKept {
    absl::Duration longest = absl::Hours(1);
    int most = 256;
  } dead_nodes_kept;
  // Concurrent evaluations, and shards of one evaluation.
  int evaluations_max = 64;
  int evaluate_shards_max = 256;
  // A larger model is refused. 1 .. kParametersMax.
  int64_t job_parameters_max = kJobParametersDefault;
  // How long jobs that have ended are kept.
  Retention retention;

  // INVALID_ARGUMENT names the option.
  absl::Status Validate() const;
};

}  // namespace cairn
