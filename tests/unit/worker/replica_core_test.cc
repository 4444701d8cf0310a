// Goal: whoever computes which replica, and whatever gets lost, repeated, moved or restarted on the way, a synchronous
// job ends with the bits of the sequential computation, an asynchronous one applies each replica's steps exactly once,
// and figures count each example once.
#include "worker/core/replica_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/fake_cluster.h"

namespace cairn {
namespace {

using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

void ExpectAllCountedOnce(const FakeCluster& cluster, const ClusterOptions& options) {
  for (int e = 0; e < options.epochs; ++e) {
    const v1::EpochFigures& figures = cluster.partition(0).figures().at(e);
    EXPECT_EQ(figures.train().examples(), static_cast<uint64_t>(options.examples)) << "epoch " << e;
    EXPECT_EQ(figures.replica_steps(), static_cast<uint64_t>(options.replicas * cluster.plan().steps_per_epoch))
        << "epoch " << e;
  }
}

void ExpectAllValidated(const FakeCluster& cluster, const ClusterOptions& options) {
  for (int e = 0; e < options.epochs; ++e) {
    uint64_t examples = 0;
    for (int r = 0; r < options.replicas; ++r) {
      const auto it = cluster.validated.find({r, e});
      ASSERT_NE(it, cluster.validated.end()) << "replica " << r << " epoch " << e;
      examples += it->second;
    }
    EXPECT_EQ(examples, static_cast<uint64_t>(options.validation_examples)) << "epoch " << e;
  }
}

TEST(ReplicaCoreTest, SynchronousEqualsTheSequentialComputationForAnyGrouping) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    ClusterOptions options;
    options.seed = seed;
    options.joins = seed / 90 % 2 == 1;
    options.replicas = 1 + static_cast<int>(seed % 6);  // the last batch of 4 leaves replicas without examples
    options.workers = 1 + static_cast<int>(seed / 6 % 3);
    options.partitions = 1 + static_cast<int>(seed / 18 % 4);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    FakeCluster cluster(options);
    ASSERT_TRUE(cluster.Run());
    ASSERT_THAT(cluster.FinalValues(), ElementsAreArray(cluster.ReferenceValues()));
    ExpectAllCountedOnce(cluster, options);
    ExpectAllValidated(cluster, options);
  }
}

TEST(ReplicaCoreTest, SynchronousBitsSurviveLossReassignmentRestartsMovesAndCrashes) {
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    ClusterOptions options;
    options.seed = seed;
    options.joins = seed / 90 % 2 == 1;
    options.replicas = 1 + static_cast<int>(seed % 6);
    options.workers = 1 + static_cast<int>(seed / 6 % 3);
    options.partitions = 1 + static_cast<int>(seed / 18 % 4);
    options.loss = seed % 2 == 0 ? 0.1 : 0;
    options.reassignments = static_cast<int>(seed % 5);
    options.ps_restarts = static_cast<int>(seed % 4);
    options.partition_moves = static_cast<int>(seed % 3);
    options.crashes = static_cast<int>(seed / 3 % 3);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    FakeCluster cluster(options);
    const bool done = cluster.Run();
    ASSERT_THAT(cluster.failures, IsEmpty());
    ASSERT_TRUE(done);
    ASSERT_THAT(cluster.FinalValues(), ElementsAreArray(cluster.ReferenceValues()));
    for (int p = 0; p < options.partitions; ++p) {
      EXPECT_EQ(cluster.partition(p).version(), static_cast<uint64_t>(cluster.plan().total_steps));
    }
    if (options.crashes == 0) ExpectAllValidated(cluster, options);
  }
}

// Two seeds of three.
void AddFaults(ClusterOptions* options) {
  const uint64_t seed = options->seed;
  if (seed % 3 == 0) return;
  options->loss = seed % 4 < 2 ? 0.1 : 0;
  options->reassignments = static_cast<int>(seed % 5);
  options->ps_restarts = static_cast<int>(seed % 4);
  options->partition_moves = static_cast<int>(seed % 3);
  options->crashes = static_cast<int>(seed / 3 % 3);
}

// Norms span partitions: two phases. Restarts lose measured sums, crashes leave partitions updated beside others that
// wait for their factors.
TEST(ReplicaCoreTest, ClippingByNormGivesTheBitsOfOneComputerWhateverHappens) {
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    ClusterOptions options;
    options.seed = seed;
    options.joins = seed / 90 % 2 == 1;
    options.replicas = 1 + static_cast<int>(seed % 6);
    options.workers = 1 + static_cast<int>(seed / 6 % 3);
    options.partitions = 1 + static_cast<int>(seed / 18 % 5);
    if (seed % 2 == 0) {
      options.global_clipnorm = 0.5;
    } else {
      options.clipnorm = 0.4;
    }
    AddFaults(&options);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    FakeCluster cluster(options);
    const bool done = cluster.Run();
    ASSERT_THAT(cluster.failures, IsEmpty());
    ASSERT_TRUE(done);
    ASSERT_THAT(cluster.FinalValues(), ElementsAreArray(cluster.ReferenceValues()));
    for (int p = 0; p < options.partitions; ++p) {
      EXPECT_EQ(cluster.partition(p).version(), static_cast<uint64_t>(cluster.plan().total_steps));
    }
  }
}

