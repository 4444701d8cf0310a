// PendingSums: the gradients of an open step and their figures, added up along the summation tree as they
// arrive.
//
// Not thread-safe. Invariants:
//   1. The nodes held are disjoint, and no two of them are siblings: siblings are merged as soon as both are there.
//   2. At most one buffer per node is held; a merge reuses the memory of one of its sides if it is not shared.
//   3. The root's sum has the same bits for every order of arrival and every partition of the replicas into nodes.
#pragma once

#include <cstdint>
#include <map>

#include "absl/functional/function_ref.h"
#include "cairn/v1/job_status.pb.h"
#include "common/tensor/buffer.h"
#include "common/tensor/summation_tree.h"

namespace cairn {

class PendingSums {
 public:
  struct Sum {
    Buffer gradient;  // in the kind's form of sums; empty if examples == 0
    uint64_t examples = 0;
    v1::EpochFigures figures;  // first partition: figures of the training
  };

  // The gradient of a node from those of its two sides (PartitionKind::Merge).
  using MergeFn = absl::FunctionRef<Buffer(const TreeNode& node, Buffer left, Buffer right)>;

  explicit PendingSums(uint32_t replicas) : replicas_(replicas) {}

  // REQUIRES: IsNode(node, replicas). False: a sum that contains the node is held already, and the new one is dropped.
  // Otherwise it replaces the sums that it contains. The buffer is written to if it is unique().
  bool Add(const TreeNode& node, Sum sum, MergeFn merge);
  bool Holds(const TreeNode& node) const;  // completely, alone or as part of a larger sum
  bool complete() const { return sums_.size() == 1 && sums_.begin()->second.node == RootOf(replicas_); }
  // REQUIRES: complete(). Empties the tree.
  Sum TakeRoot();
  uint32_t replicas_held() const;
  // The sum of all nodes held, in the order of the replicas: without the tree's bits if nodes are missing. Empties
  // the tree.
  Sum TakeAll(MergeFn merge);
  size_t size() const { return sums_.size(); }

 private:
  struct Held {
    TreeNode node;
    Sum sum;
  };
  static Sum Merge(Sum left, Sum right, const TreeNode& node, MergeFn merge);

  uint32_t replicas_;
  std::map<uint32_t, Held> sums_;  // by first replica
};

}  // namespace cairn
