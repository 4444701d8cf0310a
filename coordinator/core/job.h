// Job: everything that the coordinator knows about one job: what users see (JobStatus) and what each part of the core
// keeps for itself (job_parts.h). ToStored holds what must survive a restart; the rest is learned again from the
// nodes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "cairn/v1/job_status.pb.h"
#include "cairn/v1/storage.pb.h"
#include "common/base/ids.h"
#include "common/model/job_check.h"
#include "common/model/state_text.h"
#include "coordinator/core/job_outputs.h"
#include "coordinator/core/job_partitions.h"
#include "coordinator/core/job_parts.h"
#include "coordinator/core/job_progress.h"
#include "coordinator/core/job_workers.h"

namespace cairn {

inline constexpr int kNotesKept = 100;
inline constexpr int kEventsKept = 100;
// How long a job that has done all its steps waits for its files.
inline constexpr absl::Duration kEndTimeout = absl::Seconds(60);

using PartitionsByPs = absl::flat_hash_map<NodeName, std::vector<int>>;

struct Job {
  v1::JobStatus status;                 // stored
  size_t spec_bytes = 0;                // the memory that its spec takes, about, as it was submitted or loaded
  uint64_t assignment = 0;              // of replicas to workers; raised with every change; stored
  std::optional<JobProgress> progress;  // STARTING, RUNNING, FINALIZING
  // What each part of the core keeps (job_parts.h).
  JobReason reason;
  JobQueueing queueing;
  JobPartitions partitions;
  JobWorkers workers;
  JobRestoring restoring;
  JobBest best;
  JobDecisions decisions;
  JobOutputs outputs;
  JobEnd end;

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
  // Its partitions may hold updates, which exist nowhere else.
  bool ran() const { return status.started_unix_ms() != 0 && restoring.from.empty(); }
  // Copies of a ps that is away are waited for. While the best epoch's weights are restored too: if their checkpoint
  // cannot be read, the job ends with what the partitions hold.
  bool keeps_updates() const { return ran() || best.restoring; }
  bool has_data() const { return status.has_data(); }
  bool mirrored() const { return status.spec().strategy() == v1::MIRRORED; }
  bool synchronous() const;

  std::vector<NodeName> owners() const;  // of the replicas, by replica
  std::vector<int32_t> ReplicasOf(const NodeName& worker) const;
  bool UsesPs(const NodeName& ps) const;
  int PartitionsOn(const NodeName& ps) const;  // as primary or backup
  int PrimariesOn(const NodeName& ps) const;
  std::vector<int> PartitionsHeldBy(const NodeName& ps) const;  // likewise, ascending
  PartitionsByPs partitions_by_ps() const;                      // the same for all of them
  bool HasBackups() const;
  std::vector<NodeName> ps() const;         // that hold its partitions, as primary or backup, each once
  std::vector<NodeName> primaries() const;  // each once

  v1::StoredJob ToStored() const;
};

// The inverse of ToStored, for a restarted coordinator. The caller fills in `checked`.
Job LoadJob(const v1::StoredJob& stored, absl::Time now);

// For the user: what a callback did, or could not do. The newest kNotesKept are kept.
void AddNote(Job& job, v1::CallbackNote note);
void AddNote(Job& job, int epoch, const char* callback, std::string text);
// The job gives up something that it asked for, such as a file: it will end as ENDED_WITH_ERRORS.
void NoteShortfall(Job& job, int epoch, const char* callback, const std::string& text);
// The job is about to get another chief.
void NoteFormerChief(Job& job);
// The job does not wait for checkpoints that the new chief reported, while it was not the chief, as unwritable.
void TakeUnwritten(Job& job, const NodeName& chief);
std::string SavedNote(const std::string& path);  // for a model file that was written

// For the user: what happened to the job. The newest kEventsKept are kept.
void AddEvent(Job& job, absl::Time now, bool warning, std::string_view text);

// The commands of a job in its present state. `anew`: the ps does not know of this generation yet.
// partitions: those that the ps holds (Job::PartitionsHeldBy).
v1::CoordinatorMessage MakeHostPartitions(const Job& job, const NodeName& ps, const std::vector<int>& partitions,
                                          bool anew);
v1::CoordinatorMessage MakeAssignReplicas(const Job& job, const NodeName& worker);
v1::CoordinatorMessage MakeFinalize(const Job& job);
v1::CoordinatorMessage MakeDropJob(uint64_t job_id, bool cancelled = false);
void FillRoutes(const Job& job, google::protobuf::RepeatedPtrField<v1::Route>* routes);

}  // namespace cairn
