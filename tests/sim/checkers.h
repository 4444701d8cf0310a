// The promises that must hold in every run, whatever happens: one checker each, which observes the cores from outside.
//
// A *copy* is one process' state of one partition: a primary's or a backup's. The cluster notifies every checker of the
// events that concern it, in order. Where the durability allows it, acknowledged updates may be lost
// (Forgive); the checkers then continue from the remaining state.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/model/loss_scale.h"
#include "common/model/step_plan.h"
#include "server/core/dense_partition.h"
#include "server/core/partition_core.h"
#include "tests/sim/callbacks.h"
#include "tests/sim/checkpoints.h"
#include "tests/sim/devices.h"
#include "tests/sim/job.h"
#include "tests/sim/subsets.h"
#include "tests/sim/world.h"

namespace cairn::sim {

// The job of a run; shared by all checkers.
struct JobFacts {
  v1::JobSpec spec;
  StepPlan plan;
  std::vector<v1::PartitionRange> ranges;
  int64_t partition_bytes = 0;
  const Reference* reference = nullptr;
  SubsetReference* subsets = nullptr;  // not null: the job has backup_replicas, and this is the reference
  bool synchronous = true;
  int32_t group = 1;  // this many replicas are one to the ps (local_sync)
  ExpectedEnd end;
  bool lacks_best = false;  // the best epoch's checkpoint could not be written: the job ends with its last weights

  int32_t units() const { return spec.replicas() / group; }
  // Whether the job may end with the weights of this step.
  bool EndsWith(int64_t step) const { return step == end.weights || (lacks_best && step == end.steps); }
};

struct Copy {
  const std::string& ps;
  uint32_t partition;
  uint64_t generation;
  const PartitionState& state;
  const DenseContents& dense() const { return DenseContents::Of(state); }
};

// Promise 2: each (replica, step) once, in order, with all its examples.
class ExactlyOnceChecker {
 public:
  ExactlyOnceChecker(World& world, const JobFacts& facts) : world_(world), facts_(facts) {}
  void Logged(const std::string& ps, uint32_t partition, const v1::LogEntry& entry);
  void Changed(const Copy& copy);
  void AtEnd(const Copy& primary);

 private:
  World& world_;
  const JobFacts& facts_;
};

// Promise 3: every copy, at every moment, and every answer equals the sequential reference.
class ReferenceChecker {
 public:
  ReferenceChecker(World& world, const JobFacts& facts) : world_(world), facts_(facts) {}
  void Changed(const Copy& copy);
  void Answered(const std::string& ps, uint32_t partition, uint64_t version, v1::DataType type, const Buffer& payload);
  // The values that a user gets.
  void AtEnd(uint32_t partition, uint64_t version, const Buffer& values);

 private:
  bool IsSubset(const std::string& who, uint32_t partition, uint64_t version, absl::Span<const float> values);
  void Compare(const std::string& who, uint32_t partition, absl::Span<const float> values,
               const std::vector<float>* whole, float number, uint64_t version);
  World& world_;
  const JobFacts& facts_;
};

// Promise 1: a ps that serves a partition has every update that was acknowledged to a worker.
class AcknowledgedChecker {
 public:
  AcknowledgedChecker(World& world, const JobFacts& facts) : world_(world), facts_(facts), told_(facts.ranges.size()) {}
  // A worker was told in `generation` that the partition is at `version` and has this replica's updates up to
  // `sequence`.
  void Told(uint32_t partition, uint64_t generation, uint64_t version, uint32_t replica, uint64_t sequence);
  // From now on this copy serves. may_lose: missing updates are forgiven, not a violation.
  void Serves(const Copy& copy, bool may_lose);
  void AtEnd(const Copy& primary) { Serves(primary, false); }
  bool Lacks(const Copy& copy) const { return !Missing(copy).empty(); }
  void Restart() { told_.assign(facts_.ranges.size(), {}); }  // another job

 private:
  struct Partition {
    uint64_t version = 0;
    std::map<uint32_t, uint64_t> sequence;  // asynchronous, by replica
    uint64_t forgiven = 0;                  // late answers of older generations belong to the lost history
  };
  std::string Missing(const Copy& copy) const;
  World& world_;
  const JobFacts& facts_;
  std::vector<Partition> told_;
};

// Never two serving primaries: all answers about a partition form one history, and one ps at a time extends
// it.
class HistoryChecker {
 public:
  HistoryChecker(World& world, const JobFacts& facts)
      : world_(world), facts_(facts), partitions_(facts.ranges.size()) {}
  // The copy answers with its current version.
  void Answers(const Copy& copy);
  // Updates were lost, as the durability allows: a new history starts after `version`.
  void Forgive(uint32_t partition, uint64_t version, uint64_t generation);
  // Whether later versions than the copy's were seen by anyone.
  bool Behind(const Copy& copy) const;
  // The partition resumes from a checkpoint.
  void Restored(uint32_t partition, uint64_t generation) { partitions_[partition] = {{}, generation}; }
  void Restart() { partitions_.assign(facts_.ranges.size(), {}); }  // another job

