// Checkpointer: takes the checkpoints of one job when the chief's core (TakeCheckpoint) or the coordinator (MarkBest)
// asks for them: it asks the ps for their state, gathers and writes it, removes superfluous checkpoints, and reports.
//
// Thread rule: any thread; no call blocks except Prune. The answers of the ps are gathered on gRPC threads, each into
// its own range of memory; files are written, here or to S3, by tasks of the job in file_queues.h, one at a time.
// Invariants:
//   1. At most one cut is gathered at a time (the core asks for one), and it is freed once it is written.
//   2. A cut is written only if every partition answered completely, with the version that was asked for.
//   3. Only checkpoints of this job (job_checkpoints.h) that are known here are removed.
//   4. A checkpoint that was begun is finished even if the job is dropped meanwhile: its last checkpoint is wanted.
//      Unless what the job writes to S3 is given up: then nothing is reported, since nobody waits for it.
//   5. A MarkBest that waited here is dropped if another worker has marked a best checkpoint since it was asked for.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cairn/v1/cluster.pb.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/checkpoint/checkpoint_book.h"
#include "worker/checkpoint/checkpoint_cut.h"
#include "worker/checkpoint/job_checkpoints.h"
#include "worker/core/replica_core.h"
#include "worker/train/file_queues.h"
#include "worker/train/ps_connections.h"

namespace cairn {

struct CheckpointerServices {
  PsConnections* connections = nullptr;
  FileQueues* files = nullptr;
  Clock* clock = nullptr;
  std::function<void(v1::NodeMessage)> send;  // to the coordinator
};

class Checkpointer : public std::enable_shared_from_this<Checkpointer> {
 public:
  using Done = std::function<void(replica::CheckpointDone::Outcome)>;

  Checkpointer(JobId job, const CheckpointerServices& services);

  // Learns which checkpoints the coordinator knows of. Removes those beyond keep_max, in a task.
  void Know(std::shared_ptr<const v1::AssignReplicas> assignment);
  // Sends the requests before it returns. `done` is called once, on any thread.
  void Take(replica::TakeCheckpoint take, std::shared_ptr<const v1::AssignReplicas> assignment, Done done);
  void MarkBest(const v1::MarkBest& command, std::shared_ptr<const v1::AssignReplicas> assignment);
  // Removes checkpoints beyond keep_max and returns the steps whose checkpoints are gone; one that cannot be removed is
  // tried again the next time. Blocks: called in a task.
  std::vector<int64_t> Prune(const v1::AssignReplicas& assignment, RemoteFiles* remote);
  // Repeats the reports that the coordinator may have missed.
  void ReportAgain();

 private:
  struct UnderWay;  // one checkpoint
  struct BestWanted {
    v1::MarkBest command;
    absl::Time asked;
    std::shared_ptr<const v1::AssignReplicas> assignment;
  };

  // A task that uses the job's checkpoints.
  void Post(const v1::AssignReplicas& assignment, FileQueues::Task task);
  void OnPartition(const std::shared_ptr<UnderWay>& under_way, size_t index, const absl::Status& end);
  void Write(UnderWay& under_way, RemoteFiles* remote);
  absl::Status WriteFiles(const CheckpointCut& cut, RemoteFiles* remote, v1::CheckpointInfo& info);
  std::unique_ptr<JobCheckpoints> CheckpointsOf(const v1::AssignReplicas& assignment, RemoteFiles* remote) const;
  std::vector<int64_t> ForgetMissing(JobCheckpoints& own);
  void KeepBest(const BestWanted& wanted, RemoteFiles* remote);
  void LetGoOfBest();
  // Other jobs' checkpoints that were in the way are reported with the next report.
  void NoteSetAside(JobCheckpoints& own);
  void Report(const v1::CheckpointInfo* info, const std::vector<int64_t>& deleted, const absl::Status& status);
  // Reports that the checkpoint was not written and will not be tried again.
  void ReportNotWritten(const v1::CheckpointInfo& info, const absl::Status& why);

  const JobId job_;
  const CheckpointerServices services_;
  absl::Mutex mutex_;
  CheckpointBook book_ ABSL_GUARDED_BY(mutex_);
  // What was set aside: not reported yet, and the first of all, which are repeated.
  struct SetAside {
    std::vector<std::string> news, first;
  };
  SetAside set_aside_ ABSL_GUARDED_BY(mutex_);
  // BestKeptAt after this worker last marked a best checkpoint. Used in tasks alone.
  absl::Time best_kept_ = absl::InfinitePast();
  // What could not be kept as the best is tried again after the next checkpoint; until then its step is held in the
  // book. Used in tasks alone.
  std::optional<BestWanted> best_wanted_;
  // The last checkpoint if it could not be written, or no cut succeeded. The end of an epoch may wait for it, so the
  // coordinator must hear of it.
  std::optional<std::pair<v1::CheckpointInfo, absl::Status>> not_written_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
