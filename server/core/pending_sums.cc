#include "server/core/pending_sums.h"

#include <utility>

#include "common/base/check.h"
#include "common/model/epoch_figures.h"

namespace cairn {

bool PendingSums::Holds(const TreeNode& node) const {
  auto after = sums_.upper_bound(node.first);
  return after != sums_.begin() && std::prev(after)->second.node.Contains(node);
}

bool PendingSums::Add(const TreeNode& node, Sum sum, MergeFn merge) {
  CAIRN_CHECK(IsNode(node, replicas_), "not a node of the tree");
  if (Holds(node)) return false;
  sums_.erase(sums_.lower_bound(node.first), sums_.lower_bound(node.end()));

  Held held{node, std::move(sum)};
  while (held.node.count < replicas_) {
    const TreeNode sibling = Sibling(held.node, replicas_);
    const auto it = sums_.find(sibling.first);
    if (it == sums_.end() || it->second.node != sibling) break;
    Sum other = std::move(it->second.sum);
    sums_.erase(it);
    const bool left = held.node.first < sibling.first;
    held.node = Parent(held.node, replicas_);
    held.sum = left ? Merge(std::move(held.sum), std::move(other), held.node, merge)
                    : Merge(std::move(other), std::move(held.sum), held.node, merge);
  }
  const uint32_t first = held.node.first;
  sums_.emplace(first, std::move(held));
  return true;
}

PendingSums::Sum PendingSums::TakeRoot() {
  CAIRN_CHECK(complete(), "the step is not complete");
  Sum root = std::move(sums_.begin()->second.sum);
  sums_.clear();
  return root;
}

uint32_t PendingSums::replicas_held() const {
  uint32_t n = 0;
  for (const auto& [first, held] : sums_) n += held.node.count;
  return n;
}

PendingSums::Sum PendingSums::TakeAll(MergeFn merge) {
  Sum all;
  TreeNode node;
  for (auto& [first, held] : sums_) {
    if (all.examples == 0) node.first = first;
    node.count = held.node.end() - node.first;
    all = Merge(std::move(all), std::move(held.sum), node, merge);
  }
  sums_.clear();
  return all;
}

PendingSums::Sum PendingSums::Merge(Sum left, Sum right, const TreeNode& node, MergeFn merge) {
  AddFigures(right.figures, left.figures);  // y + x has the same bits as x + y
  if (right.examples == 0) return left;
  if (left.examples == 0) return {std::move(right.gradient), right.examples, std::move(left.figures)};
  return {merge(node, std::move(left.gradient), std::move(right.gradient)), left.examples + right.examples,
          std::move(left.figures)};
}

}  // namespace cairn