 private:
  struct Moment {
    std::vector<uint64_t> sequences;
    std::string ps;
    uint64_t generation = 0;
  };
  struct Partition {
    std::map<uint64_t, Moment> moments;  // by version
    uint64_t forgiven = 0;               // copies of older generations belong to the lost history
  };
  World& world_;
  const JobFacts& facts_;
  std::vector<Partition> partitions_;
};

// Promise 4: every epoch visits each example once, counting the steps that were applied.
class EpochChecker {
 public:
  EpochChecker(World& world, const JobFacts& facts) : world_(world), facts_(facts) {}
  // A worker delivers a gradient of these places for (replica, step).
  void Computed(int64_t step, ReplicaId replica, PlaceRange places);
  void AtEnd(const Copy& primary);
  // Checks the epochs in the job's status: each step of each replica is counted once, whatever was killed. Steps before
  // the one that the job was restored at may be unknown.
  void Reported(const v1::JobStatus& status);
  // A job with other replicas resumes from this step.
  void Resumed(int64_t step);

 private:
  World& world_;
  const JobFacts& facts_;
  std::map<std::pair<int64_t, int32_t>, PlaceRange> computed_;
};

// Promise 5: a checkpoint is a consistent cut, and restoring it gives exactly its contents.
class CheckpointChecker {
 public:
  CheckpointChecker(World& world, const JobFacts& facts) : world_(world), facts_(facts) {}
  void Written(const std::string& path, const CheckpointContents& contents);
  // The copy was restored from the checkpoint.
  void Restored(const Copy& copy, const std::string& path, const CheckpointContents& contents);
  void Removed(const std::string& path, const CheckpointDirectory& left);
  void AtEnd(const v1::JobStatus& status, const CheckpointDirectory& directory);

 private:
  void WrittenPartition(const std::string& path, uint32_t partition, const CheckpointContents& contents);
  bool Same(uint32_t partition, absl::Span<const float> whole, absl::Span<const float> part) const;
  std::vector<uint64_t> OfUnits(const std::vector<uint64_t>& of_replicas) const;
  World& world_;
  const JobFacts& facts_;
};

// Promise 6: queues and waiting requests are bounded.
class BoundsChecker {
 public:
  explicit BoundsChecker(World& world) : world_(world) {}
  void Check(const PartitionCore& core);
  void Queue(const std::string& what, size_t length, size_t most);
  size_t longest() const { return longest_; }

 private:
  World& world_;
  size_t longest_ = 0;
};

// Once the faults stop, the job makes progress: at most `patience` without a step, until it ends.
class ProgressChecker {
 public:
  ProgressChecker(World& world, absl::Duration patience) : world_(world), patience_(patience) {}
  void FaultsStopped() { stopped_at_ = world_.now(); }
  // Any increase of `updates` counts as progress.
  void Reached(uint64_t updates);
  // True: there was no progress for too long.
  bool Stalled() const;
  absl::Duration longest() const { return longest_; }
  absl::Duration patience() const { return patience_; }

 private:
  World& world_;
  const absl::Duration patience_;
  std::optional<absl::Time> stopped_at_;
  absl::Time last_;
  uint64_t updates_ = 0;
  absl::Duration longest_;
};

struct Checkers {
  Checkers(World& world, const JobFacts& facts, absl::Duration patience)
      : exactly_once(world, facts),
        reference(world, facts),
        acknowledged(world, facts),
        history(world, facts),
        epoch(world, facts),
        checkpoint(world, facts),
        callbacks(world, facts),
        bounds(world),
        progress(world, patience),
        devices(world) {}
  ExactlyOnceChecker exactly_once;
  ReferenceChecker reference;
  AcknowledgedChecker acknowledged;
  HistoryChecker history;
  EpochChecker epoch;
  CheckpointChecker checkpoint;
  CallbackChecker callbacks;
  BoundsChecker bounds;
  ProgressChecker progress;
  DeviceChecker devices;
};

}  // namespace cairn::sim
