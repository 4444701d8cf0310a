// Context: what all modes of ReplicaCore share: the job as it was assigned, its requests, buffers, reports and
// checkpoints, and the effects of the running Step.
//
// Part of ReplicaCore (replica_core.h): one caller at a time. The invariants of its parts are in their headers. They
// refer to one another, and so a Context is neither copied nor moved.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "common/model/epoch_figures.h"
#include "worker/core/assigned_job.h"
#include "worker/core/checkpoint_turns.h"
#include "worker/core/partition_frames.h"
#include "worker/core/replica_core.h"
#include "worker/core/report_book.h"
#include "worker/core/requests.h"
#include "worker/core/step_output.h"

namespace cairn::replica {

// Pushes to this partition carry the training figures, and so wait until all their replicas are computed.
inline constexpr uint32_t kFiguresPartition = 0;

// Buffers of one size, reused once nobody else holds them.
class BufferPool {
 public:
  void Resize(size_t bytes, size_t spares_max);
  // Buffers in which a ps of this host does not read: of modes that push copies, and discard parts.
  void KeepPrivate() { private_ = true; }
  Buffer Acquire();
  void Release(Buffer buffer);

 private:
  size_t bytes_ = 0, spares_max_ = 0;
  bool private_ = false;
  std::vector<Buffer> spares_;
};

struct Context {
  // last: the numbers given out before the worker dropped the job, if it had it before.
  explicit Context(const ReplicaCoreOptions& o, const Numbers& last = {});
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const ReplicaCoreOptions options;
  Numbers numbers;
  JobTerms job;
  JobSchedule schedule;
  Assignment assignment;
  StepOutput output;
  Backoff backoff;
  Requests requests;
  PartitionFrames frames;
  CheckpointTurns checkpoints;
  ReportBook reports;
  BufferPool pool;
  std::vector<ReplicaId> finished_later;  // reported as finished once no checkpoint is owed

  uint64_t NewWork() { return ++numbers.works; }
  // A joint of this type for the node's replicas in the step, which all begin now. Null where the worker makes no sums
  // (ReplicaCoreOptions.joins; never blocks: INT8, INT4, INT2), or there is nothing to sum or round.
  std::shared_ptr<const Joint> MakeJoint(const TreeNode& node, int64_t step, v1::DataType type);
  // The figures of the node's replicas in the step, summed in the order of their gradients. sums(i): those of
  // replica node.first + i.
  v1::EpochFigures FiguresOf(const TreeNode& node, int64_t step,
                             const std::function<const BatchSums&(uint32_t)>& sums) const;

  // Why the values are evaluated before `step` is computed (step == total_steps: at the end): an epoch has ended,
  // validation_freq_steps have passed, or both.
  struct Evaluation {
    std::optional<int32_t> epoch;
    bool by_steps = false;
    explicit operator bool() const { return epoch.has_value() || by_steps; }
  };
  Evaluation EvaluationBefore(int64_t step) const;
  // Emits Evaluate of the values before `step` and returns its work. 0: there is nothing to do: the replica's share is
  // empty (which is reported), or no evaluation is due.
  uint64_t StartEvaluation(ReplicaId replica, int64_t step, const Buffer& values, bool by_layer = false);
  void AddValidation(ReplicaId replica, int64_t step, const BatchSums& sums);

  // The replica has done all its steps: reports it now, or once no checkpoint is owed (FinishLater).
  void Finish(ReplicaId replica);
  void FinishLater();
};

// A way to train. Calls come from ReplicaCore only.
class Mode {
 public:
  virtual ~Mode() = default;
  // The context holds the new assignment. moved: by partition, its address changed; raised: the generation rose.
  virtual void OnAssigned(const std::vector<char>& moved, bool raised) = 0;
  virtual void OnReply(RequestName name, Reply& reply) = 0;
  virtual void OnGradient(const GradientReady& event) = 0;
  virtual void OnSummed(const GradientSummed& /*event*/) {}  // modes whose Computes have joints
  virtual void OnComputed(uint64_t work, BatchSums sums) = 0;
  virtual void OnEvaluated(uint64_t work, const BatchSums& sums) = 0;
  // Modes that compute by layer. OnWorkEnded comes before OnComputed or OnEvaluated, also for stale works.
  virtual void OnWeightsWanted(const WeightsWanted&) {}
  virtual void OnWeightsDone(const WeightsDone&) {}
  virtual void OnWorkEnded(uint64_t /*work*/) {}
  // Sends the requests that are due again; the others say when they are (StepOutput::WakeBy).
  virtual void ResendDue() = 0;
  // A checkpoint is done: begin the next one if it is due.
  virtual void OnCheckpointDone() = 0;
  virtual int64_t step() const = 0;
  // Whether a current Compute or Evaluate has this number.
  virtual bool Knows(uint64_t work) const = 0;
};

}  // namespace cairn::replica
