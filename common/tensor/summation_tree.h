// The summation tree of a job with R replicas: the order in which their gradients are added, whichever worker holds
// them (docs/architecture.md#summation-tree).
//
// Pure functions; any thread. A node is an aligned subtree [i * 2^k, min((i + 1) * 2^k, R)) of the replicas, named by
// its first replica and its count. Invariants:
//   1. Two nodes are disjoint, or one contains the other.
//   2. A node of more than one replica is the sum left + right of its
//      two children; a child that would lie entirely beyond R does not
//      exist, so that [4, 5) of R = 5 is one node, not three.
//   3. A child without examples adds nothing: the sum is the other child, bit for bit.
//   4. Every node, including leaves and root, is rounded to the job's wire type for gradients (GradientRounding).
//      So sending is exact, and it does not matter which nodes are sent and which are summed beforehand.
// Hence the sum of a node is a function of its replicas' gradients alone.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/tensor/gradient_rounding.h"

namespace cairn {

struct TreeNode {
  uint32_t first = 0;
  uint32_t count = 0;

  uint32_t end() const { return first + count; }
  bool Contains(const TreeNode& other) const { return first <= other.first && other.end() <= end(); }
  auto operator<=>(const TreeNode&) const = default;
};
std::string ToString(const TreeNode& node);  // "[4,8)"
std::ostream& operator<<(std::ostream& out, const TreeNode& node);

inline TreeNode RootOf(uint32_t replicas) { return {0, replicas}; }
// Whether [first, first + count) is a node; false for an empty range and for one that extends beyond R.
bool IsNode(const TreeNode& node, uint32_t replicas);
// `node` is not the root.
TreeNode Parent(const TreeNode& node, uint32_t replicas);
TreeNode Sibling(const TreeNode& node, uint32_t replicas);
// node.count > 1.
TreeNode LeftChild(const TreeNode& node);
TreeNode RightChild(const TreeNode& node);

// The minimal set of nodes that covers `held`: what a worker with these replicas pushes. `held` is sorted, without
// duplicates, all below R. The result is in order of `first`.
std::vector<TreeNode> MaximalNodes(absl::Span<const uint32_t> held, uint32_t replicas);

// A sum of gradients over `examples` examples. With examples == 0 the gradient is ignored and may be empty.
struct GradientSum {
  absl::Span<float> gradient;
  uint64_t examples = 0;
};
// Sums a node in place: leaves[i] is of replica node.first + i, and leaves.size() == node.count. The result's
// gradient is the memory of one of the leaves (empty if no leaf has examples); the others hold partial sums
// afterwards. The leaves need not be rounded.
GradientSum SumSubtree(const TreeNode& node, absl::Span<const GradientSum> leaves,
                       const GradientRounding& rounding = {});

}  // namespace cairn
