// What the parts of the core keep of one job (component.h). Job holds one of each.
//
// Each struct is of the parts that its comment names. Another part changes in it only what its own decision makes void:
// a new generation clears what was said in the one before, a fall back what was learned beyond it. What is marked
// "stored" survives a restart of the coordinator (StoredJob); the rest is learned again from the nodes, or begins anew.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "cairn/v1/job_status.pb.h"
#include "cairn/v1/storage.pb.h"
#include "common/base/ids.h"
#include "common/model/job_check.h"
#include "coordinator/core/ps_links.h"
#include "coordinator/core/stragglers.h"

namespace cairn {

// A worker that was asked for something.
struct Asked {
  NodeName worker;  // empty: nobody
  absl::Time until = absl::InfinitePast();
  absl::Time not_before = absl::InfinitePast();  // not asked again before
};

// Reasons: JobStatus.reason.
struct JobReason {
  absl::Time since;
  bool logged = false;
};

// Submissions, Schedule: QUEUED.
struct JobQueueing {
  std::string request_key;  // stored
  // Needed to check the data and to cut the parameter space.
  std::shared_ptr<const CheckedJob> checked;
  bool inspecting = false;  // a worker is looking at the data
  absl::Time inspect_after = absl::InfinitePast();
};

// Hosting, Rollback: what each ps was told, and has answered, of the present generation.
struct JobHosting {
  bool awaiting_ready = false;          // HostPartitions of this generation is not answered by every ps yet
  std::vector<bool> ready;              // by partition, in this generation
  std::vector<uint64_t> versions;       // by partition: the highest that its ps has named
  std::vector<v1::HeldPartition> held;  // by partition, with `ready`: what its primary said
  // Ps whose process was started anew and has not answered a HostPartitions of the present generation: what it names in
  // Hello is its disk's.
  std::set<NodeName> untold;
  // Stored: see StoredJob.
  uint64_t rollback_generation = 0;
  uint64_t rollback_to = 0;
  bool rolling_back = false;
  bool recovered = false;
};

// Copies: in every state once there are partitions.
struct JobCopies {
  struct Returned {
    absl::Time since;
    std::optional<v1::HeldPartition> held;  // none: its disk does not have it
  };
  // Copies whose process was started anew and that were given no role since: what their disk holds.
  std::map<std::pair<uint32_t, NodeName>, Returned> returned;
  std::set<std::pair<uint32_t, NodeName>> caught_up;       // backups, as reported in this generation, not stored yet
  std::map<std::pair<uint32_t, NodeName>, LinkLoss> lost;  // backups over to which their primary gets nothing, likewise
  std::map<uint32_t, NodeName> moves;                      // partitions whose primary is to be elsewhere, for balance
  std::map<uint32_t, std::pair<NodeName, NodeName>> shifts;  // backups that are to be elsewhere, likewise: from, to
  bool repair_due = true;                                    // something changed since they were looked at
  // Of an ended job, until its turn (TendEnded): ps came or went; ps have to be told of their part anew, by a new
  // generation.
  bool settle_due = false, renew_due = false;
  absl::Time balance_at = absl::InfinitePast();
};

// CopyWatch: what its copies lacked when they were looked at last.
struct JobCopyWatch {
  struct Lack {
    int partitions = 0;              // with fewer backups in sync than the job asks for
    int mendable = 0;                // with fewer than there can be, while their primary serves
    std::map<NodeName, int> behind;  // by ps: partitions that it is to hold and has not in full, or not loaded
  };
  Lack lack;
  absl::Time lacking_since = absl::InfiniteFuture();
};

// Assignments, CrashLoops, Candidates: its workers.
struct JobWorkers {
  StragglerWatch stragglers;
  absl::Time stragglers_at = absl::InfinitePast();  // when they were looked at
  absl::Time relieve_at = absl::InfinitePast();     // not relieved before
  // Nodes that cannot work for it; stored.
  struct LeftOut {
    uint64_t incarnation = 0;  // a restart may have mended it
    std::string why;
  };
  std::map<NodeName, LeftOut> left_out;
  // How often a worker's process ended at the present step.
  struct Ends {
    int64_t step = 0;
    int times = 0;
    bool gone = false;  // not back since the last time
  };
  std::map<NodeName, Ends> ends;  // stored
};

// Restores: STARTING with partitions to be filled.
struct JobRestoring {
  std::vector<std::string> from;  // stored: checkpoints, tried in turn; empty: nothing to fill, or done
  NodeName worker;                // that was asked; empty: none
  uint64_t request = 0;
  absl::Time until = absl::InfinitePast();
  absl::Time not_before = absl::InfinitePast();
  int attempts = 0;
  uint64_t filled_in = 0;  // the generation in which all partitions are filled
};

// Checkpoints: what the chief was asked, and said.
struct JobCheckpoints {
  std::vector<NodeName> former_chiefs;        // stored; the newest: they may still say that they wrote one
  std::map<int64_t, int> evaluator_failures;  // by step: how often an evaluator could not evaluate one (Evaluations)
  Asked best_asked;
  int64_t best_asked_step = 0;  // of the last MarkBest
  double best_asked_monitored = 0;
  absl::Time wanted_since = absl::InfiniteFuture();  // that an epoch's decision waits for
  absl::Time heard = absl::InfinitePast();           // the chief's last word of one, since the last decision
  int64_t failed_step = -1;                          // that could not be written, of the epoch to be decided
  // Its chief has that role since then, after all its steps, and said of no checkpoint yet.
  absl::Time late_chief_since = absl::InfiniteFuture();
};

// Epochs: what callbacks decided. Stored but for the last.
struct JobDecisions {
  google::protobuf::RepeatedPtrField<v1::StoredCallback> callbacks;
  std::vector<float> learning_rates;
  bool stopped_early = false;
  bool restores_best = false, has_best = false;
  bool best_given_up = false;  // its weights could not be read: they are not tried again
};

// ModelFiles: the files of model_checkpoint.
struct JobFiles {
  std::vector<v1::SaveModel> saves;  // stored, as are the next two
  int32_t missing = 0;               // that it asked for and that were given up
  std::string first_missing;         // and why
  Asked asked;
  int of_epoch = -1;                                 // whose model files were asked for last
  int failures = 0;                                  // of the first of `saves`
  std::string error;                                 // the last of these
  absl::Time waited_since = absl::InfiniteFuture();  // by the next epoch (SavesHoldUp)
  absl::Time until = absl::InfiniteFuture();         // all steps are done: its files are waited for
};

// ModelFiles: TensorBoard and csv_logger.
struct JobSummaries {
  int32_t written = 0;  // epochs; stored
  Asked asked;
  std::string error;                                      // the last one of a worker that could not write them
  int64_t validations_sent = 0, validations_written = 0;  // up to these steps
  std::vector<v1::StepValidation> step_figures;           // not written yet
  size_t step_figures_sent = 0;                           // the first so many of them, to whom was asked
  int64_t step_figures_until = 0;
  absl::Time step_figures_at = absl::InfinitePast();
};

// JobRuns: FINALIZING.
struct JobEnd {
  std::vector<uint64_t> versions;        // stored
  NodeName worker;                       // that was asked for the digest; empty: none
  absl::Time at = absl::InfinitePast();  // with a worker: its deadline; without: not before
  int attempts = 0;
};

}  // namespace cairn
