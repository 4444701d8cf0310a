// Goal: under random order, repetition, failover of replicas, lost replies and delayed persistence, the core gives the
// results of a naive model: synchronous, the weights of the plain recursive sum, bit for bit; asynchronous, each
// (replica, sequence) once.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "common/tensor/summation_tree.h"
#include "server/core/partition_core.h"
#include "tests/unit/server/server_test_util.h"
#include "tests/unit/test_seed.h"

namespace cairn {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'000'000);

// The gradient of one replica's step: a pure function, like a real one.
Buffer GradientOf(const PartitionConfig& c, uint32_t replica, uint64_t sequence) {
  std::mt19937 rng(static_cast<uint32_t>(replica * 7919 + sequence));
  std::normal_distribution<float> normal;
  Buffer b = Buffer::Allocate(c.size() * sizeof(float));
  for (float& f : b.mutable_floats()) f = normal(rng) * 100;
  return b;
}
uint64_t ExamplesOf(uint32_t replica, uint64_t sequence) { return (replica * 31 + sequence * 17) % 5; }

PendingSums::Sum NodeSum(const PartitionConfig& c, const TreeNode& node, uint64_t sequence) {
  std::vector<Buffer> memory;
  std::vector<GradientSum> leaves;
  for (uint32_t r = node.first; r < node.end(); ++r) {
    memory.push_back(GradientOf(c, r, sequence));
    leaves.push_back({memory.back().mutable_floats(), ExamplesOf(r, sequence)});
  }
  const GradientSum sum = SumSubtree(node, leaves);
  return {Buffer::CopyOf(sum.gradient.data(), sum.gradient.size() * sizeof(float)), sum.examples};
}

PartitionConfig AdamConfig(UpdateMode mode, uint32_t replicas) {
  PartitionConfig c = TestConfig(mode, replicas, 48);
  v1::Optimizer adam;
  adam.mutable_adam();
  Dense(c).optimizer = OptimizerRule::From(adam);
  Dense(c).segments = {{0, 17}, {32, 40, true, 0.9f}};
  return c;
}

v1::LogEntry Entry(uint64_t version, uint32_t first, uint32_t count, uint64_t sequence, uint64_t examples) {
  v1::LogEntry e;
  e.set_version(version);
  e.set_replica_first(first);
  e.set_replica_count(count);
  e.set_sequence(sequence);
  e.set_examples(examples);
  e.set_learning_rate(0.01f);
  return e;
}

TEST(PartitionCoreRandomTest, SynchronousBitsAreThoseOfTheNaiveSum) {
  const uint32_t seed0 = TestSeed();
  for (uint32_t round = 0; round < 150; ++round) {
    const uint32_t seed = seed0 + round;
    SCOPED_TRACE(seed);
    std::mt19937 rng(seed);
    const uint32_t replicas = 1 + rng() % 9;
    const PartitionConfig config = AdamConfig(UpdateMode::kSynchronous, replicas);
    PartitionCore core(config, PartitionState::Initial(config));
    PartitionState model = PartitionState::Initial(config);
    uint64_t sent = 0, answered = 0;
    for (uint64_t step = 1; step <= 6; ++step) {
      std::vector<TreeNode> pushes;
      while (core.version() < step) {
        if (pushes.empty()) {  // (another) owner of every replica: random sets of replicas, their maximal nodes
          const uint32_t workers = 1 + rng() % replicas;
          std::vector<std::vector<uint32_t>> held(workers);
          for (uint32_t r = 0; r < replicas; ++r) held[rng() % workers].push_back(r);
          for (const auto& h : held) {
            for (const TreeNode& n : MaximalNodes(h, replicas)) pushes.insert(pushes.end(), 1 + rng() % 2, n);
          }
          std::shuffle(pushes.begin(), pushes.end(), rng);
        }
        const TreeNode node = pushes.back();
        pushes.pop_back();
        PendingSums::Sum sum = NodeSum(config, node, step);
        PartitionEffects e = core.Step(FrameEvent{1, PushFrame(config, node.first, node.count, step,
                                                               std::move(sum.gradient), sum.examples, 0.01f)},
                                       kNow);
        ++sent;
        answered += e.replies.size();
        if (e.persists.empty()) continue;
        e.persists.clear();
        if (rng() % 2 == 0) {  // a repetition while the entry is under way
          sum = NodeSum(config, node, step);
          PartitionEffects again = core.Step(FrameEvent{1, PushFrame(config, node.first, node.count, step,
                                                                     std::move(sum.gradient), sum.examples, 0.01f)},
                                             kNow);
          ++sent;
          ASSERT_TRUE(again.replies.empty() && again.persists.empty());
        }
        e = core.Step(PersistedEvent{step}, kNow);
        answered += e.replies.size();
        for (const PartitionReply& r : e.replies) ASSERT_EQ(r.frame.version, step);
      }
      PendingSums::Sum root = NodeSum(config, RootOf(replicas), step);
      ApplyEntry(config, Entry(step, 0, replicas, step, root.examples), std::move(root.gradient), model);
      ASSERT_TRUE(SameBits(Dense(core.state()).values(), Dense(model).values()));
      const std::vector<Buffer>&slots = Dense(core.state()).slots(), &expected = Dense(model).slots();
      for (size_t s = 0; s < expected.size(); ++s) ASSERT_TRUE(SameBits(slots[s], expected[s]));
    }
    EXPECT_EQ(sent, answered);
    EXPECT_EQ(core.waiting(), 0u);
  }
}

