// Goal: ReplicaDriver carries effects out in order and one event at a time, whoever brings it and whenever; tells what
// an assignment changed; keeps the first failure; and does nothing more after Drop.
#include "worker/core/replica_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

v1::AssignReplicas Assignment(uint64_t number, std::vector<int32_t> replicas) {
  v1::AssignReplicas message;
  message.set_job_id(3);
  message.set_generation(2);
  message.set_assignment(number);
  message.mutable_spec()->set_replicas(4);
  message.mutable_spec()->set_batch_size(8);
  message.mutable_spec()->set_epochs(1);
  message.mutable_spec()->mutable_optimizer()->set_learning_rate(0.5f);
  for (int32_t replica : replicas) message.add_replicas(replica);
  message.mutable_data()->set_train_examples(16);
  message.set_steps_per_epoch(2);
  message.set_total_steps(2);
  v1::Route* route = message.add_routes();
  route->mutable_range()->set_end(16);
  route->set_address("ps-0");
  return message;
}

Frame Values(uint64_t version) {
  Frame frame;
  frame.kind = v1::ExchangeFrame::VALUES;
  frame.version = frame.sequence = version;
  frame.dtype = v1::FLOAT32;
  frame.payload = Buffer::Zeros(64);
  return frame;
}

// Writes down what it is told, and may answer a pull while it is called, as a slot or a connection of the same thread
// would.
class Written : public ReplicaEnvironment {
 public:
  absl::Time Now() override { return now; }
  void BeginAssignment(const Assignment& assignment) override {
    said.push_back("assignment " + std::to_string(assignment->assignment()));
  }
  void SendToPs(replica::Send send) override {
    said.push_back("send begins");
    requests.push_back(send.request);
    if (driver != nullptr) driver->Post(replica::Reply{send.request, Values(0)});
    said.push_back("send ends");
  }
  void Compute(replica::Compute compute) override {
    said.push_back("compute " + std::to_string(compute.replica.value));
    works.push_back(compute.work);
  }
  void Evaluate(replica::Evaluate) override { said.push_back("evaluate"); }
  void GiveWeights(const replica::WeightsHere&) override { said.push_back("weights"); }
  void StopWork(uint64_t) override { said.push_back("stop"); }
  void TakeCheckpoint(replica::TakeCheckpoint, const Assignment&) override { said.push_back("checkpoint"); }
  void TakeDigest(replica::TakeDigest take) override { said.push_back("digest " + std::to_string(take.step)); }
  void Report(v1::ReplicaReport) override { said.push_back("report"); }
  void WakeAt(absl::Time at) override { wakes.push_back(at); }
  void Fail(const std::string& message) override { said.push_back("fail " + message); }

  absl::Time now = absl::FromUnixSeconds(10);
  ReplicaDriver* driver = nullptr;  // answers pulls at once
  std::vector<std::string> said;
  std::vector<uint64_t> requests, works;
  std::vector<absl::Time> wakes;
};

class ReplicaDriverTest : public testing::Test {
 protected:
  Written environment_;
  ReplicaDriver driver_{JobId(3), ReplicaCoreOptions(), environment_};
};

TEST_F(ReplicaDriverTest, AnEventDuringAnEffectIsHandledAfterIt) {
  environment_.driver = &driver_;
  ASSERT_TRUE(driver_.Assign(Assignment(5, {0, 1})));
  EXPECT_THAT(environment_.said, ElementsAre("assignment 5", "send begins", "send ends", "compute 0", "compute 1"));
}

TEST_F(ReplicaDriverTest, TellsWhatAnAssignmentChanged) {
  const auto first = driver_.Assign(Assignment(5, {0, 1, 2}));
  ASSERT_TRUE(first);
  EXPECT_TRUE(first->news);
  EXPECT_THAT(first->left, IsEmpty());
  const auto same = driver_.Assign(Assignment(6, {0, 1, 2}));
  ASSERT_TRUE(same);
  EXPECT_FALSE(same->news);
  const auto fewer = driver_.Assign(Assignment(7, {1, 3}));
  ASSERT_TRUE(fewer);
  EXPECT_TRUE(fewer->news);
  EXPECT_THAT(fewer->left, ElementsAre(0, 2));
  v1::AssignReplicas raised = Assignment(8, {1, 3});
  raised.set_generation(3);
  EXPECT_TRUE(driver_.Assign(raised)->news);
  environment_.said.clear();
  EXPECT_FALSE(driver_.Assign(Assignment(6, {0}))) << "an older one";
  EXPECT_THAT(environment_.said, IsEmpty());
  EXPECT_THAT(driver_.held().replicas(), ElementsAre(1, 3));
  EXPECT_EQ(driver_.held().generation(), 3u);
}

