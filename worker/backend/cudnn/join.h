// DeviceJoin: gradients of replicas added up on the devices that computed them (worker/backend/gradient_join.h).
//
// The summation tree of the replicas that have examples, for each range of the parameter space by itself. A replica
// whose range is final adds it to what its sibling has left; where nothing is there yet, it leaves its own in memory of
// the join on its device and goes. Every node is rounded to the type of the sum, and stays float32 in memory. Whoever
// comes last at the root packs the sum and copies it out. So no thread waits for another, ranges go out while the
// backward pass goes on, and who comes first changes no bit: the sum of two numbers is the same from both sides.
// Between devices a partial sum is copied by Machine::CopyPeer.
//
// Thread-safe. A part that lies in the join is complete: its writer waited for the device before it told of it. What
// was taken is its taker's alone.
//
// PieceSum: what a replica computes in pieces is added up before it goes there.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cairn/v1/cluster.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"
#include "worker/backend/cudnn/machine.h"
#include "worker/backend/gradient_join.h"

namespace cairn::cudnn {

// Memory for partial sums, each of a whole space, kept from step to step while the model is there. Thread-safe.
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
  // A replica's step, on its thread.
  struct Source {
    Machine& machine;
    float* gradient = nullptr;  // on the device, the whole space
    // The gradient is multiplied by `factor` but where it is none: [begin, end) of each, in order.
    float factor = 1;
    const std::vector<std::pair<int64_t, int64_t>>& not_scaled;
    char* rounded = nullptr;  // on the device, for the sum in its type; not used where that is float32
    char* pinned = nullptr;   // on the host, for the same
    // Of [from, to): each part that has one factor, in order. Stops at an error.
    absl::Status EachPart(int64_t from, int64_t to,
                          const std::function<absl::Status(int64_t begin, int64_t end, float factor)>& part) const;
  };

  // Errors: INVALID_ARGUMENT, the options contradict one another or the graph.
  static absl::StatusOr<std::shared_ptr<DeviceJoin>> Make(std::shared_ptr<const Graph> graph, JoinOptions options,
                                                          std::shared_ptr<JoinMemory> memory);
  ~DeviceJoin() override;

  const std::vector<v1::PartitionRange>& ranges() const { return ranges_; }
  v1::DataType type() const { return options_.type; }
  bool HasLeaf(uint32_t leaf) const { return leaf < options_.leaves.size() && options_.leaves[leaf]; }
  // The replica's numbers of the range are final, and the thread has waited for them. Once for each leaf and range.
  // Errors: those of the machine.
  absl::Status Add(uint32_t leaf, uint32_t range, const Source& source, absl::Duration patience);

 private:
  struct Node {
    int parent = -1, sibling = -1;  // -1: the root's
  };
  // Of one device, with numbers of some ranges.
  struct Room {
    int device = 0;
    Block block;
    std::vector<char> taken;  // by range
  };
  // A sum of one range; room: null: it still stands in the source's gradient.
  struct Part {
    Room* room = nullptr;
    explicit operator bool() const { return room != nullptr; }
  };
  // What one Add has under way.
  struct Work;

  DeviceJoin(std::shared_ptr<const Graph> graph, JoinOptions options, std::shared_ptr<JoinMemory> memory);
  int Grow(const TreeNode& node);  // the node of the tree that stands for it; -1: nobody there has examples

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
  std::vector<std::vector<Part>> left_ ABSL_GUARDED_BY(mutex_);  // by range and node: what waits for its sibling
  std::list<Room> rooms_ ABSL_GUARDED_BY(mutex_);
};

// The gradients of a step's pieces (JobSpec.accumulate_steps) added up on the device that computes them, in their
// order: what leaves it is one gradient, whatever the number of pieces. Of one program. The bits are those of
// TrainPieces on the host (worker/train/accumulate.h).
class PieceSum {
 public:
  // Memory for `numbers` numbers, at the first call.
  absl::Status Prepare(Machine& machine, int64_t numbers);
  // The numbers [begin, end) of the piece's gradient, times the source's factor; may write to the gradient. `first`:
  // nothing is in the sum yet.
  absl::Status Add(const DeviceJoin::Source& piece, int64_t begin, int64_t end, bool first);
  float* sum() const { return sum_.as<float>(); }
  int64_t bytes() const { return sum_.bytes(); }

 private:
  Block sum_;
};

}  // namespace cairn::cudnn