// Asynchronous replicas that resend at random; the naive model applies what the log says.
void RunAsynchronous(UpdateMode mode) {
  const uint32_t seed0 = TestSeed();
  for (uint32_t round = 0; round < 100; ++round) {
    const uint32_t seed = seed0 + round;
    SCOPED_TRACE(seed);
    std::mt19937 rng(seed);
    const uint32_t replicas = 1 + rng() % 5;
    const uint64_t steps = 8;
    PartitionConfig config = AdamConfig(mode, replicas);
    PartitionCore core(config, PartitionState::Initial(config));
    PartitionState model = PartitionState::Initial(config);
    std::vector<uint64_t> clock(replicas, 0);  // last answered
    std::vector<Persist> log;                  // under way
    std::map<std::pair<uint32_t, uint64_t>, int> applied;
    const auto take = [&](PartitionEffects e) {
      for (Persist& p : e.persists) log.push_back(std::move(p));
      for (const PartitionReply& r : e.replies) {
        ASSERT_EQ(r.frame.kind, v1::ExchangeFrame::VALUES) << r.frame.status;
        uint64_t& c = clock[r.frame.replica_first.value];
        const uint64_t asked = r.frame.request_id % 1000;
        ASSERT_GE(r.frame.sequence, asked);
        if (asked == c + 1) c = asked;
      }
    };
    for (int guard = 0; *std::min_element(clock.begin(), clock.end()) < steps; ++guard) {
      ASSERT_LT(guard, 20000) << "no progress";
      if (!log.empty() && rng() % 2 == 0) {
        const size_t n = 1 + rng() % log.size();  // that many reach the store together
        for (size_t i = 0; i < n; ++i) {
          const v1::LogEntry entry = log[i].entry;
          ++applied[{entry.replica_first(), entry.sequence()}];
          ASSERT_TRUE(CheckEntry(config, model, entry, log[i].gradient.size()).ok());
          ApplyEntry(config, entry, Buffer::CopyOf(log[i].gradient.data(), log[i].gradient.size()), model);
        }
        const uint64_t version = log[n - 1].entry.version();
        log.erase(log.begin(), log.begin() + n);
        take(core.Step(PersistedEvent{version}, kNow));
        ASSERT_EQ(core.version(), version);
        ASSERT_TRUE(SameBits(Dense(core.state()).values(), Dense(model).values()));
        continue;
      }
      const uint32_t r = rng() % replicas;
      if (clock[r] == steps || core.waiting() > 2 * replicas) {
        if (rng() % 50 == 0) take(core.Step(ClientGoneEvent{1}, kNow));  // the stream broke: all is sent again
        continue;
      }
      const uint64_t sequence = std::max<uint64_t>(1, clock[r] + 1 - (rng() % 4 == 0));
      Frame f = PushFrame(config, r, 1, sequence, GradientOf(config, r, sequence), 1 + ExamplesOf(r, sequence), 0.01f);
      take(core.Step(FrameEvent{1, std::move(f)}, kNow));
      const auto [slowest, fastest] = std::minmax_element(clock.begin(), clock.end());
      if (mode == UpdateMode::kBoundedStaleness) {
        // Answered clocks c have min(applied) >= c - s.
        ASSERT_GE(
            *std::min_element(core.state().sequences.begin(), core.state().sequences.end()) + config.staleness_bound,
            *fastest)
            << *slowest;
      }
    }
    while (!log.empty()) {
      const v1::LogEntry entry = log.front().entry;
      ++applied[{entry.replica_first(), entry.sequence()}];
      log.erase(log.begin());
      core.Step(PersistedEvent{entry.version()}, kNow);
    }
    EXPECT_EQ(applied.size(), replicas * steps);
    for (const auto& [key, times] : applied) EXPECT_EQ(times, 1) << "replica " << key.first << " update " << key.second;
    EXPECT_EQ(core.version(), replicas * steps);
  }
}

TEST(PartitionCoreRandomTest, AsynchronousAppliesEachUpdateOnce) { RunAsynchronous(UpdateMode::kAsynchronous); }
TEST(PartitionCoreRandomTest, BoundedStalenessAppliesEachUpdateOnceWithinTheBound) {
  RunAsynchronous(UpdateMode::kBoundedStaleness);
}

}  // namespace
}  // namespace cairn
