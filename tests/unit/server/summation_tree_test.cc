// Goal: the summation tree gives the same bits as a naive recursive sum, whatever the order of arrival, the cut into
// nodes, repetitions and replicas without examples. Its nodes are exactly the aligned subtrees cut off at R.
#include "common/tensor/summation_tree.h"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <random>
#include <set>

#include "server/core/dense_partition.h"
#include "server/core/pending_sums.h"
#include "tests/unit/test_seed.h"

namespace cairn {
namespace {

constexpr size_t kSize = 48;

// The types in which gradients travel.
class SummationTreeTypeTest : public testing::TestWithParam<v1::DataType> {
 protected:
  GradientRounding rounding() const { return {GetParam(), 7, 3, 64, &layout_}; }
  const GradientLayout layout_ = {4, {{80, 96}}};
};
INSTANTIATE_TEST_SUITE_P(All, SummationTreeTypeTest,
                         testing::Values(v1::FLOAT32, v1::BFLOAT16, v1::FLOAT16, v1::INT8, v1::INT4, v1::INT2),
                         [](const auto& info) { return v1::DataType_Name(info.param); });

struct Leaf {
  std::vector<float> gradient;
  uint64_t examples = 0;
};

std::vector<Leaf> RandomLeaves(uint32_t replicas, std::mt19937& rng) {
  std::vector<Leaf> leaves(replicas);
  std::normal_distribution<float> normal;
  for (Leaf& leaf : leaves) {
    if (rng() % 6 == 0) continue;  // no examples
    leaf.examples = 1 + rng() % 50;
    for (size_t i = 0; i < kSize; ++i) leaf.gradient.push_back(normal(rng) * std::pow(10.0f, rng() % 7));
  }
  return leaves;
}

// The definition: the subtree of 2^k replicas from `first` on, cut off at R; every node is rounded.
Leaf NaiveSum(const std::vector<Leaf>& leaves, uint32_t first, uint32_t width, const GradientRounding& rounding) {
  if (first >= leaves.size()) return {};
  const TreeNode node = {first, std::min(width, static_cast<uint32_t>(leaves.size()) - first)};
  if (width == 1) {
    Leaf leaf = leaves[first];
    RoundGradient(rounding, node, absl::MakeSpan(leaf.gradient));
    return leaf;
  }
  Leaf left = NaiveSum(leaves, first, width / 2, rounding);
  const Leaf right = NaiveSum(leaves, first + width / 2, width / 2, rounding);
  if (right.examples == 0) return left;
  if (left.examples == 0) return right;
  for (size_t i = 0; i < kSize; ++i) left.gradient[i] = left.gradient[i] + right.gradient[i];
  RoundGradient(rounding, node, absl::MakeSpan(left.gradient));
  left.examples += right.examples;
  return left;
}
Leaf NaiveSum(const std::vector<Leaf>& leaves, const TreeNode& node, const GradientRounding& rounding) {
  uint32_t width = 1;
  while (width < node.count) width *= 2;
  return NaiveSum(leaves, node.first, width, rounding);
}

std::set<TreeNode> NaiveNodes(uint32_t replicas) {
  std::set<TreeNode> nodes;
  for (uint32_t width = 1; width < 2 * replicas; width *= 2) {
    for (uint32_t first = 0; first < replicas; first += width) {
      nodes.insert({first, std::min(width, replicas - first)});
    }
  }
  return nodes;
}

bool SameBits(const float* a, const std::vector<float>& b, size_t n) {
  return n == b.size() && (n == 0 || std::memcmp(a, b.data(), n * sizeof(float)) == 0);
}

Buffer ToBuffer(const std::vector<float>& v) { return Buffer::CopyOf(v.data(), v.size() * sizeof(float)); }

TEST(SummationTreeTest, NodesAreTheAlignedSubtrees) {
  for (uint32_t replicas = 1; replicas <= 33; ++replicas) {
    const std::set<TreeNode> nodes = NaiveNodes(replicas);
    for (uint32_t first = 0; first < replicas + 3; ++first) {
      for (uint32_t count = 0; count < replicas + 3; ++count) {
        EXPECT_EQ(IsNode({first, count}, replicas), nodes.contains({first, count}))
            << first << "+" << count << " of " << replicas;
      }
    }
    EXPECT_FALSE(IsNode({0, 0xffffffff}, replicas));
    EXPECT_FALSE(IsNode({0xffffffff, 1}, replicas));
    for (const TreeNode& node : nodes) {
      if (node.count > 1) {
        EXPECT_TRUE(nodes.contains(LeftChild(node)) && nodes.contains(RightChild(node)));
        EXPECT_EQ(LeftChild(node).end(), RightChild(node).first);
        EXPECT_EQ(RightChild(node).end(), node.end());
        EXPECT_EQ(Parent(LeftChild(node), replicas), node);
        EXPECT_EQ(Parent(RightChild(node), replicas), node);
        EXPECT_EQ(Sibling(LeftChild(node), replicas), RightChild(node));
        EXPECT_EQ(Sibling(RightChild(node), replicas), LeftChild(node));
      }
    }
  }
}

TEST(SummationTreeTest, MaximalNodesCoverASetWithTheFewestNodes) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  for (int round = 0; round < 500; ++round) {
    const uint32_t replicas = 1 + rng() % 33;
    std::vector<uint32_t> held;
    for (uint32_t r = 0; r < replicas; ++r) {
      if (rng() % 4 != 0) held.push_back(r);
    }
    std::vector<uint32_t> covered;
    const std::vector<TreeNode> nodes = MaximalNodes(held, replicas);
    const std::set<uint32_t> set(held.begin(), held.end());
    for (const TreeNode& node : nodes) {
      EXPECT_TRUE(IsNode(node, replicas));
      for (uint32_t r = node.first; r < node.end(); ++r) covered.push_back(r);
      if (node == RootOf(replicas)) continue;
      bool parent_held = true;  // otherwise the node would not be maximal
      const TreeNode parent = Parent(node, replicas);
      for (uint32_t r = parent.first; r < parent.end(); ++r) parent_held = parent_held && set.contains(r);
      EXPECT_FALSE(parent_held) << node;
    }
    EXPECT_EQ(covered, held);
  }
}

TEST_P(SummationTreeTypeTest, SubtreeSumsHaveTheBitsOfTheDefinition) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  for (uint32_t replicas = 1; replicas <= 33; ++replicas) {
    const std::vector<Leaf> leaves = RandomLeaves(replicas, rng);
    for (const TreeNode& node : NaiveNodes(replicas)) {
      std::vector<Leaf> memory(leaves.begin() + node.first, leaves.begin() + node.end());
      std::vector<GradientSum> spans;
      for (Leaf& leaf : memory) spans.push_back({absl::MakeSpan(leaf.gradient), leaf.examples});
      const GradientSum sum = SumSubtree(node, spans, rounding());
      const Leaf expected = NaiveSum(leaves, node, rounding());
      EXPECT_EQ(sum.examples, expected.examples);
      EXPECT_TRUE(SameBits(sum.gradient.data(), expected.gradient, sum.gradient.size())) << node << " of " << replicas;
    }
  }
}

