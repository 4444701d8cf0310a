// Context: the state that all modes of ReplicaCore share: the assignment, requests and their retries, buffers, and the
// effects collected so far.
//
// Part of ReplicaCore (replica_core.h): one caller at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/model/epoch_figures.h"
#include "common/model/epoch_rates.h"
#include "worker/core/checkpoint_rule.h"
#include "worker/core/replica_core.h"
#include "worker/core/report_book.h"

namespace cairn::replica {

// A request to one ps. Its owner knows its content and builds the frame again each time it is sent.
struct Request {
  enum class State : uint8_t {
    kIdle,     // not needed (yet, or any more)
    kSent,     // in flight
    kWaiting,  // failed; retried at retry_at
  };
  State state = State::kIdle;
  int attempt = 0;
  uint64_t token = 0;       // of the last Send
  uint64_t generation = 0;  // at the last Send
  absl::Time retry_at;
};

// Pushes to this partition carry the training figures, and so wait until all their replicas are computed.
inline constexpr uint32_t kFiguresPartition = 0;

struct RequestName {
  uint32_t owner = 0, partition = 0;
};
RequestName NameOf(uint64_t token);

// Buffers of one size, reused once nothing else holds them.
class BufferPool {
 public:
  void Resize(size_t bytes, size_t spares_max);
  Buffer Acquire();
  void Release(Buffer buffer);

 private:
  size_t bytes_ = 0, spares_max_ = 0;
  std::vector<Buffer> spares_;
};

struct Part {
  v1::PartitionRange range;
  std::string address;
  size_t numbers() const { return range.end() - range.begin(); }
};

struct Context {
  explicit Context(const ReplicaCoreOptions& o) : options(o), reports(o.report_interval, o.finished_interval) {}

  const ReplicaCoreOptions options;

  // ---- the assignment ----
  bool assigned = false;
  uint64_t assignment = 0;
  JobId job;
  Generation generation;
  v1::JobSpec spec;
  StepPlan plan;
  // Jobs with callbacks that decide at the end of an epoch: steps from this one on must not begin yet.
  int64_t gate = INT64_MAX;
  EpochRates rates;
  int64_t validation_examples = 0;
  v1::DataType wire = v1::FLOAT32;
  GradientLayout layout;
  bool has_loss_scale = false;
  std::vector<int32_t> replicas;  // sorted
  std::vector<Part> parts;        // by partition number
  std::vector<v1::PartitionRange> ranges;
  size_t space_bytes = 0;
  bool chief = false;

  // ---- the running Step ----
  absl::Time now;
  Effects effects;

  // ---- state that outlives a Step ----
  ReportBook reports;
  BufferPool pool;
  bool failed = false;
  absl::Time retry_earliest = absl::InfiniteFuture();  // no waiting request is due earlier
  absl::Time armed = absl::InfiniteFuture();           // the time of the last SetTimer
  uint64_t works = 0, joints = 0, serial = 0, jitter = 0;
  std::optional<CheckpointRule> checkpoint_rule;
  uint64_t checkpoints = 0;                                  // the number of the last one
  std::optional<int64_t> checkpoint_step;                    // of the one in progress
  int cuts_failed = 0;                                       // in a row
  absl::Time last_cut_fails_since = absl::InfiniteFuture();  // when the cut after the last step first failed
  bool cut_is_last_try = false;                              // the one in progress
  absl::Time next_cut = absl::InfinitePast();                // earliest time of the retry after a failed cut
  std::vector<ReplicaId> finished_later;                     // reported as finished once no checkpoint is pending

  uint64_t NewWork() { return ++works; }
  bool AtGate(int64_t step) const { return step >= gate && step < plan.total_steps; }
  // How far the job may go: to the gate, or to its end.
  int64_t LastOpen() const { return std::min(gate, plan.total_steps); }
  // Sends the frame to the partition's ps.
  void SendRequest(Request& request, uint32_t owner, Frame frame);
  // After an error other than "gone": backs off and retries. INVALID_ARGUMENT: the job fails.
  void Retry(Request& request, uint32_t partition, const absl::Status& status);
  void RetryAfter(Request& request, absl::Duration pause);
  // Whether a waiting request is due; for one that is not, lowers retry_earliest.
  bool Due(const Request& request);
  // Whether the assignment that just arrived makes it worth sending at once.
  bool ResendAtOnce(const Request& request, bool moved, bool raised) const;
  absl::Duration Pause(int attempt);
  void FailJob(std::string message);

