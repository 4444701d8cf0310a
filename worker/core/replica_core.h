// ReplicaCore: what one worker does for one job, as a state machine without I/O, threads or a clock.
//
// It decides which step each own replica computes next, which gradients go where, what is sent again after a failure,
// and what is reported. ReplicaDriver carries its effects out in order, in a worker and in the simulator. Thread rule:
// one caller at a time. Invariants:
//   1. Synchronous: one version s of the values at a time ("current"); the
//      values of s + 1 are collected in a second buffer, and become current once
//      all partitions have arrived. All own replicas compute step s from current.
//   2. Own replicas are pushed as whole aligned subtrees of the
//      summation tree, added in the tree's own order: the bits at
//      a ps do not depend on which worker holds which replica.
//   3. Asynchronous: own replicas are independent. A replica pushes step n + 1 only
//      after every partition has answered step n, so that its last sequence numbers
//      differ by at most one between partitions, and the lowest is its next step.
//   4. A request is sent again until it is answered, refused as invalid, or not
//      needed any more. A gradient's bytes do not change while one of its pushes
//      may still be sent: buffers are written only while nothing else holds them.
//   5. A step counts (is reported) once every partition has acknowledged it.
//   6. The chief takes one checkpoint at a time; meanwhile no replica is reported
//      as finished, so that the job does not end before its last checkpoint.
//   7. An event of a stale work or request (its number is not the current one) changes nothing.
// Bounds: two buffers of values and one gradient for each replica (synchronous: two buffers of values in all, and one
// sum for each subtree of several replicas); one request for each partition and subtree (or replica).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/model/fault_check.h"
#include "common/model/step_plan.h"
#include "common/tensor/buffer.h"
#include "common/tensor/frame.h"
#include "common/tensor/summation_tree.h"
#include "worker/backend/backend.h"

