// Goal: placement is complete, balanced, deterministic, moves little, and keeps subtrees of the summation tree whole.
#include "coordinator/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/model/step_plan.h"

namespace cairn {
namespace {

std::map<NodeName, int> CountOf(const std::vector<NodeName>& owners) {
  std::map<NodeName, int> count;
  for (const NodeName& owner : owners) ++count[owner];
  return count;
}

int Moves(const std::vector<NodeName>& a, const std::vector<NodeName>& b) {
  int moves = 0;
  for (size_t i = 0; i < a.size(); ++i) moves += a[i] != b[i];
  return moves;
}

std::vector<WorkerCapacity> RandomWorkers(std::mt19937_64& random, int most) {
  std::vector<WorkerCapacity> workers;
  const int n = 1 + static_cast<int>(random() % most);
  for (int i = 0; i < n; ++i) workers.push_back({absl::StrCat("w", i), 1 + static_cast<int>(random() % 8)});
  return workers;
}

void ExpectQuotas(const std::vector<NodeName>& owners, const std::vector<WorkerCapacity>& workers) {
  int64_t slots = 0;
  for (const auto& w : workers) slots += w.slots;
  auto count = CountOf(owners);
  for (const auto& w : workers) {
    const int64_t scaled = static_cast<int64_t>(owners.size()) * w.slots;
    EXPECT_GE(count[w.name], scaled / slots) << w.name;
    EXPECT_LE(count[w.name], (scaled + slots - 1) / slots) << w.name;
  }
}

TEST(PlaceReplicas, TwoWorkersHoldASubtreeEach) {
  const std::vector<NodeName> owners = PlaceReplicas(4, {{"worker-0", 1}, {"worker-1", 1}});
  EXPECT_EQ(owners, (std::vector<NodeName>{"worker-0", "worker-0", "worker-1", "worker-1"}));
}

TEST(PlaceReplicas, InProportionToSlots) {
  const std::vector<NodeName> owners = PlaceReplicas(6, {{"small", 1}, {"big", 2}});
  EXPECT_EQ(owners, (std::vector<NodeName>{"big", "big", "big", "big", "small", "small"}));
}

TEST(PlaceReplicas, SharesThatArePowersOfTwoAreAlignedSubtrees) {
  const std::vector<std::vector<WorkerCapacity>> clusters = {{{"a", 1}, {"b", 1}, {"c", 2}},
                                                             {{"a", 4}, {"b", 2}, {"c", 1}, {"d", 1}},
                                                             {{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}}};
  for (const auto& workers : clusters) {
    int slots = 0;
    for (const auto& w : workers) slots += w.slots;
    for (int replicas = slots; replicas <= 64; replicas *= 2) {
      const std::vector<NodeName> owners = PlaceReplicas(replicas, workers);
      for (const auto& [name, count] : CountOf(owners)) {
        const auto first = std::find(owners.begin(), owners.end(), name) - owners.begin();
        EXPECT_EQ(first % count, 0) << name;                                 // aligned ...
        for (int i = 0; i < count; ++i) EXPECT_EQ(owners[first + i], name);  // ... and whole
      }
    }
  }
}

TEST(PlaceReplicas, RandomClustersGetTheirQuotas) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto workers = RandomWorkers(random, 12);
    const int replicas = 1 + static_cast<int>(random() % 200);
    const auto owners = PlaceReplicas(replicas, workers);
    ASSERT_EQ(owners.size(), static_cast<size_t>(replicas));
    ExpectQuotas(owners, workers);
    EXPECT_EQ(owners, PlaceReplicas(replicas, workers));
    std::set<NodeName> seen;  // each worker's replicas are one run
    for (size_t i = 0; i < owners.size(); ++i) {
      if (i == 0 || owners[i] != owners[i - 1]) {
        EXPECT_TRUE(seen.insert(owners[i]).second);
      }
    }
  }
}

