// Goal: placement is complete, balanced, deterministic, moves little, and keeps subtrees of the summation tree whole.
#include "coordinator/core/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

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

TEST(OfOneDevice, TheFirstKindThatThereIsEnoughOf) {
  const std::vector<WorkerCapacity> workers = {{"a", 1, v1::CPU}, {"b", 2, v1::GPU}, {"c", 3, v1::CPU}};
  const auto names = [](const std::vector<WorkerCapacity>& chosen) {
    std::string text;
    for (const WorkerCapacity& w : chosen) absl::StrAppend(&text, w.name, w.slots);
    return text;
  };
  EXPECT_EQ(names(OfOneDevice(workers, {v1::GPU, v1::CPU})), "b2");
  EXPECT_EQ(names(OfOneDevice(workers, {v1::CPU, v1::GPU})), "a1c3");
  EXPECT_EQ(names(OfOneDevice(workers, {v1::GPU, v1::CPU}, 2)), "a1c3")
      << "one GPU is not enough, and the kinds are not mixed";
  EXPECT_EQ(names(OfOneDevice(workers, {v1::GPU, v1::CPU}, 3)), "");
  EXPECT_EQ(names(OfOneDevice(workers, {v1::GPU})), "b2");
  EXPECT_EQ(names(OfOneDevice({}, {v1::GPU, v1::CPU})), "");
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
    // Every move goes to a worker that was below its new share, so it is necessary: nobody both gives and takes.
    auto had = CountOf(owners), has = CountOf(after);
    int surplus = 0;
    for (const auto& [name, count] : had) surplus += std::max(0, count - has[name]);
    EXPECT_EQ(Moves(owners, after), surplus);
  }
}

std::vector<PsLoad> RandomPs(std::mt19937_64& random, int most) {
  std::vector<PsLoad> ps;
  const int n = 1 + static_cast<int>(random() % most);
  for (int i = 0; i < n; ++i)
    ps.push_back({absl::StrCat("ps-", i), absl::StrCat("host-", random() % 3), random() % 10000});
  return ps;
}

std::vector<v1::PartitionRange> RandomPartitions(std::mt19937_64& random) {
  return CutPartitions(16 * (1 + static_cast<int64_t>(random() % 1000)), 64 * (1 + random() % 20));
}

uint64_t Bytes(const v1::PartitionRange& range) { return (range.end() - range.begin()) * 4; }

std::pair<uint64_t, uint64_t> LeastAndMost(const std::map<NodeName, uint64_t>& bytes) {
  uint64_t most = 0, least = UINT64_MAX;
  for (const auto& [name, b] : bytes) {
    most = std::max(most, b);
    least = std::min(least, b);
  }
  return {least, most};
}

TEST(PlacePartitions, BalancedByBytesWithinOnePartition) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const std::vector<PsLoad> ps = RandomPs(random, 6);
    const auto partitions = RandomPartitions(random);
    const auto placed = PlacePartitions(partitions, ps, 0);
    ASSERT_EQ(placed.size(), partitions.size());
    std::map<NodeName, uint64_t> bytes;
    uint64_t largest = 0;
    for (const auto& p : ps) bytes[p.name] = 0;
    for (size_t i = 0; i < partitions.size(); ++i) {
      EXPECT_TRUE(placed[i].backups.empty());
      bytes.at(placed[i].primary) += Bytes(partitions[i]);
      largest = std::max(largest, Bytes(partitions[i]));
    }
    const auto [least, most] = LeastAndMost(bytes);
    EXPECT_LE(most - least, largest);
  }
}

TEST(PlacePartitions, ThePartsOfAFirstPartitionDoNotTipTheBalance) {
  constexpr int64_t kThree = int64_t{3} << 20;  // cut into an eighth, an eighth, a quarter, a half, and a whole one
  const auto partitions = CutPartitions(2 * kThree / 4, kThree);
  ASSERT_EQ(partitions.size(), 5u);
  std::map<NodeName, uint64_t> bytes;
  const auto placed = PlacePartitions(partitions, {{"ps-0", "a", 0}, {"ps-1", "b", 0}}, 0);
  for (size_t i = 0; i < placed.size(); ++i) bytes[placed[i].primary] += Bytes(partitions[i]);
  EXPECT_EQ(bytes["ps-0"], static_cast<uint64_t>(kThree));
  EXPECT_EQ(bytes["ps-1"], static_cast<uint64_t>(kThree));
}