  // VALUES must carry a loss scale where the job has one.
  absl::Status CheckLossScale(const Frame& frame) const;
  // The frame must hold all values of the partition.
  absl::Status CheckValues(const Frame& frame, uint32_t partition) const;
  void CopyValues(const Frame& frame, Buffer& into) const;
  Frame MakePull(uint32_t partition) const;
  // How the step's gradients in the partition are rounded. Keeps a reference to this context.
  GradientRounding RoundingOf(uint32_t partition, int64_t step) const;
  // gradient: the sum, empty where examples == 0; float32, or already of the wire type (packed). Shared, not copied,
  // where it is of the wire type. A float32 sum is rounded like a gradient of the node's first replica alone.
  Frame MakePush(uint32_t partition, const TreeNode& node, int64_t step, uint64_t examples, const Buffer& gradient,
                 bool packed) const;
  // A joint of this type for the node's replicas in the step, which all begin now. Null where the worker makes no sums
  // (ReplicaCoreOptions.joins; never INT8), or there is nothing to sum or round.
  std::shared_ptr<const Joint> MakeJoint(const TreeNode& node, int64_t step, v1::DataType type);
  // The figures of the node's replicas in the step, summed in the order of their gradients. sums(i): those of
  // replica node.first + i.
  v1::EpochFigures FiguresOf(const TreeNode& node, int64_t step,
                             const std::function<const BatchSums&(uint32_t)>& sums) const;
  Frame MakeClip(uint32_t partition, int64_t step, std::string factors, uint64_t norms_xxh3) const;
  // Why the values are evaluated before `step` is computed (step == total_steps: at the end): an epoch has ended,
  // validation_freq_steps have passed, or both.
  struct Evaluation {
    std::optional<int32_t> epoch;
    bool by_steps = false;
    explicit operator bool() const { return epoch.has_value() || by_steps; }
  };
  Evaluation EvaluationBefore(int64_t step) const;
  void AddValidation(ReplicaId replica, int64_t step, const BatchSums& sums);
  // Called by the chief before it sends anything of a later step: emits TakeCheckpoint if a checkpoint after `step`
  // updates is due and none is in progress. want_version: of each partition; unset: its current one.
  void CheckpointIfDue(int64_t step, std::optional<uint64_t> want_version);
  // Whether the event belongs to the checkpoint in progress.
  bool EndCheckpoint(const CheckpointDone& event);
  // The job must not end yet: a checkpoint is in progress, or the last one is still to be taken. The last one is taken
  // when all own replicas have done all steps. In an asynchronous job a replica may move away before that; then only
  // the replicas that finished here earlier delay the end of the job.
  bool CheckpointOwed() const { return checkpoint_step || (chief && checkpoint_rule->Due(plan.total_steps, now)); }
  // The replica has done all its steps: reports it now, or once no checkpoint is pending (FinishLater).
  void Finish(ReplicaId replica);
  void FinishLater();
  // Emits Evaluate of the values before `step` and returns its work. 0: there is nothing to do: the replica's share is
  // empty (which is reported), or no evaluation is due.
  uint64_t StartEvaluation(ReplicaId replica, int64_t step, const Buffer& values, bool by_layer = false);
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
  // Sends the requests that are due again; lowers context.retry_earliest to the time of the others.
  virtual void ResendDue() = 0;
  // A checkpoint is done: begin the next one if it is due.
  virtual void OnCheckpointDone() = 0;
  virtual int64_t step() const = 0;
  // Whether a current Compute or Evaluate has this number.
  virtual bool Knows(uint64_t work) const = 0;
};

}  // namespace cairn::replica
