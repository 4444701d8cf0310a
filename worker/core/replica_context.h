// What all modes of the ReplicaCore share: the assignment, the requests and their repetition, the buffers, the effects
// gathered.
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

// One thing that is wanted of one ps; its owner knows what, and builds the frame each time it is sent.
struct Request {
  enum class State : uint8_t {
    kIdle,     // nothing is wanted (yet, or any more)
    kSent,     // an answer is awaited
    kWaiting,  // failed; again at retry_at
  };
  State state = State::kIdle;
  int attempt = 0;
  uint64_t token = 0;       // of the last Send
  uint64_t generation = 0;  // at the last Send
  absl::Time retry_at;
};

// Its pushes carry the figures of the training, and so wait until all their replicas are computed.
inline constexpr uint32_t kFiguresPartition = 0;

struct RequestName {
  uint32_t owner = 0, partition = 0;
};
RequestName NameOf(uint64_t token);

// Buffers of one size, to be used again when nobody else holds them.
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
  // Jobs that decide at the end of an epoch: no step from this one on begins.
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

  // ---- what lasts ----
  ReportBook reports;
  BufferPool pool;
  bool failed = false;
  absl::Time retry_earliest = absl::InfiniteFuture();  // no waiting request is due before
  absl::Time armed = absl::InfiniteFuture();           // the timer that was asked for
  uint64_t works = 0, joints = 0, serial = 0, jitter = 0;
  std::optional<CheckpointRule> checkpoint_rule;
  uint64_t checkpoints = 0;                                  // the number of the last one
  std::optional<int64_t> checkpoint_step;                    // of the one under way
  int cuts_failed = 0;                                       // in a row
  absl::Time last_cut_fails_since = absl::InfiniteFuture();  // the one after the last step: when it failed first
  bool cut_is_last_try = false;                              // the one under way
  absl::Time next_cut = absl::InfinitePast();                // not before, after one that failed
  std::vector<ReplicaId> finished_later;                     // their end is not told while a checkpoint is owed

  uint64_t NewWork() { return ++works; }
  bool AtGate(int64_t step) const { return step >= gate && step < plan.total_steps; }
  // The furthest that the job may come: to the gate, or to its end.
  int64_t LastOpen() const { return std::min(gate, plan.total_steps); }
  // The frame goes to the partition's ps.
  void SendRequest(Request& request, uint32_t owner, Frame frame);
  // After an error other than "gone": the request waits for its time. INVALID_ARGUMENT: the job fails.
  void Retry(Request& request, uint32_t partition, const absl::Status& status);
  void RetryAfter(Request& request, absl::Duration pause);
  // A waiting request whose time has come; the timer is set for one that waits on.
  bool Due(const Request& request);
  // Whether the assignment that just came makes it worth sending at once.
  bool ResendAtOnce(const Request& request, bool moved, bool raised) const;
  absl::Duration Pause(int attempt);
  void FailJob(std::string message);

  // VALUES names the loss scale where the job has one.
  absl::Status CheckLossScale(const Frame& frame) const;
  // The frame holds values of the partition, whole.
  absl::Status CheckValues(const Frame& frame, uint32_t partition) const;
  void CopyValues(const Frame& frame, Buffer& into) const;
  Frame MakePull(uint32_t partition) const;
  // How the step's gradients are rounded, in the partition. Refers to this context.
  GradientRounding RoundingOf(uint32_t partition, int64_t step) const;
  // sum: the gradient, empty where examples == 0; float32, or packed: of the wire type already. Shared, not copied,
  // where it is of the wire type. What is not rounded is rounded as the node's first replica's alone.
  Frame MakePush(uint32_t partition, const TreeNode& node, int64_t step, uint64_t examples, const Buffer& gradient,
                 bool packed) const;
  // Of the node's replicas in the step, which all begin now, in the type: null where the node makes no sums
  // (ReplicaCoreOptions.joins; none of INT8), or there is nothing to be added up or rounded.
  std::shared_ptr<const Joint> MakeJoint(const TreeNode& node, int64_t step, v1::DataType type);
  // The figures of the node's replicas in the step, added up as their gradients are. sums(i): those of replica
  // node.first + i.
  v1::EpochFigures FiguresOf(const TreeNode& node, int64_t step,
                             const std::function<const BatchSums&(uint32_t)>& sums) const;
  Frame MakeClip(uint32_t partition, int64_t step, std::string factors, uint64_t norms_xxh3) const;
  // What is evaluated before `step` is computed (step == total_steps: at the end): after an epoch, after so many steps,
  // or both at once.
  struct Evaluation {
    std::optional<int32_t> epoch;
    bool by_steps = false;
    explicit operator bool() const { return epoch.has_value() || by_steps; }
  };
  Evaluation EvaluationBefore(int64_t step) const;
  void AddValidation(ReplicaId replica, int64_t step, const BatchSums& sums);
  // The chief, before it sends anything that belongs to a later step: emits TakeCheckpoint where one of `step` updates
  // is due and none is under way. want_version: of each partition; unset: whatever it has.
  void CheckpointIfDue(int64_t step, std::optional<uint64_t> want_version);
  // Whether it was the one under way.
  bool EndCheckpoint(const CheckpointDone& event);
  // The job must not end yet: a checkpoint is under way, or the last one is not taken. It is taken when all own
  // replicas are at the end; an asynchronous one may move away before, and then those that were there earlier are all
  // that holds the job's end back.
  bool CheckpointOwed() const { return checkpoint_step || (chief && checkpoint_rule->Due(plan.total_steps, now)); }
  // The replica has done all its steps: reported now, or when no checkpoint is owed any more.
  void Finish(ReplicaId replica);
  void FinishLater();
  // Emits Evaluate, of the values before `step`. 0: nothing is to be done, for the replica's share is empty (that is
  // reported), or nothing is evaluated there.
  uint64_t StartEvaluation(ReplicaId replica, int64_t step, const Buffer& values, bool by_layer = false);
};

// A way to train. Calls come from ReplicaCore only.
class Mode {
 public:
  virtual ~Mode() = default;
  // The context holds the new assignment. moved: by partition, its address is another; raised: the generation is.
  virtual void OnAssigned(const std::vector<char>& moved, bool raised) = 0;
  virtual void OnReply(RequestName name, Reply& reply) = 0;
  virtual void OnGradient(const GradientReady& event) = 0;
  virtual void OnSummed(const GradientSummed& /*event*/) {}  // modes whose Computes have joints
  virtual void OnComputed(uint64_t work, BatchSums sums) = 0;
  virtual void OnEvaluated(uint64_t work, const BatchSums& sums) = 0;
  // Modes that compute by layer. OnWorkEnded: before OnComputed or OnEvaluated, for stale works too.
  virtual void OnWeightsWanted(const WeightsWanted&) {}
  virtual void OnWeightsDone(const WeightsDone&) {}
  virtual void OnWorkEnded(uint64_t /*work*/) {}
  // Send the requests whose time has come; lower context.retry_earliest to that of the others.
  virtual void ResendDue() = 0;
  // A checkpoint is done: begin another one if it is due.
  virtual void OnCheckpointDone() = 0;
  virtual int64_t step() const = 0;
  // Whether a present Compute or Evaluate has this number.
  virtual bool Knows(uint64_t work) const = 0;
};

}  // namespace cairn::replica