TEST(AdoptOrphans, OnlyOrphansMove) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    auto workers = RandomWorkers(random, 8);
    const auto before = PlaceReplicas(1 + static_cast<int>(random() % 64), workers);
    const NodeName lost = workers[random() % workers.size()].name;
    std::erase_if(workers, [&](const auto& w) { return w.name == lost; });
    const auto after = AdoptOrphans(before, workers);
    for (size_t r = 0; r < before.size(); ++r) {
      if (before[r] != lost) {
        EXPECT_EQ(after[r], before[r]);
      } else {
        EXPECT_EQ(after[r].empty(), workers.empty());
      }
      EXPECT_NE(after[r], lost);
    }
  }
}

TEST(AdoptOrphans, TheLeastLoadedForItsSlotsTakesThem) {
  const std::vector<NodeName> before{"a", "a", "b", "b", "c", "c"};
  // b has room for 4, a for 2: b takes both.
  EXPECT_EQ(AdoptOrphans(before, {{"a", 2}, {"b", 4}}), (std::vector<NodeName>{"a", "a", "b", "b", "b", "b"}));
}

TEST(RebalanceReplicas, AJoinMovesAFairShareAndNoMore) {
  const std::vector<NodeName> before{"a", "a", "a", "a"};
  EXPECT_EQ(RebalanceReplicas(before, {{"a", 1}, {"b", 1}}), (std::vector<NodeName>{"a", "a", "b", "b"}));
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    auto workers = RandomWorkers(random, 8);
    const auto owners = PlaceReplicas(1 + static_cast<int>(random() % 64), workers);
    EXPECT_EQ(RebalanceReplicas(owners, workers), owners) << "balanced already";
    workers.push_back({"new", 1 + static_cast<int>(random() % 4)});
    const auto after = RebalanceReplicas(owners, workers);
    ExpectQuotas(after, workers);
    // Every move is to a worker that was below its new share, so it cannot be avoided: nobody both gives and takes.
    auto had = CountOf(owners), has = CountOf(after);
    int surplus = 0;
    for (const auto& [name, count] : had) surplus += std::max(0, count - has[name]);
    EXPECT_EQ(Moves(owners, after), surplus);
  }
}

TEST(PlacePartitions, BalancedByBytesWithinOnePartition) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::vector<PsLoad> ps;
    const int n = 1 + static_cast<int>(random() % 6);
    for (int i = 0; i < n; ++i) ps.push_back({absl::StrCat("ps-", i), random() % 10000});
    const auto partitions = CutPartitions(16 * (1 + static_cast<int64_t>(random() % 1000)), 64 * (1 + random() % 20));
    const auto owners = PlacePartitions(partitions, ps);
    ASSERT_EQ(owners.size(), partitions.size());
    EXPECT_EQ(owners, PlacePartitions(partitions, ps));
    std::map<NodeName, uint64_t> bytes;
    uint64_t largest = 0;
    for (const auto& p : ps) bytes[p.name] = 0;
    for (size_t i = 0; i < partitions.size(); ++i) {
      const uint64_t size = (partitions[i].end() - partitions[i].begin()) * 4;
      bytes.at(owners[i]) += size;
      largest = std::max(largest, size);
    }
    uint64_t most = 0, least = UINT64_MAX;
    for (const auto& [name, b] : bytes) {
      most = std::max(most, b);
      least = std::min(least, b);
    }
    EXPECT_LE(most - least, largest);
  }
}

TEST(PlacePartitions, SmallJobsSpreadOverThePsToo) {
  const auto one = CutPartitions(16, 64);
  EXPECT_EQ(PlacePartitions(one, {{"ps-0", 4096}, {"ps-1", 0}}), std::vector<NodeName>{"ps-1"});
}

TEST(ReplicaListText, Ranges) {
  EXPECT_EQ(ReplicaListText({}), "");
  EXPECT_EQ(ReplicaListText({3}), "3");
  EXPECT_EQ(ReplicaListText({2, 3}), "2,3");
  EXPECT_EQ(ReplicaListText({0, 1, 2, 5, 7, 8}), "0-2,5,7,8");
}

}  // namespace
}  // namespace cairn
