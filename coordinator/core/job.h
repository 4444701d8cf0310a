// Job: everything that the coordinator knows of one job. The part that must survive a restart is what ToStored has; the
// rest is learned again from the nodes.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "cairn/v1/job_status.pb.h"
#include "cairn/v1/storage.pb.h"
#include "common/base/ids.h"
#include "common/model/job_check.h"
#include "common/model/state_text.h"
#include "coordinator/core/job_progress.h"
#include "coordinator/core/ps_links.h"
#include "coordinator/core/stragglers.h"

namespace cairn {

inline constexpr size_t kErrorTextMax = 4000;  // bytes of what a node says of a failure
inline constexpr int kNotesKept = 100;
inline constexpr int kEventsKept = 100;
// A job that has done all its steps waits so long for its files.
inline constexpr absl::Duration kEndTimeout = absl::Seconds(60);

struct Job {
  v1::JobStatus status;
  absl::Time reason_since;  // of status.reason
  bool reason_logged = false;
  std::string request_key;
  uint64_t assignment = 0;  // of replicas to workers; raised with every change

  // QUEUED. Needed to check the data and to cut the parameter space.
  std::shared_ptr<const CheckedJob> checked;
  bool inspecting = false;  // a worker is looking at the data
  absl::Time inspect_after = absl::InfinitePast();

  // STARTING, RUNNING, FINALIZING.
  std::optional<JobProgress> progress;
  bool awaiting_ready = false;        // HostPartitions of this generation is not answered by every ps yet
  std::vector<bool> ready;            // by partition, in this generation
  std::vector<uint64_t> version;      // by partition: the highest that its ps has named
  std::vector<v1::HeldPartition> at;  // by partition, with `ready`: what its primary said

  // Of its copies (copies.h), in every state once there are partitions.
  struct Returned {
    absl::Time since;
    std::optional<v1::HeldPartition> held;  // none: its disk does not have it
  };
  // Copies whose process was started anew and that were given no role since: what their disk holds.
  std::map<std::pair<uint32_t, NodeName>, Returned> returned;
  // Ps whose process was started anew and has not answered a HostPartitions of the present generation: what it names in
  // Hello is its disk's.
  std::set<NodeName> untold;
  std::set<std::pair<uint32_t, NodeName>> caught_up;       // backups, as reported in this generation, not stored yet
  std::map<std::pair<uint32_t, NodeName>, LinkLoss> lost;  // backups over to which their primary gets nothing, likewise
  std::map<uint32_t, NodeName> moves;                      // partitions whose primary is to be elsewhere, for balance
  std::map<uint32_t, std::pair<NodeName, NodeName>> shifts;  // backups that are to be elsewhere, likewise: from, to
  bool repair_due = true;                                    // something changed since they were looked at
  // What its copies lacked when they were looked at last (copy_watch.h).
  struct Lack {
    int partitions = 0;              // with fewer backups in sync than the job asks for
    int mendable = 0;                // with fewer than there can be, while their primary serves
    std::map<NodeName, int> behind;  // by ps: partitions that it is to hold and has not in full, or not loaded
  };
  Lack lack;
  absl::Time lacking_since = absl::InfiniteFuture();
  // Of an ended job, until its turn (TendEnded): ps came or went; ps have to be told of their part anew, by a new
  // generation.
  bool settle_due = false, renew_due = false;
  absl::Time balance_at = absl::InfinitePast();
  // Stored: see StoredJob.
  uint64_t rollback_generation = 0;
  uint64_t rollback_to = 0;
  bool rolling_back = false;
  bool recovered = false;

  StragglerWatch stragglers;  // of its workers
  absl::Time stragglers_at = absl::InfinitePast(),
             relieve_at = absl::InfinitePast();  // not looked at, not relieved before

  // Nodes that cannot work for it.
  struct LeftOut {
    uint64_t incarnation = 0;  // a restart may have mended it
    std::string why;
  };
  std::map<NodeName, LeftOut> left_out;
  // Of its workers: how often their process ended at the present step (crash_loops.h).
  struct Ends {
    int64_t step = 0;
    int times = 0;
    bool gone = false;  // not back since the last time
  };
  std::map<NodeName, Ends> ends;

  // STARTING with partitions to be filled (checkpoints.h).
  std::vector<std::string> restore_from;  // stored: checkpoints, tried in turn; empty: nothing to fill, or done
  NodeName restore_worker;                // that was asked; empty: none
  uint64_t restore_request = 0;
  absl::Time restore_until = absl::InfinitePast();
  absl::Time restore_not_before = absl::InfinitePast();
  int restore_attempts = 0;
  uint64_t restored_in = 0;  // the generation in which all partitions are filled
  // Of its checkpoints, by step: how often an evaluator could not evaluate one (evaluators.cc).
  std::map<int64_t, int> evaluator_failures;