TEST(PlacePartitions, CopiesLieOnDifferentPsAndHosts) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const std::vector<PsLoad> ps = RandomPs(random, 6);
    std::map<NodeName, std::string> host;
    std::set<std::string> hosts;
    for (const PsLoad& p : ps) hosts.insert(host[p.name] = p.host);
    const auto partitions = RandomPartitions(random);
    const int backups = static_cast<int>(random() % 4);
    for (const PartitionCopies& copies : PlacePartitions(partitions, ps, backups)) {
      std::set<NodeName> names{copies.primary};
      names.insert(copies.backups.begin(), copies.backups.end());
      EXPECT_EQ(names.size(), 1 + copies.backups.size()) << "each on its own ps";
      EXPECT_EQ(names.size(), std::min<size_t>(ps.size(), 1 + backups));
      std::set<std::string> used;
      for (const NodeName& name : names) used.insert(host[name]);
      EXPECT_EQ(used.size(), std::min(hosts.size(), names.size())) << "as many hosts as can be";
    }
  }
}

// By a search through all ps for each copy.
std::vector<PartitionCopies> PlaceNaively(const std::vector<v1::PartitionRange>& partitions, std::vector<PsLoad> ps,
                                          int backups) {
  std::vector<size_t> order(partitions.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return Bytes(partitions[a]) > Bytes(partitions[b]); });
  std::map<bool, std::map<NodeName, uint64_t>> own;  // as primary, as backup
  std::vector<PartitionCopies> placed(partitions.size());
  for (const size_t partition : order) {
    std::vector<NodeName> holders;
    std::vector<std::string> hosts;
    while (holders.size() < std::min<size_t>(ps.size(), 1 + backups)) {
      const bool primary = holders.empty();
      const auto cost = [&](const PsLoad& p) {
        const bool held = std::find(holders.begin(), holders.end(), p.name) != holders.end();
        const bool host_taken = std::find(hosts.begin(), hosts.end(), p.host) != hosts.end();
        return std::tuple(held, host_taken, own[primary][p.name], p.bytes, p.name);
      };
      const auto best =
          std::min_element(ps.begin(), ps.end(), [&](const PsLoad& a, const PsLoad& b) { return cost(a) < cost(b); });
      own[primary][best->name] += Bytes(partitions[partition]);
      best->bytes += Bytes(partitions[partition]);
      holders.push_back(best->name);
      hosts.push_back(best->host);
    }
    placed[partition].primary = holders[0];
    placed[partition].backups.assign(holders.begin() + 1, holders.end());
  }
  return placed;
}

TEST(PlacePartitions, IsThatOfTheNaiveSearch) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const std::vector<PsLoad> ps = RandomPs(random, 9);
    const auto partitions = RandomPartitions(random);
    const int backups = static_cast<int>(random() % 4);
    const auto placed = PlacePartitions(partitions, ps, backups), naive = PlaceNaively(partitions, ps, backups);
    for (size_t i = 0; i < partitions.size(); ++i) {
      EXPECT_EQ(placed[i].primary, naive[i].primary) << "partition " << i;
      EXPECT_EQ(placed[i].backups, naive[i].backups) << "partition " << i;
    }
  }
}

TEST(PlacePartitions, SmallJobsSpreadOverThePsToo) {
  const auto one = CutPartitions(16, 64);
  EXPECT_EQ(PlacePartitions(one, {{"ps-0", "h", 4096}, {"ps-1", "h", 0}}, 0)[0].primary, "ps-1");
}

TEST(PickCopy, AnotherHostThenTheFewestBytes) {
  const std::vector<PsLoad> ps{{"a", "h1", 0}, {"b", "h1", 1}, {"c", "h2", 9}, {"d", "h3", 5}};
  EXPECT_EQ(PickCopy({"a"}, {"h1"}, ps), "d");
  EXPECT_EQ(PickCopy({"a", "d"}, {"h1", "h3"}, ps), "c");
  EXPECT_EQ(PickCopy({"a", "c", "d"}, {"h1", "h2", "h3"}, ps), "b") << "the same host rather than none";
  EXPECT_EQ(PickCopy({"a", "b", "c", "d"}, {}, ps), "");
  EXPECT_EQ(PickCopy({}, {}, {}), "");
}