// Overflows come and go with the scale, which is doubled every other step: all partitions leave the same steps out,
// whoever fails.
TEST(ReplicaCoreTest, StepsThatAreNotFiniteAreLeftOutByAllPartitionsWhateverHappens) {
  int skips = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    ClusterOptions options;
    options.seed = seed;
    options.joins = seed / 90 % 2 == 1;
    options.loss_scale = seed % 2 == 0 ? 64 : 4;
    options.replicas = 1 + static_cast<int>(seed % 6);
    options.workers = 1 + static_cast<int>(seed / 6 % 3);
    options.partitions = 1 + static_cast<int>(seed / 18 % 5);
    if (seed % 5 == 0) options.global_clipnorm = 0.5;
    if (seed % 5 == 1) options.clipnorm = 0.4;
    AddFaults(&options);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    FakeCluster cluster(options);
    const bool done = cluster.Run();
    ASSERT_THAT(cluster.failures, IsEmpty());
    ASSERT_TRUE(done);
    ASSERT_THAT(cluster.FinalValues(), ElementsAreArray(cluster.ReferenceValues()));
    skips += cluster.ReferenceSkips();
    for (int p = 1; p < options.partitions; ++p) EXPECT_EQ(cluster.partition(p).scale(), cluster.partition(0).scale());
  }
  EXPECT_GT(skips, 1000);
}

// The bits are those of one computer, whatever the workers and whoever adds up.
TEST(ReplicaCoreTest, ShortWireTypesRoundEveryNodeAsTheReferenceDoes) {
  for (uint64_t seed = 1; seed <= 180; ++seed) {
    ClusterOptions options;
    options.seed = seed;
    options.replicas = 1 + static_cast<int>(seed % 9);
    options.batch_size = 18;
    options.workers = 1 + static_cast<int>(seed / 2 % 4);
    options.partitions = 1 + static_cast<int>(seed % 4);
    options.wire = std::vector<v1::DataType>{v1::BFLOAT16, v1::FLOAT16, v1::INT8, v1::INT4, v1::INT2}[seed % 5];
    if (seed / 7 % 2 == 0) options.values = std::vector<v1::DataType>{v1::INT8, v1::FLOAT32}[seed / 14 % 2];
    options.joins = seed / 3 % 2 == 0;
    options.reassignments = static_cast<int>(seed % 3);
    options.ps_restarts = static_cast<int>(seed / 5 % 2);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    FakeCluster cluster(options);
    ASSERT_TRUE(cluster.Run());
    ASSERT_THAT(cluster.FinalValues(), ElementsAreArray(cluster.ReferenceValues()));
  }
}

// A sum made by the node is the sum made here, rounded once; also where the only replica's gradient is only rounded
// there.
TEST(ReplicaCoreTest, SumsOfTheNodeAreRoundedAsThoseMadeHere) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    ClusterOptions options;
    options.seed = seed;
    options.replicas = 1 + static_cast<int>(seed % 6);
    options.workers = 1;
    options.synchronous = options.replicas > 1 || seed % 4 < 2;
    options.partitions = 1 + static_cast<int>(seed % 4);
    options.wire = std::vector<v1::DataType>{v1::FLOAT32, v1::BFLOAT16, v1::FLOAT16}[seed / 6 % 3];
    options.loss = seed % 2 == 0 ? 0.1 : 0;
    options.ps_restarts = static_cast<int>(seed % 4);
    options.partition_moves = static_cast<int>(seed % 3);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    FakeCluster here(options);
    ASSERT_TRUE(here.Run());
    EXPECT_EQ(here.node_sums, 0u);
    options.joins = true;
    FakeCluster there(options);
    ASSERT_TRUE(there.Run());
    ASSERT_THAT(there.FinalValues(), ElementsAreArray(here.FinalValues()));
    if (options.replicas == 1 && options.wire == v1::FLOAT32) {
      EXPECT_EQ(there.node_sums, 0u) << "nothing is to be done about it";
    } else {
      EXPECT_GT(there.node_sums, 0u);
    }
    ExpectAllCountedOnce(there, options);
  }
}

TEST(ReplicaCoreTest, AsynchronousAppliesEachStepOnce) {
  for (uint64_t seed = 1; seed <= 600; ++seed) {
    ClusterOptions options;
    options.seed = seed;
    options.synchronous = false;
    options.joins = seed / 15 % 2 == 1;
    if (options.joins) options.wire = v1::BFLOAT16;
    options.replicas = 1 + static_cast<int>(seed % 5);
    options.workers = 1 + static_cast<int>(seed / 5 % 3);
    options.loss = seed % 2 == 0 ? 0.1 : 0;
    const bool faults = seed % 3 == 0;
    options.reassignments = faults ? 3 : 0;
    options.ps_restarts = 2;
    options.partition_moves = static_cast<int>(seed % 3);
    options.crashes = faults ? 1 : 0;
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    FakeCluster cluster(options);
    const bool done = cluster.Run();
    ASSERT_THAT(cluster.failures, IsEmpty());
    ASSERT_TRUE(done);
    for (int p = 0; p < options.partitions; ++p) {
      const uint64_t steps = static_cast<uint64_t>(cluster.plan().total_steps);
      EXPECT_EQ(cluster.partition(p).version(), steps * static_cast<uint64_t>(options.replicas));
      for (int r = 0; r < options.replicas; ++r) EXPECT_EQ(cluster.partition(p).last(static_cast<uint32_t>(r)), steps);
    }
    if (!faults) {
      ExpectAllCountedOnce(cluster, options);
      ExpectAllValidated(cluster, options);
    }
  }
}