  // Of callbacks (epochs.h). Stored: see StoredJob.
  google::protobuf::RepeatedPtrField<v1::StoredCallback> callbacks;
  std::vector<float> learning_rates;
  bool stopped_early = false;
  int32_t summaries_written = 0;
  std::vector<v1::SaveModel> saves;
  std::vector<NodeName> former_chiefs;  // the newest; they may still have to say that they wrote a checkpoint
  int32_t files_missing = 0;            // that it asked for and that were given up
  std::string file_missing;             // the first of them, and why
  bool restores_best = false, has_best = false;
  // Not stored.
  struct Asked {
    NodeName worker;  // empty: nobody
    absl::Time until = absl::InfinitePast();
    absl::Time not_before = absl::InfinitePast();  // not asked again before
  };
  Asked save_asked, summaries_asked, best_asked;
  int64_t best_asked_step = 0;  // of the last MarkBest
  double best_asked_monitored = 0;
  bool best_given_up = false;   // its weights could not be read: they are not tried again
  int saves_of_epoch = -1;      // whose model files were asked for last
  int save_failures = 0;        // of the first of `saves`
  std::string save_error;       // the last of these
  std::string summaries_error;  // the last one of a worker that could not write them
  absl::Time checkpoint_wanted_since = absl::InfiniteFuture();  // that an epoch's decision waits for
  absl::Time checkpoint_heard = absl::InfinitePast();           // the chief's last word of one, since the last decision
  int64_t checkpoint_failed_step = -1;                          // that could not be written, of the epoch to be decided
  absl::Time saves_waited_since = absl::InfiniteFuture();       // by the next epoch (SavesHoldUp)
  absl::Time late_chief_since =
      absl::InfiniteFuture();  // its chief has that role since then, after all its steps, and said of no checkpoint yet
  absl::Time files_until = absl::InfiniteFuture();        // all steps are done: its files are waited for
  int64_t validations_sent = 0, validations_written = 0;  // for TensorBoard, up to these steps
  std::vector<v1::StepValidation> step_figures;           // for TensorBoard, not written yet
  size_t step_figures_sent = 0;                           // the first so many of them, to whom was asked
  int64_t step_figures_until = 0;
  absl::Time step_figures_at = absl::InfinitePast();

  // FINALIZING. Stored: see StoredJob.
  std::vector<uint64_t> final_versions;
  // Not stored.
  NodeName finalize_worker;                       // that was asked; empty: none
  absl::Time finalize_at = absl::InfinitePast();  // with a worker: its deadline; without: not before
  int finalize_attempts = 0;

  uint64_t id() const { return status.job_id(); }
  v1::JobState state() const { return status.state(); }
  bool queued() const { return state() == v1::QUEUED; }
  bool starting() const { return state() == v1::STARTING; }
  bool running() const { return state() == v1::RUNNING; }
  bool finalizing() const { return state() == v1::FINALIZING; }
  bool active() const { return starting() || running() || finalizing(); }
  bool finished() const { return IsFinal(state()); }
  bool unfinished() const { return !finished(); }
  bool has_weights() const { return ran() && status.partitions_size() > 0; }
  // Its partitions may hold updates: from now on they exist nowhere else.
  bool ran() const { return status.started_unix_ms() != 0 && restore_from.empty(); }
  bool has_data() const { return status.has_data(); }
  bool mirrored() const { return status.spec().strategy() == v1::MIRRORED; }
  bool synchronous() const;

  std::vector<NodeName> owners() const;  // of the replicas, by replica
  std::vector<int32_t> ReplicasOf(const NodeName& worker) const;
  bool UsesPs(const NodeName& ps) const;
  int PartitionsOn(const NodeName& ps) const;  // as primary or backup
  int PrimariesOn(const NodeName& ps) const;
  bool HasBackups() const;
  std::vector<NodeName> ps() const;         // that hold its partitions, as primary or backup, each once
  std::vector<NodeName> primaries() const;  // each once

  v1::StoredJob ToStored() const;
};

// As the coordinator that starts anew knows it: the inverse of ToStored. `checked` is the caller's to fill in.
Job LoadJob(const v1::StoredJob& stored, absl::Time now);

// For the user: what a callback did, or could not do. The newest kNotesKept are kept.
void AddNote(Job& job, v1::CallbackNote note);
void AddNote(Job& job, int epoch, const char* callback, std::string text);
// Something that the job asked for is given up, such as a file: it does not end in plain success.
void NoteShortfall(Job& job, int epoch, const char* callback, const std::string& text);
// Its chief is to be another one.
void NoteFormerChief(Job& job);
std::string SavedNote(const std::string& path);  // of a model file that is written

// For the user: what happened to the job. The newest kEventsKept are kept.
void AddEvent(Job& job, absl::Time now, bool warning, std::string_view text);

// The commands of a job as it stands. `anew`: the ps does not know of this generation yet.
v1::CoordinatorMessage MakeHostPartitions(const Job& job, const NodeName& ps, bool anew);
v1::CoordinatorMessage MakeAssignReplicas(const Job& job, const NodeName& worker);
v1::CoordinatorMessage MakeFinalize(const Job& job);
v1::CoordinatorMessage MakeDropJob(uint64_t job_id);
void FillRoutes(const Job& job, google::protobuf::RepeatedPtrField<v1::Route>* routes);

}  // namespace cairn
