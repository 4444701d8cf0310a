// Checkpointer: carries out what the chief's core asks for (TakeCheckpoint) and the coordinator (MarkBest), for one
// job: asks the ps for their state, gathers it, writes it, removes superfluous checkpoints, reports.
//
// Thread rule: any thread; nothing blocks. Answers of the ps are gathered on gRPC threads, each into its own range of
// memory; files are written on the executor, which all jobs of a worker share. Invariants:
//   1. At most one cut is gathered at a time (the core asks for one), and freed when it is written.
//   2. A cut is written only where every partition answered with the version that was wanted, whole.
//   3. It removes only checkpoints of its own job (own_checkpoints.h), that it knows of.
//   4. What was begun is finished even when the job is dropped meanwhile: a job's last checkpoint is wanted, too.
//   5. A MarkBest that waited here while another chief kept one is not carried out: the coordinator has long asked that
//      one.
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
#include "common/base/executor.h"
#include "common/base/status.h"
#include "worker/checkpoint/checkpoint_book.h"
#include "worker/checkpoint/checkpoint_cut.h"
#include "worker/checkpoint/own_checkpoints.h"
#include "worker/core/replica_core.h"
#include "worker/train/ps_connections.h"

namespace cairn {

struct CheckpointerServices {
  PsConnections* connections = nullptr;
  SerialExecutor* executor = nullptr;  // for files
  Clock* clock = nullptr;
  std::function<void(v1::NodeMessage)> send;  // to the coordinator
};

class Checkpointer : public std::enable_shared_from_this<Checkpointer> {
 public:
  using Done = std::function<void(replica::CheckpointDone::Outcome)>;

  Checkpointer(JobId job, const CheckpointerServices& services);

  // The checkpoints that the coordinator knows of. Removes what they push out, on the executor.
  void Know(std::shared_ptr<const v1::AssignReplicas> assignment);
  // The requests are sent before it returns. `done` runs once, on any thread.
  void Take(replica::TakeCheckpoint take, std::shared_ptr<const v1::AssignReplicas> assignment, Done done);
  void MarkBest(const v1::MarkBest& command, std::shared_ptr<const v1::AssignReplicas> assignment);
  // Removes what is beyond keep_max; returns the steps that are not there any more. Blocking: of the executor.
  std::vector<int64_t> Prune(const v1::AssignReplicas& assignment);
  // Tells the coordinator again what it may have missed.
  void ReportAgain();

 private:
  struct UnderWay;  // one checkpoint

  void OnPartition(const std::shared_ptr<UnderWay>& under_way, size_t index, const absl::Status& end);
  void Write(UnderWay& under_way);
  absl::Status WriteFiles(const CheckpointCut& cut, v1::CheckpointInfo& info);
  CheckpointOwner OwnerOf(const v1::AssignReplicas& assignment) const;
  std::vector<int64_t> ForgetMissing(const OwnCheckpoints& own);
  void Report(const v1::CheckpointInfo* info, const std::vector<int64_t>& deleted, const absl::Status& status);
  // No other try follows.
  void ReportNotWritten(const v1::CheckpointInfo& info, const absl::Status& why);

  const JobId job_;
  const CheckpointerServices services_;
  absl::Mutex mutex_;
  CheckpointBook book_ ABSL_GUARDED_BY(mutex_);
  absl::Time best_kept_ = absl::InfinitePast();  // by this worker, in BestKeptAt's time; on the executor
  // The last one, where the disk refused it, or no cut came about. The end of an epoch may wait for it, so that the
  // coordinator has to hear of it.
  std::optional<std::pair<v1::CheckpointInfo, absl::Status>> not_written_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
