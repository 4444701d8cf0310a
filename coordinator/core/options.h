// Options of the coordinator's core.
#pragma once

#include "absl/time/time.h"
#include "common/base/status.h"
#include "coordinator/core/retention.h"

namespace cairn {

struct CoordinatorOptions {
  // Nodes send a heartbeat this often. 10 ms .. 60 s. Shorter: figures are fresher, more messages.
  absl::Duration heartbeat_interval = absl::Milliseconds(500);
  // A node with an open session is dead after this long without a message. At least 3 heartbeats, at most 10 min.
  // Shorter: losses are noticed sooner, but a busy machine is more often taken for dead.
  absl::Duration lease = absl::Seconds(3);
  // A node whose session broke is dead if it does not open it again within this time. At most the lease.
  absl::Duration reopen_grace = absl::Milliseconds(500);
  // After the coordinator's own start: the nodes that it knew are taken for alive this long. At least reopen_grace.
  absl::Duration start_grace = absl::Seconds(5);
  // A partition whose copies all lost their memory, in a job that does not log before the reply: after the first of
  // them is back the others are waited for this long, since one may have kept more.
  absl::Duration copies_grace = absl::Seconds(5);
  // Waiting for a worker's answer; then another worker is asked.
  absl::Duration inspect_timeout = absl::Seconds(30);
  absl::Duration finalize_timeout = absl::Seconds(60);
  // Workers asked in turn before giving up: InspectData and a shard of Evaluate, Finalize.
  int attempts_max = 3;
  int finalize_attempts_max = 5;
  // Reports that come late are waited for this long before an epoch's figures are closed without them.
  absl::Duration report_grace = absl::Seconds(2);
  // Dead nodes are listed this long, and at most so many of them.
  absl::Duration dead_nodes_kept_for = absl::Hours(1);
  int dead_nodes_kept_max = 256;
  // Evaluations at the same time, and shards of one.
  int evaluations_max = 64;
  int evaluate_shards_max = 256;
  // How long jobs that have ended are kept.
  Retention retention;

  // INVALID_ARGUMENT names the option.
  absl::Status Validate() const;
};

}  // namespace cairn