namespace cairn {

namespace replica {

// ---- events ----

struct Assign {
  v1::AssignReplicas message;
};
// The answer to the Send with this `request`: VALUES, or the error (of an ERROR frame, or of the connection).
struct Reply {
  uint64_t request = 0;
  absl::StatusOr<Frame> frame;
};
// The gradients of the partitions [partition_begin, partition_end) are final in the gradient buffer of Compute `work`.
// They may come in any order, or all at once. Every partition is announced before Computed.
struct GradientReady {
  uint64_t work = 0;
  uint32_t partition_begin = 0, partition_end = 0;
};
// The sum of Joint `joint` is final in these partitions. Every partition is announced before the last Computed of the
// joint's replicas.
struct GradientSummed {
  uint64_t joint = 0;
  uint32_t partition_begin = 0, partition_end = 0;
};
// The work has ended: the worker no longer holds its values or its gradient.
struct Computed {
  uint64_t work = 0;
  absl::StatusOr<BatchSums> sums;
};
struct Evaluated {
  uint64_t work = 0;
  absl::StatusOr<BatchSums> sums;
};
// WeightsWanted: the next layers of a by_layer work need the values of these partitions; one WeightsHere follows for
// each, or StopWork. WeightsDone: they are no longer needed; sent once for each WeightsWanted.
struct WeightsWanted {
  uint64_t work = 0;
  uint32_t partition_begin = 0, partition_end = 0;
};
struct WeightsDone {
  uint64_t work = 0;
  uint32_t partition_begin = 0, partition_end = 0;
};
// The end of TakeCheckpoint `number`.
struct CheckpointDone {
  enum class Outcome {
    kWritten,
    kNoCut,       // a ps was lost or has moved past the version: worth a retry
    kNotWritten,  // disk error: reported to the user, retried when the next checkpoint is due
  };
  uint64_t number = 0;
  Outcome outcome = Outcome::kWritten;
};
struct Timer {};
// The coordinator may have lost reports: those of the newest epochs are sent again.
struct ReportAgain {};
// Stops all work and forgets the job. The only event that has an effect after Fail.
struct Drop {};

using Event = std::variant<Assign, Reply, GradientReady, GradientSummed, Computed, Evaluated, WeightsWanted,
                           WeightsDone, CheckpointDone, Timer, ReportAgain, Drop>;

// ---- effects ----

struct Send {
  uint64_t request = 0;  // the core's own id; frame.request_id belongs to the connection
  std::string address;
  Frame frame;
};
// Replicas of one step whose gradients are needed only as a sum, rounded to a type (the wire type, or FLOAT32): number
// i of the parameter space is at byte i * its size in `gradient`. The worker may write `gradient` until the last of the
// replicas is Computed. All of them start together at the beginning of the step. A joint that is no longer needed,
// since the assignment changed, ends like any stale work.
struct Joint {
  uint64_t number = 0;
  TreeNode node;
  std::vector<bool> leaves;  // of node.count: whether that replica has examples, and so a Compute
  v1::DataType type = v1::FLOAT32;
  GradientLayout layout;
  Buffer gradient;
};
// Runs TrainStep of (step, replica). `values` and `gradient` span the parameter space; the worker may write `gradient`
// until Computed.
struct Compute {
  uint64_t work = 0;
  ReplicaId replica;
  int64_t step = 0;
  Buffer values, gradient;
  bool by_layer = false;               // `values` holds only what WeightsWanted asked for
  float loss_scale = 0;                // of jobs that have one: multiplies the loss and divides the gradient
  std::shared_ptr<const Joint> joint;  // set: the gradient is added there, `gradient` is empty
};
// Evaluates these places of the validation split, of which there is at least one.
struct Evaluate {
  uint64_t work = 0;
  ReplicaId replica;
  int64_t step = 0;  // the values are those before this step
  PlaceRange places;
  Buffer values;
  bool by_layer = false;  // as in Compute
};
// The values of the partition are in the work's `values` until WeightsDone. Sent once for each WeightsWanted.
struct WeightsHere {
  uint64_t work = 0;
  uint32_t partition = 0;
};
// The result is no longer needed: a wait for values ends with an error, which is not reported.
struct StopWork {
  uint64_t work = 0;
};
// Chief only, one at a time: asks every partition for its state (SNAPSHOT) and writes a checkpoint. The requests use
// the connections of Send and precede all later effects, so that no own push beyond the wanted version overtakes them.
struct TakeCheckpoint {
  struct Request {
    std::string address;
    Frame frame;
  };
  uint64_t number = 0;
  int64_t step = 0;               // synchronous: the version of the cut; asynchronous: the slowest own replica's step
  std::vector<Request> requests;  // by partition
  bool last_try =
      false;  // a failed cut is not retried any more: the coordinator must hear that this step gets no checkpoint
};
// Chief only: report the digest of these values (JobSpec.digest_every_steps), or leave it out if there is no time.
struct TakeDigest {
  int64_t step = 0;  // how many updates are in them
  Buffer values;     // the parameter space; shared with the core
};
struct Report {
  v1::ReplicaReport report;
};
// Asks for a Timer event at this time. Earlier SetTimers stay armed; a Timer that comes too early is harmless.
struct SetTimer {
  absl::Time at;
};
// The job cannot continue here; nothing more is sent until it is dropped. Emitted once.
struct Fail {
  std::string message;
};

using Effect =
    std::variant<Send, Compute, Evaluate, WeightsHere, StopWork, TakeCheckpoint, TakeDigest, Report, SetTimer, Fail>;
using Effects = std::vector<Effect>;

class Mode;
struct Context;
struct Part;

}  // namespace replica

struct ReplicaCoreOptions {
  // Several steps share one report. Shorter: fresher progress, more messages to the coordinator.
  absl::Duration report_interval = absl::Milliseconds(200);
  // Interval at which `finished` is repeated until the job is dropped.
  absl::Duration finished_interval = absl::Milliseconds(500);
  // Failed requests are retried with exponential back-off between these, with jitter.
  absl::Duration retry_min = absl::Milliseconds(20);
  absl::Duration retry_max = absl::Seconds(1);
  uint64_t jitter_seed = 1;
  // The worker sums own replicas' gradients and rounds them to the wire type: Compute.joint.
  bool joins = false;
  // How long the cut after the last step is retried: a failover at that moment, or the replacement of the coordinator,
  // must not cost the job its last checkpoint. Longer: a job whose ps stay away ends that much later.
  absl::Duration last_cut_max = absl::Minutes(2);
};

class ReplicaCore {
 public:
  explicit ReplicaCore(const ReplicaCoreOptions& options = {});
  ~ReplicaCore();
  ReplicaCore(const ReplicaCore&) = delete;
  ReplicaCore& operator=(const ReplicaCore&) = delete;

  replica::Effects Step(replica::Event event, absl::Time now);

  // For Hello and heartbeats. The lowest step that an own replica has not finished (the last step includes its
  // validation, however long that takes, and its checkpoint); -1: not known yet, or no replicas.
  int64_t step() const;
  Generation generation() const;
  // step() with its job, generation and assignment; nullopt while the step is not known.
  std::optional<v1::JobProgress> progress() const;
  const std::vector<int32_t>& replicas() const;
  // Each partition's range of the parameter space; empty before the first assignment.
  const std::vector<v1::PartitionRange>& ranges() const;

 private:
  absl::Status OnAssign(v1::AssignReplicas message);
  absl::Status BeginJob(v1::AssignReplicas& message, const std::vector<replica::Part>& parts);
  absl::Status MakeMode();
  void SetEpochs(const v1::AssignReplicas& message);
  void Dispatch(replica::Event& event);
  void OnComputed(replica::Computed& event);
  void OnEvaluated(const replica::Evaluated& event);

  std::unique_ptr<replica::Context> context_;
  std::unique_ptr<replica::Mode> mode_;
};

}  // namespace cairn
