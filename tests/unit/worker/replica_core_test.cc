// Goal: whoever computes which replica, and whatever gets lost, repeated, moved or restarted on the way, a synchronous
// job ends with the bits of the sequential computation, an asynchronous one applies each replica's steps exactly once,
// and figures count each example once.
#include "worker/replica_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/fake_cluster.h"

namespace cairn {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void ExpectAllCountedOnce(const FakeCluster& cluster, const ClusterOptions& options) {
  for (int r = 0; r < options.replicas; ++r) {
    for (int64_t s = 0; s < cluster.plan().total_steps; ++s) {
      const auto it = cluster.steps_reported.find({r, s});
      ASSERT_NE(it, cluster.steps_reported.end()) << "replica " << r << " step " << s;
      EXPECT_EQ(it->second, 1) << "replica " << r << " step " << s;
    }
  }
  for (int e = 0; e < options.epochs; ++e) {
    EXPECT_EQ(cluster.train_examples.at(e), static_cast<uint64_t>(options.examples)) << "epoch " << e;
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

// Norms span partitions: two phases. Restarts lose measured sums, crashes leave partitions updated beside others that wait for their factors.
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
    const bool faults = seed % 3 != 0;
    options.loss = faults && seed % 4 < 2 ? 0.1 : 0;
    options.reassignments = faults ? static_cast<int>(seed % 5) : 0;
    options.ps_restarts = faults ? static_cast<int>(seed % 4) : 0;
    options.partition_moves = faults ? static_cast<int>(seed % 3) : 0;
    options.crashes = faults ? static_cast<int>(seed / 3 % 3) : 0;
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

// Overflows come and go with the scale, which is doubled every other step: all partitions leave the same steps out, whoever fails.
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
    const bool faults = seed % 3 != 0;
    options.loss = faults && seed % 4 < 2 ? 0.1 : 0;
    options.reassignments = faults ? static_cast<int>(seed % 5) : 0;
    options.ps_restarts = faults ? static_cast<int>(seed % 4) : 0;
    options.partition_moves = faults ? static_cast<int>(seed % 3) : 0;
    options.crashes = faults ? static_cast<int>(seed / 3 % 3) : 0;
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

TEST(ReplicaCoreTest, ShortWireTypesRoundAsTheReferenceDoes) {
  // One replica a worker: sums of several are formed before rounding, which the reference here does not do.
  for (const v1::DataType wire : {v1::BFLOAT16, v1::FLOAT16}) {
    ClusterOptions options;
    options.replicas = 1;
    options.workers = 1;
    options.wire = wire;
    FakeCluster cluster(options);
    ASSERT_TRUE(cluster.Run());
    EXPECT_THAT(cluster.FinalValues(), ElementsAreArray(cluster.ReferenceValues()));
  }
}

// A sum made by the node is the sum made here, rounded once; also where the only replica's gradient is only rounded there.
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

// ---- single events ----

v1::AssignReplicas SmallAssignment() {
  v1::AssignReplicas message;
  message.set_job_id(3);
  message.set_generation(2);
  message.set_assignment(5);
  message.mutable_spec()->set_replicas(2);
  message.mutable_spec()->set_batch_size(4);
  message.mutable_spec()->set_epochs(1);
  message.mutable_spec()->mutable_optimizer()->set_learning_rate(0.5f);
  message.add_replicas(0);
  message.mutable_data()->set_train_examples(8);
  message.set_steps_per_epoch(2);
  message.set_total_steps(2);
  v1::Route* route = message.add_routes();
  route->mutable_range()->set_end(16);
  route->set_address("ps-0");
  return message;
}

template <typename T>
std::vector<T> Of(const replica::Effects& effects) {
  std::vector<T> found;
  for (const replica::Effect& effect : effects) {
    if (const T* t = std::get_if<T>(&effect)) found.push_back(*t);
  }
  return found;
}

Frame Values(uint64_t version, size_t numbers = 16) {
  Frame frame;
  frame.kind = v1::ExchangeFrame::VALUES;
  frame.version = version;
  frame.sequence = version;
  frame.dtype = v1::FLOAT32;
  frame.payload = Buffer::Zeros(numbers * 4);
  return frame;
}

class ReplicaCoreEventTest : public testing::Test {
 protected:
  replica::Effects Feed(replica::Event event) { return core_.Step(std::move(event), now_); }
  ReplicaCore core_;
  absl::Time now_ = absl::FromUnixSeconds(50);
};

TEST_F(ReplicaCoreEventTest, InvalidArgumentFailsTheJobOnceWithThePlace) {
  const auto pulls = Of<replica::Send>(Feed(replica::Assign{SmallAssignment()}));
  ASSERT_EQ(pulls.size(), 1u);
  const auto fails = Of<replica::Fail>(Feed(replica::Reply{pulls[0].request, absl::InvalidArgumentError("too big")}));
  ASSERT_EQ(fails.size(), 1u);
  EXPECT_THAT(fails[0].message, HasSubstr("partition 0 at ps-0: too big"));
  EXPECT_THAT(Feed(replica::Assign{SmallAssignment()}), IsEmpty());
  Feed(replica::Drop{});
  EXPECT_EQ(Of<replica::Send>(Feed(replica::Assign{SmallAssignment()})).size(), 1u);
}

TEST_F(ReplicaCoreEventTest, AnswersOfTheWrongSizeAreAskedForAgainAfterAPause) {
  auto pulls = Of<replica::Send>(Feed(replica::Assign{SmallAssignment()}));
  const auto effects = Feed(replica::Reply{pulls[0].request, Values(0, 8)});
  EXPECT_THAT(Of<replica::Send>(effects), IsEmpty());
  const auto timers = Of<replica::SetTimer>(effects);
  ASSERT_EQ(timers.size(), 1u);
  EXPECT_GE(timers[0].at - now_, absl::Milliseconds(20));
  EXPECT_LE(timers[0].at - now_, absl::Seconds(1));
  now_ = timers[0].at;
  pulls = Of<replica::Send>(Feed(replica::Timer{}));
  ASSERT_EQ(pulls.size(), 1u);
  EXPECT_EQ(Of<replica::Compute>(Feed(replica::Reply{pulls[0].request, Values(0)})).size(), 1u);
}

TEST_F(ReplicaCoreEventTest, ANewRouteIsUsedAtOnceAndAnOldAssignmentIgnored) {
  const auto pulls = Of<replica::Send>(Feed(replica::Assign{SmallAssignment()}));
  v1::AssignReplicas moved = SmallAssignment();
  moved.set_generation(3);
  moved.set_assignment(6);
  moved.mutable_routes(0)->set_address("ps-1");
  const auto again = Of<replica::Send>(Feed(replica::Assign{moved}));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].address, "ps-1");
  EXPECT_THAT(Feed(replica::Reply{pulls[0].request, Values(0)}), IsEmpty());
  EXPECT_THAT(Feed(replica::Assign{SmallAssignment()}), IsEmpty());
  EXPECT_EQ(core_.generation(), Generation(3));
}

TEST_F(ReplicaCoreEventTest, FencedPushesWaitForTheNewGenerationAndGoOutWithIt) {
  const auto pulls = Of<replica::Send>(Feed(replica::Assign{SmallAssignment()}));
  const auto computes = Of<replica::Compute>(Feed(replica::Reply{pulls[0].request, Values(0)}));
  ASSERT_EQ(computes.size(), 1u);
  EXPECT_EQ(computes[0].step, 0);
  const auto pushes = Of<replica::Send>(Feed(replica::GradientReady{computes[0].work, 0, 1}));
  ASSERT_EQ(pushes.size(), 1u);
  EXPECT_EQ(pushes[0].frame.generation, Generation(2));
  EXPECT_EQ(pushes[0].frame.sequence, 1u);
  EXPECT_EQ(pushes[0].frame.examples, 2u);
  EXPECT_EQ(pushes[0].frame.learning_rate, 0.5f);
  EXPECT_THAT(Of<replica::Send>(Feed(replica::Reply{pushes[0].request, absl::FailedPreconditionError("fenced")})),
              IsEmpty());
  v1::AssignReplicas raised = SmallAssignment();
  raised.set_generation(4);
  const auto again = Of<replica::Send>(Feed(replica::Assign{raised}));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].frame.generation, Generation(4));
}