// A ps joins: few moves, each an improvement, and in the end the same bound as for a new placement.
TEST(NextPrimaryMove, EndsBalanced) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::vector<PsLoad> ps = RandomPs(random, 5);
    const auto partitions = RandomPartitions(random);
    auto copies = PlacePartitions(partitions, ps, static_cast<int>(random() % 3));
    std::vector<uint64_t> bytes;
    uint64_t largest = 0, total = 0;
    for (const auto& range : partitions) {
      bytes.push_back(Bytes(range));
      total += bytes.back();
      largest = std::max(largest, bytes.back());
    }
    ps.push_back({"new", "host-9", 0});
    size_t moves = 0;
    while (auto move = NextPrimaryMove(bytes, copies, ps)) {
      ASSERT_LT(moves++, 2 * partitions.size()) << "it does not end";
      copies[move->partition].primary = move->to;
    }
    std::map<NodeName, uint64_t> own;
    for (const auto& p : ps) own[p.name] = 0;
    for (size_t i = 0; i < copies.size(); ++i) own[copies[i].primary] += bytes[i];
    const auto [least, most] = LeastAndMost(own);
    EXPECT_LE(most - least, largest);
    EXPECT_LE(moves, partitions.size() / ps.size() + 2) << "no more than the new one's share";
  }
}

TEST(NextPrimaryMove, AChangeOfRolesFirst) {
  const std::vector<uint64_t> bytes(4, 64);
  const std::vector<PartitionCopies> copies{{"a", {"c"}}, {"a", {"b"}}, {"a", {"c"}}, {"a", {"c"}}};
  const auto move = NextPrimaryMove(bytes, copies, {{"a", "h", 0}, {"b", "h", 0}});
  ASSERT_TRUE(move.has_value());
  EXPECT_EQ(move->partition, 1u);
  EXPECT_EQ(move->to, "b");
  EXPECT_FALSE(NextPrimaryMove(bytes, copies, {{"a", "h", 0}}).has_value());
}

// The same for backups: never two copies on one ps, and no partition whose copies newly share a host.
TEST(NextBackupMove, EndsBalanced) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::vector<PsLoad> ps = RandomPs(random, 5);
    for (size_t i = 0; i < ps.size(); ++i) ps[i].host = absl::StrCat("host-", i);
    const auto partitions = RandomPartitions(random);
    auto copies = PlacePartitions(partitions, ps, 1 + static_cast<int>(random() % 2));
    std::vector<uint64_t> bytes;
    uint64_t largest = 0;
    for (const auto& range : partitions) {
      bytes.push_back(Bytes(range));
      largest = std::max(largest, bytes.back());
    }
    ps.push_back({"new", "host-9", 0});
    size_t moves = 0;
    while (auto move = NextBackupMove(bytes, copies, ps)) {
      ASSERT_LT(moves++, 4 * partitions.size()) << "it does not end";
      PartitionCopies& c = copies[move->partition];
      ASSERT_NE(c.primary, move->to);
      ASSERT_EQ(std::count(c.backups.begin(), c.backups.end(), move->to), 0);
      ASSERT_EQ(std::count(c.backups.begin(), c.backups.end(), move->from), 1);
      std::replace(c.backups.begin(), c.backups.end(), move->from, move->to);
    }
    std::map<NodeName, uint64_t> own;
    for (const auto& p : ps) own[p.name] = 0;
    for (size_t i = 0; i < copies.size(); ++i) {
      for (const NodeName& b : copies[i].backups) own[b] += bytes[i];
    }
    uint64_t most = 0;
    for (const auto& [name, sum] : own) most = std::max(most, sum);
    EXPECT_LE(most, own["new"] + largest) << "the new one has its share";
  }
}

TEST(NextBackupMove, KeepsHostsApart) {
  const std::vector<uint64_t> bytes(4, 64);
  const std::vector<PsLoad> ps{{"a", "h1", 0}, {"b", "h2", 0}, {"c", "h1", 0}};
  EXPECT_FALSE(NextBackupMove(bytes, {{"a", {"b"}}, {"a", {"b"}}, {"a", {"b"}}, {"a", {"b"}}}, ps).has_value());
  const auto move = NextBackupMove(bytes, {{"a", {"b"}}, {"b", {"a"}}, {"b", {"a"}}, {"b", {"a"}}}, ps);
  ASSERT_TRUE(move.has_value());
  EXPECT_EQ(std::pair(move->from, move->to), std::pair(NodeName("a"), NodeName("c")));
}

TEST(ReplicaListText, Ranges) {
  EXPECT_EQ(ReplicaListText({}), "");
  EXPECT_EQ(ReplicaListText({3}), "3");
  EXPECT_EQ(ReplicaListText({2, 3}), "2,3");
  EXPECT_EQ(ReplicaListText({0, 1, 2, 5, 7, 8}), "0-2,5,7,8");
}

}  // namespace
}  // namespace cairn
