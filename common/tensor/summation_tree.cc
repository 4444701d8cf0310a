#include "common/tensor/summation_tree.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/tensor/vectorize.h"

namespace cairn {
namespace {

// The node at level k (of 2^k replicas) that holds `replica`.
TreeNode NodeAt(uint32_t replica, int k, uint32_t replicas) {
  const uint64_t first = (uint64_t{replica} >> k) << k;
  const uint64_t end = std::min<uint64_t>(first + (uint64_t{1} << k), replicas);
  return {static_cast<uint32_t>(first), static_cast<uint32_t>(end - first)};
}

CAIRN_VECTORIZED void AddLoop(float* __restrict into, const float* __restrict from, size_t n) {
  for (size_t i = 0; i < n; ++i) into[i] += from[i];
}

void CollectMaximal(const TreeNode& node, absl::Span<const uint32_t> held, std::vector<TreeNode>& out) {
  if (held.empty()) return;
  if (held.size() == node.count) {
    out.push_back(node);
    return;
  }
  const TreeNode right = RightChild(node);
  const size_t cut = std::lower_bound(held.begin(), held.end(), right.first) - held.begin();
  CollectMaximal(LeftChild(node), held.subspan(0, cut), out);
  CollectMaximal(right, held.subspan(cut), out);
}

}  // namespace

std::string ToString(const TreeNode& node) {
  return absl::StrCat("[", node.first, ",", uint64_t{node.first} + node.count, ")");
}
std::ostream& operator<<(std::ostream& out, const TreeNode& node) { return out << ToString(node); }

bool IsNode(const TreeNode& node, uint32_t replicas) {
  if (node.count == 0 || node.first >= replicas || node.count > replicas - node.first) return false;
  const int k = std::bit_width(node.count - 1);  // the smallest level that has room for count replicas
  return NodeAt(node.first, k, replicas) == node;
}

TreeNode Parent(const TreeNode& node, uint32_t replicas) {
  CAIRN_CHECK(node.count < replicas, "the root has no parent");
  int k = std::bit_width(node.count - 1);
  TreeNode parent;
  do {
    parent = NodeAt(node.first, ++k, replicas);
  } while (parent.count == node.count);
  return parent;
}

TreeNode Sibling(const TreeNode& node, uint32_t replicas) {
  const TreeNode parent = Parent(node, replicas);
  const TreeNode left = LeftChild(parent);
  return node == left ? RightChild(parent) : left;
}

TreeNode LeftChild(const TreeNode& node) { return {node.first, std::bit_ceil(node.count) / 2}; }

TreeNode RightChild(const TreeNode& node) {
  const uint32_t half = std::bit_ceil(node.count) / 2;
  return {node.first + half, node.count - half};
}

std::vector<TreeNode> MaximalNodes(absl::Span<const uint32_t> held, uint32_t replicas) {
  std::vector<TreeNode> out;
  CollectMaximal(RootOf(replicas), held, out);
  return out;
}

void SumInto(absl::Span<float> into, absl::Span<const float> from) {
  CAIRN_CHECK(into.size() == from.size(), "gradients of different sizes");
  AddLoop(into.data(), from.data(), into.size());
}

GradientSum SumSubtree(const TreeNode& node, absl::Span<const GradientSum> leaves) {
  CAIRN_CHECK(leaves.size() == node.count && node.count > 0, "one leaf a replica");
  if (node.count == 1) return leaves[0].examples == 0 ? GradientSum{} : leaves[0];
  const TreeNode left_node = LeftChild(node);
  const GradientSum left = SumSubtree(left_node, leaves.subspan(0, left_node.count));
  const GradientSum right = SumSubtree(RightChild(node), leaves.subspan(left_node.count));
  if (right.examples == 0) return left;
  if (left.examples == 0) return right;
  SumInto(left.gradient, right.gradient);
  return {left.gradient, left.examples + right.examples};
}

}  // namespace cairn