// Cuts the replicas into random nodes, from the root down.
void RandomCut(const TreeNode& node, std::mt19937& rng, std::vector<TreeNode>& out) {
  if (node.count == 1 || rng() % 3 == 0) {
    out.push_back(node);
    return;
  }
  RandomCut(LeftChild(node), rng, out);
  RandomCut(RightChild(node), rng, out);
}

struct MergeRounded {
  GradientRounding rounding;
  Buffer operator()(const TreeNode& node, Buffer left, Buffer right) const {
    return MergeGradients(rounding, node, std::move(left), std::move(right));
  }
};

TEST_P(SummationTreeTypeTest, RootIsTheSameForEveryOrderCutAndRepetition) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  for (int round = 0; round < 1500; ++round) {
    const uint32_t replicas = 1 + round % 33;
    const std::vector<Leaf> leaves = RandomLeaves(replicas, rng);
    std::vector<TreeNode> arrivals;
    for (int cuts = 1 + rng() % 3; cuts > 0; --cuts) RandomCut(RootOf(replicas), rng, arrivals);
    std::shuffle(arrivals.begin(), arrivals.end(), rng);

    PendingSums pending(replicas);
    std::set<uint32_t> here;     // the naive model: which replicas have arrived
    std::vector<Buffer> shared;  // those must not be written to
    std::vector<Leaf> shared_bytes;
    for (const TreeNode& node : arrivals) {
      if (pending.complete()) break;
      bool contained = true;
      for (uint32_t r = node.first; r < node.end(); ++r) contained = contained && here.contains(r);
      EXPECT_EQ(pending.Holds(node), contained) << node << " of " << replicas;
      const Leaf sum = NaiveSum(leaves, node, rounding());
      Buffer gradient = ToBuffer(sum.gradient);
      if (rng() % 3 == 0) {
        shared.push_back(gradient);
        shared_bytes.push_back(sum);
      }
      EXPECT_EQ(pending.Add(node, {std::move(gradient), sum.examples}, MergeRounded{rounding()}), !contained);
      for (uint32_t r = node.first; r < node.end(); ++r) here.insert(r);
      EXPECT_EQ(pending.complete(), here.size() == replicas);
      EXPECT_LE(pending.size(), MaximalNodes(std::vector<uint32_t>(here.begin(), here.end()), replicas).size());
    }
    ASSERT_TRUE(pending.complete());
    const PendingSums::Sum root = pending.TakeRoot();
    const Leaf expected = NaiveSum(leaves, RootOf(replicas), rounding());
    EXPECT_EQ(root.examples, expected.examples);
    EXPECT_TRUE(SameBits(root.gradient.floats().data(), expected.gradient, root.gradient.size() / 4)) << replicas;
    EXPECT_EQ(pending.size(), 0u);
    for (size_t i = 0; i < shared.size(); ++i) {
      EXPECT_TRUE(SameBits(shared[i].floats().data(), shared_bytes[i].gradient, shared[i].size() / 4));
    }
  }
}

TEST(PendingSumsTest, MergingTakesNoNewMemory) {
  PendingSums pending(4);
  const Buffer zeros = Buffer::Zeros(64);
  std::set<const uint8_t*> given;
  for (uint32_t r : {2u, 0u, 3u, 1u}) {
    Buffer b = Buffer::CopyOf(zeros.data(), zeros.size());
    given.insert(b.data());
    pending.Add({r, 1}, {std::move(b), 1}, MergeRounded{});
  }
  EXPECT_TRUE(given.contains(pending.TakeRoot().gradient.data()));
}

}  // namespace
}  // namespace cairn