TEST(ReplicaCoreTest, BoundedStalenessHoldsBackTheFast) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    ClusterOptions options;
    options.seed = seed;
    options.synchronous = false;
    options.staleness = 1 + static_cast<int>(seed % 2);
    options.replicas = 2 + static_cast<int>(seed % 3);
    options.epochs = 4;
    options.loss = seed % 2 == 0 ? 0.05 : 0;
    options.reassignments = seed % 5 == 0 ? 3 : 0;
    options.ps_restarts = static_cast<int>(seed % 3);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    FakeCluster cluster(options);
    const bool done = cluster.Run();
    ASSERT_THAT(cluster.failures, IsEmpty());
    ASSERT_TRUE(done);
    // A replica at clock c computes c when the slowest is at c - s or beyond; its push makes the difference s + 1.
    EXPECT_LE(cluster.ahead_max, options.staleness + 1);
  }
}

TEST(ReplicaCoreTest, NoStepOfAnEpochBeforeItIsOpenAndTheSameBits) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    ClusterOptions options;
    options.seed = seed;
    options.joins = seed / 90 % 2 == 1;
    options.gated = true;
    options.epochs = 4;
    options.stop_after = seed % 3 == 0 ? 1 + static_cast<int>(seed / 3 % 3) : 0;
    options.replicas = 1 + static_cast<int>(seed % 5);
    options.workers = 1 + static_cast<int>(seed / 5 % 3);
    options.loss = seed % 2 == 0 ? 0.1 : 0;
    options.reassignments = static_cast<int>(seed % 4);
    options.ps_restarts = static_cast<int>(seed % 3);
    options.crashes = static_cast<int>(seed / 3 % 3);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    FakeCluster cluster(options);
    const bool done = cluster.Run();
    ASSERT_THAT(cluster.failures, IsEmpty());
    ASSERT_TRUE(done);
    ASSERT_THAT(cluster.FinalValues(), ElementsAreArray(cluster.ReferenceValues()));
    const int epochs = options.stop_after > 0 ? options.stop_after : options.epochs;
    EXPECT_EQ(cluster.plan().total_steps, epochs * cluster.plan().steps_per_epoch);
  }
}

TEST(ReplicaCoreTest, AsynchronousReplicasWaitForTheEpochToo) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    ClusterOptions options;
    options.seed = seed;
    options.gated = true;
    options.epochs = 3;
    options.stop_after = seed % 3 == 0 ? 2 : 0;
    options.synchronous = false;
    options.staleness = static_cast<int>(seed % 3);
    options.replicas = 1 + static_cast<int>(seed % 4);
    options.loss = seed % 2 == 0 ? 0.1 : 0;
    options.reassignments = static_cast<int>(seed % 3);
    options.ps_restarts = 1;
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    FakeCluster cluster(options);
    const bool done = cluster.Run();
    ASSERT_THAT(cluster.failures, IsEmpty());
    ASSERT_TRUE(done);
    const uint64_t steps = static_cast<uint64_t>(cluster.plan().total_steps);
    EXPECT_EQ(steps, static_cast<uint64_t>((options.stop_after > 0 ? 2 : 3) * cluster.plan().steps_per_epoch));
    for (int p = 0; p < options.partitions; ++p) {
      EXPECT_EQ(cluster.partition(p).version(), steps * static_cast<uint64_t>(options.replicas));
    }
  }
}

TEST(ReplicaCoreTest, ValidatesEveryNthEpochAndAtTheEnd) {
  ClusterOptions options;
  options.epochs = 5;
  options.validation_freq = 2;
  FakeCluster cluster(options);
  ASSERT_TRUE(cluster.Run());
  std::vector<int> epochs;
  for (const auto& [key, examples] : cluster.validated) {
    if (key.first == 0) epochs.push_back(key.second);
  }
  EXPECT_THAT(epochs, testing::ElementsAre(1, 3, 4));
}

TEST(ReplicaCoreTest, OneWorkerSendsOnePushAStepAndPartition) {
  ClusterOptions options;
  options.replicas = 4;
  options.workers = 1;
  options.partitions = 3;
  FakeCluster cluster(options);
  ASSERT_TRUE(cluster.Run());
  // Pulls at the start, then a push of the whole tree's root.
  EXPECT_EQ(cluster.sends, 3u + 3u * static_cast<uint64_t>(cluster.plan().total_steps));
}

}  // namespace
}  // namespace cairn