TEST_F(ReplicaCoreEventTest, StartsOverWhenTheJobWentOnWithoutIt) {
  const auto pulls = Of<replica::Send>(Feed(replica::Assign{SmallAssignment()}));
  const auto computes = Of<replica::Compute>(Feed(replica::Reply{pulls[0].request, Values(0)}));
  const auto pushes = Of<replica::Send>(Feed(replica::GradientReady{computes[0].work, 0, 1}));
  const auto again = Of<replica::Send>(Feed(replica::Reply{pushes[0].request, Values(2)}));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].frame.kind, v1::ExchangeFrame::PULL);
  EXPECT_EQ(core_.step(), -1);
}

TEST_F(ReplicaCoreEventTest, AFailedComputationFailsTheJob) {
  const auto pulls = Of<replica::Send>(Feed(replica::Assign{SmallAssignment()}));
  const auto computes = Of<replica::Compute>(Feed(replica::Reply{pulls[0].request, Values(0)}));
  EXPECT_THAT(Feed(replica::Computed{computes[0].work + 1, absl::DataLossError("stale")}), IsEmpty());
  const auto fails =
      Of<replica::Fail>(Feed(replica::Computed{computes[0].work, absl::DataLossError("train.csv: row 3")}));
  ASSERT_EQ(fails.size(), 1u);
  EXPECT_EQ(fails[0].message, "train.csv: row 3");
}

TEST_F(ReplicaCoreEventTest, WrongAssignmentsAreRefusedWithAReason) {
  v1::AssignReplicas message = SmallAssignment();
  message.mutable_routes(0)->mutable_range()->set_begin(16);
  auto fails = Of<replica::Fail>(Feed(replica::Assign{message}));
  ASSERT_EQ(fails.size(), 1u);
  EXPECT_THAT(fails[0].message, HasSubstr("range of partition 0"));
  Feed(replica::Drop{});
  message = SmallAssignment();
  message.add_replicas(2);
  EXPECT_THAT(Of<replica::Fail>(Feed(replica::Assign{message}))[0].message, HasSubstr("no replica 2"));
  Feed(replica::Drop{});
  message = SmallAssignment();
  message.set_total_steps(9);
  EXPECT_THAT(Of<replica::Fail>(Feed(replica::Assign{message}))[0].message, HasSubstr("9 steps"));
}

TEST_F(ReplicaCoreEventTest, FinishedIsReportedUntilDropped) {
  auto sends = Of<replica::Send>(Feed(replica::Assign{SmallAssignment()}));
  auto effects = Feed(replica::Reply{sends[0].request, Values(2)});
  auto reports = Of<replica::Report>(effects);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_TRUE(reports[0].report.finished());
  EXPECT_EQ(reports[0].report.job_id(), 3u);
  auto timers = Of<replica::SetTimer>(effects);
  ASSERT_EQ(timers.size(), 1u);
  now_ = timers[0].at;
  EXPECT_EQ(Of<replica::Report>(Feed(replica::Timer{})).size(), 1u);
  Feed(replica::Drop{});
  now_ += absl::Seconds(10);
  EXPECT_THAT(Feed(replica::Timer{}), IsEmpty());
}

}  // namespace
}  // namespace cairn
