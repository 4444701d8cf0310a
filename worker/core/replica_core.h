// ReplicaCore: what one worker does for one job, as a state machine without I/O, threads or a clock.
//
// It decides which step each own replica computes next, which gradients go where, what is sent again after a failure,
// and what is reported. The node (worker_node.cc) and the simulator carry its effects out, in order. Thread rule: one
// caller at a time. Invariants:
//   1. Synchronous: one version s of the values at a time ("current"); the
//      values of s + 1 gather in a second buffer, and become current when
//      every partition is there. All own replicas compute step s from current.
//   2. Own replicas are pushed as whole aligned subtrees of the
//      summation tree, added in the tree's own order: the bits that a
//      ps arrives at do not depend on who holds which replica.
//   3. Asynchronous: each own replica is on its own. It pushes step n + 1 only
//      after every partition has answered step n, so that its last sequence numbers
//      differ by at most one between partitions, and the lowest is its next step.
//   4. A request is sent again until it is answered, refused as invalid, or not
//      needed any more. A gradient's bytes do not change while one of its pushes
//      may still be sent: buffers are written only while nobody else holds them.
//   5. A step counts (reports) when every partition acknowledged it.
//   6. The chief: one checkpoint is under way at a time; while one is, no replica is
//      reported as finished, so that the job does not end before its last checkpoint.
//   7. An event of work or a request that is not the present one (its number differs) changes nothing.
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
// The answer to Send `request`: VALUES, or the error (of an ERROR frame, or of the connection).
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
// The sum of Joint `joint` is final in these partitions. Each is announced before the last Computed of the joint's
// replicas.
struct GradientSummed {
  uint64_t joint = 0;
  uint32_t partition_begin = 0, partition_end = 0;
};
// The node holds neither values nor gradient of the work any more.
struct Computed {
  uint64_t work = 0;
  absl::StatusOr<BatchSums> sums;
};
struct Evaluated {
  uint64_t work = 0;
  absl::StatusOr<BatchSums> sums;
};
// The layers that a work with by_layer comes to need the values of these partitions: one WeightsHere follows for each,
// or StopWork. WeightsDone: they do not any more; as often as WeightsWanted.
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
    kNoCut,       // a ps was lost or had gone on meanwhile: worth another try
    kNotWritten,  // the disk: told to the user, and tried again when the next one is due
  };
  uint64_t number = 0;
  Outcome outcome = Outcome::kWritten;
};
struct Timer {};
// The coordinator may have lost what was reported: the figures of the newest epochs are reported again.
struct ReportAgain {};
// Stop everything and forget the job. The only event that has an effect after Fail.
struct Drop {};

using Event = std::variant<Assign, Reply, GradientReady, GradientSummed, Computed, Evaluated, WeightsWanted,
                           WeightsDone, CheckpointDone, Timer, ReportAgain, Drop>;

// ---- effects ----

struct Send {
  uint64_t request = 0;  // of the core; frame.request_id is the connection's business
  std::string address;
  Frame frame;
};
// Replicas of one step whose gradients are wanted as their sum only, rounded to a type (the wire's, or FLOAT32): number
// i of the space at byte i * its size of `gradient`. It is the node's to write until the last of them is Computed. All
// of them start with their step; those that are not wanted any more, as the replicas are others, end like any stale
// work.
struct Joint {
  uint64_t number = 0;
  TreeNode node;
  std::vector<bool> leaves;  // of node.count: whether that replica has examples, and so a Compute
  v1::DataType type = v1::FLOAT32;
  GradientLayout layout;
  Buffer gradient;
};
// TrainStep of (step, replica). values and gradient span the parameter space; gradient is the node's to write until
// Computed.
struct Compute {
  uint64_t work = 0;
  ReplicaId replica;
  int64_t step = 0;
  Buffer values, gradient;
  bool by_layer = false;               // `values` holds what WeightsWanted asked for, and nothing else
  float loss_scale = 0;                // of jobs that have one: the loss is multiplied by it, the gradient divided
  std::shared_ptr<const Joint> joint;  // set: the gradient goes there, `gradient` is empty
};
// Evaluate the places of the validation split. Never empty.
struct Evaluate {
  uint64_t work = 0;
  ReplicaId replica;
  int64_t step = 0;  // the values are those before it
  PlaceRange places;
  Buffer values;
  bool by_layer = false;  // as Compute
};
// The values of the partition are in the work's `values`, until WeightsDone. Sent as often as WeightsWanted.
struct WeightsHere {
  uint64_t work = 0;
  uint32_t partition = 0;
};
// Nobody wants the result any more: what waits for values ends with an error, which is not told to anyone.
struct StopWork {
  uint64_t work = 0;
};
// The chief: ask every partition for its state (SNAPSHOT; on the connections of Send, before any later effect: no push
// of ours that leads beyond the wanted version may overtake it), and write a checkpoint. One at a time.
struct TakeCheckpoint {
  struct Request {
    std::string address;
    Frame frame;
  };
  uint64_t number = 0;
  int64_t step = 0;               // synchronous: the version of the cut; asynchronous: our slowest replica's
  std::vector<Request> requests;  // by partition
  bool last_try =
      false;  // where the cut fails no other follows: the coordinator has to hear that this step's does not come
};
struct Report {
  v1::ReplicaReport report;
};
// A Timer event is wanted at this time (earlier ones still come; one that comes too early does no harm).
struct SetTimer {
  absl::Time at;
};
// The job cannot go on here; nothing more is sent until it is dropped. Once.
struct Fail {
  std::string message;
};

using Effect = std::variant<Send, Compute, Evaluate, WeightsHere, StopWork, TakeCheckpoint, Report, SetTimer, Fail>;
using Effects = std::vector<Effect>;

class Mode;
struct Context;
struct Part;

}  // namespace replica

struct ReplicaCoreOptions {
  // Sums of several steps go in one report. Shorter: fresher figures, more messages to the coordinator.
  absl::Duration report_interval = absl::Milliseconds(200);
  // `finished` is reported again and again until the job is dropped.
  absl::Duration finished_interval = absl::Milliseconds(500);
  // Requests that failed are sent again after a pause that doubles between these, with jitter.
  absl::Duration retry_min = absl::Milliseconds(20);
  absl::Duration retry_max = absl::Seconds(1);
  uint64_t jitter_seed = 1;
  // The node adds up own replicas' gradients, and rounds them to the wire's type: Compute.joint.
  bool joins = false;
  // The cut after the last step is tried again for so long: a failover in that moment, or a coordinator that is being
  // replaced, must not cost the job's last checkpoint. Longer: a job whose ps stay away ends that much later.
  absl::Duration last_cut_max = absl::Minutes(2);
};

class ReplicaCore {
 public:
  explicit ReplicaCore(const ReplicaCoreOptions& options = {});
  ~ReplicaCore();
  ReplicaCore(const ReplicaCore&) = delete;
  ReplicaCore& operator=(const ReplicaCore&) = delete;

  replica::Effects Step(replica::Event event, absl::Time now);

  // For Hello and heartbeats. The lowest step that an own replica has not finished (the last one is not over before its
  // validation, however long it takes, and its checkpoint); -1: not known yet, or no replicas.
  int64_t step() const;
  Generation generation() const;
  // What step() is of; without a step there is none.
  std::optional<v1::JobProgress> progress() const;
  const std::vector<int32_t>& replicas() const;
  // Numbers of the parameter space in each partition's range; empty before the first assignment.
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