TEST_F(ReplicaDriverTest, HasNothingBeforeItsFirstAssignment) {
  EXPECT_EQ(driver_.assignment(), nullptr);
  EXPECT_EQ(driver_.progress(), std::nullopt);
  EXPECT_EQ(driver_.held().job_id(), 3u);
  EXPECT_THAT(driver_.held().replicas(), IsEmpty());
  EXPECT_EQ(driver_.failure(), std::nullopt);
  driver_.Post(replica::Reply{1, Values(0)});
  EXPECT_THAT(environment_.said, IsEmpty()) << "an answer to a former life";
}

TEST_F(ReplicaDriverTest, ProgressIsOfOneMoment) {
  driver_.Assign(Assignment(5, {0}));
  EXPECT_EQ(driver_.progress(), std::nullopt) << "no step is known yet";
  driver_.Post(replica::Reply{environment_.requests.at(0), Values(1)});
  auto progress = driver_.progress();
  ASSERT_TRUE(progress);
  EXPECT_EQ(progress->step(), 1);
  EXPECT_EQ(progress->assignment(), 5u);
  EXPECT_EQ(progress->generation(), 2u);
}

TEST_F(ReplicaDriverTest, ABadAssignmentIsAFailureThatIsKept) {
  v1::AssignReplicas bad = Assignment(5, {0});
  bad.mutable_routes(0)->mutable_range()->set_end(15);
  driver_.Assign(bad);
  ASSERT_TRUE(driver_.failure());
  EXPECT_THAT(*driver_.failure(), HasSubstr("the range of partition 0"));
  EXPECT_THAT(environment_.said, ElementsAre("assignment 5", "fail " + *driver_.failure()));
  driver_.Assign(Assignment(6, {0}));
  EXPECT_THAT(environment_.requests, IsEmpty()) << "the job cannot go on here";
}

TEST_F(ReplicaDriverTest, AWakeUpThatComesTooEarlyIsAskedForAgain) {
  driver_.Assign(Assignment(5, {0}));
  driver_.Post(replica::Reply{environment_.requests.at(0), absl::UnavailableError("away")});
  ASSERT_THAT(environment_.wakes, SizeIs(1));
  const absl::Time at = environment_.wakes[0];
  driver_.WakeUp(at);
  EXPECT_THAT(environment_.wakes, ElementsAre(at, at));
  EXPECT_THAT(environment_.requests, SizeIs(1));
  environment_.now = at;
  driver_.WakeUp(at);
  EXPECT_THAT(environment_.requests, SizeIs(2));
}

TEST_F(ReplicaDriverTest, NothingIsCarriedOutAfterDrop) {
  driver_.Assign(Assignment(5, {0}));
  environment_.said.clear();
  driver_.Drop();
  EXPECT_TRUE(driver_.dropped());
  driver_.Post(replica::Reply{environment_.requests.at(0), Values(0)});
  driver_.WakeUp(environment_.now + absl::Seconds(1));
  driver_.Post(replica::Assign{Assignment(6, {0, 1})});
  EXPECT_THAT(environment_.said, IsEmpty());
  EXPECT_THAT(environment_.wakes, IsEmpty());
}

// Every event of four threads is handled, each when the one before it is done: the core would not stand two at once.
TEST_F(ReplicaDriverTest, ThreadsTakeTurns) {
  constexpr int kThreads = 4, kEvents = 200;
  driver_.Assign(Assignment(5, {0, 1, 2, 3}));
  driver_.Post(replica::Reply{environment_.requests.at(0), Values(0)});
  ASSERT_THAT(environment_.works, SizeIs(kThreads));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEvents; ++i) driver_.Post(replica::Timer{});
      driver_.Post(replica::GradientReady{environment_.works[static_cast<size_t>(t)], 0, 1});
      driver_.Post(replica::Computed{environment_.works[static_cast<size_t>(t)], BatchSums{1, 2, {}}});
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(environment_.requests, SizeIs(2)) << "one push of all four, after the last Computed";
}

}  // namespace
}  // namespace cairn
