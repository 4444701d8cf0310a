// DeviceJoin: adds up the gradients of replicas on the devices that computed them (worker/backend/gradient_join.h).
//
// It walks the summation tree of the replicas that have examples, for each range of the parameter space by itself. A
// replica whose range is final adds it to the part that its sibling has left; if there is none yet, it leaves its own
// in memory of the join on its device, and is done. Every node is rounded to the type of the sum, in float32 memory.
// The replica that reaches the root packs the sum and copies it out. So no thread waits for another, ranges are copied
// out while the backward pass goes on, and the order of arrival changes no bit, since addition commutes. Between
// devices a partial sum is copied by Machine::CopyPeer.
//
// Thread-safe. Invariants:
//   1. A part that was left in the join is complete: its writer waited for the device before it left it.
//   2. A part that was taken out belongs to the thread that took it.
//
// PieceSum: adds up the pieces of a replica's step before they go to the join.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cairn/v1/commands.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"
#include "worker/backend/cudnn/machine.h"
#include "worker/backend/gradient_join.h"

namespace cairn::cudnn {

// Memory for partial sums, each of a whole parameter space, kept from step to step while the model is in use.
// Thread-safe.
class JoinMemory {
 public:
  absl::StatusOr<Block> Take(const std::shared_ptr<const Graph>& graph, Machine& machine);
  void Give(const std::shared_ptr<const Graph>& graph, int device, Block block);
  void DropGone();

 private:
  struct Spare {
    std::weak_ptr<const Graph> graph;
    int device = 0;
    Block block;
  };
  absl::Mutex mutex_;
  std::list<Spare> spares_ ABSL_GUARDED_BY(mutex_);
};

class DeviceJoin : public GradientJoin {
 public:
  // The gradient of a replica's step. Used on the replica's thread.
  struct Source {
    Machine& machine;
    float* gradient = nullptr;  // on the device, the whole space
    // The gradient is multiplied by `factor`, except in these ranges [begin, end), in order, which have no factor.
    float factor = 1;
    const std::vector<std::pair<int64_t, int64_t>>& not_scaled;
    char* rounded = nullptr;  // on the device, for the sum in its type; not used if that is float32
    char* pinned = nullptr;   // on the host, for the same
    // Calls `part` for each part of [from, to) with a single factor, in order. Stops at the first error.
    absl::Status EachPart(int64_t from, int64_t to,
                          const std::function<absl::Status(int64_t begin, int64_t end, float factor)>& part) const;
  };

  // Errors: INVALID_ARGUMENT if the options contradict one another or the graph.
  static absl::StatusOr<std::shared_ptr<DeviceJoin>> Make(std::shared_ptr<const Graph> graph, JoinOptions options,
                                                          std::shared_ptr<JoinMemory> memory);
  ~DeviceJoin() override;

  const std::vector<v1::PartitionRange>& ranges() const { return ranges_; }
  v1::DataType type() const { return options_.type; }
  bool HasLeaf(uint32_t leaf) const { return leaf < options_.leaves.size() && options_.leaves[leaf]; }
  // Adds the replica's range, which must be final and waited for. Called once for each leaf and range. Errors: those of
  // the machine.
  absl::Status Add(uint32_t leaf, uint32_t range, const Source& source, absl::Duration patience);

 private:
  struct Node {
    int parent = -1, sibling = -1;  // -1: it is the root
  };
  // Memory for a whole space on one device; some of its ranges are taken.
  struct Room {
    int device = 0;
    Block block;
    std::vector<char> taken;  // by range
  };
  // A partial sum of one range. room null: it is still in the source's gradient.
  struct Part {
    Room* room = nullptr;
    explicit operator bool() const { return room != nullptr; }
  };
  // What one Add has enqueued and not waited for yet.
  struct Work;

  DeviceJoin(std::shared_ptr<const Graph> graph, JoinOptions options, std::shared_ptr<JoinMemory> memory);
  int Grow(const TreeNode& node);  // adds its subtree and returns the root of it; -1: no replica there has examples

  absl::StatusOr<Room*> TakeRoom(Machine& machine, uint32_t range);
  absl::Status EachType(int64_t begin, int64_t end,
                        const std::function<absl::Status(DType type, int64_t begin, int64_t end)>& part) const;
  absl::Status Park(Work& work, Part* have);
  absl::Status AddTo(Work& work, Part other, Part* have);
  absl::Status Settle(Work& work);
  absl::Status GiveOut(Work& work, Part have);

  const std::shared_ptr<const Graph> graph_;
  const JoinOptions options_;
  Buffer into_;
  const std::shared_ptr<JoinMemory> memory_;
  std::vector<v1::PartitionRange> ranges_;
  std::vector<Node> nodes_;
  std::vector<int> leaves_;  // by leaf: its node
  absl::Mutex mutex_;
  std::vector<std::vector<Part>> left_
      ABSL_GUARDED_BY(mutex_);  // by range and node: parts that wait for their siblings
  std::list<Room> rooms_ ABSL_GUARDED_BY(mutex_);
};

// The sum of the gradients of a step's pieces (JobSpec.accumulate_steps), added on the device that computes them, in
// the order of the pieces: one gradient leaves it for any number of pieces. Used by one program. The bits are those of
// TrainPieces on the host (worker/train/accumulate.h).
class PieceSum {
 public:
  // Allocates memory for `numbers` numbers at the first call.
  absl::Status Prepare(Machine& machine, int64_t numbers);
  // Adds the numbers [begin, end) of the piece's gradient, times the source's factor; may overwrite them. first: sets
  // the sum instead of adding to it.
  absl::Status Add(const DeviceJoin::Source& piece, int64_t begin, int64_t end, bool first);
  float* sum() const { return sum_.as<float>(); }
  int64_t bytes() const { return sum_.bytes(); }

 private:
  Block sum_;
};

}  // namespace cairn::cudnn
