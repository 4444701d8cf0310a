#include "common/tensor/summation_tree.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace cairn {
namespace {

// The node at level k (a group of 2^k replicas) that contains `replica`.
TreeNode NodeAt(uint32_t replica, int k, uint32_t replicas) {
  const uint64_t first = (uint64_t{replica} >> k) << k;
  const uint64_t end = std::min<uint64_t>(first + (uint64_t{1} << k), replicas);
  return {static_cast<uint32_t>(first), static_cast<uint32_t>(end - first)};
}

// If leaves are rounded first, this many numbers of all leaves are processed at once, so that they stay in the L1 cache
// between roundings.
constexpr size_t kNumbersAtOnce = 2048;

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
  const int k = std::bit_width(node.count - 1);  // the lowest level with room for count replicas
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

namespace {

GradientSum SumLeaves(const TreeNode& node, absl::Span<const GradientSum> leaves, const GradientRounding& rounding) {
  if (node.count == 1) {
    if (leaves[0].examples == 0) return {};
    RoundGradient(rounding, node, leaves[0].gradient);
    return leaves[0];
  }
  const TreeNode left_node = LeftChild(node);
  const GradientSum left = SumLeaves(left_node, leaves.subspan(0, left_node.count), rounding);
  const GradientSum right = SumLeaves(RightChild(node), leaves.subspan(left_node.count), rounding);
  if (right.examples == 0) return left;
  if (left.examples == 0) return right;
  SumInto(rounding, node, left.gradient, right.gradient);
  return {left.gradient, left.examples + right.examples};
}

}  // namespace

GradientSum SumSubtree(const TreeNode& node, absl::Span<const GradientSum> leaves, const GradientRounding& rounding) {
  CAIRN_CHECK(leaves.size() == node.count && node.count > 0, "one leaf a replica");
  if (rounding.exact()) return SumLeaves(node, leaves, rounding);
  const auto whole =
      std::find_if(leaves.begin(), leaves.end(), [](const GradientSum& leaf) { return leaf.examples > 0; });
  if (whole == leaves.end()) return {};
  GradientSum sum = *whole;  // a sum whose right side has no examples, or the first summand
  const size_t size = whole->gradient.size();
  std::vector<GradientSum> some(leaves.begin(), leaves.end());
  for (size_t at = 0; at < size; at += kNumbersAtOnce) {
    for (size_t i = 0; i < some.size(); ++i) {
      if (some[i].examples > 0) some[i].gradient = leaves[i].gradient.subspan(at, kNumbersAtOnce);
    }
    sum.examples = SumLeaves(node, some, rounding.From(static_cast<int64_t>(at))).examples;
  }
  return sum;
}

}  // namespace cairn
