// Goal: what ReplicaCore does with one event: errors fail the job once and say where, answers that do not fit are asked
// for again, old assignments and generations are fenced, and wrong assignments are refused with a reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "worker/core/replica_core.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

TEST_F(ReplicaCoreEventTest, TheChiefTakesDigestsAfterEachNthStepAndTheLast) {
  const auto taken_at = [this](uint64_t version, bool chief, int32_t every, bool takes = true) {
    Feed(replica::Drop{});
    v1::AssignReplicas message = SmallAssignment();
    message.set_chief(chief);
    message.set_takes_digests(takes);
    message.mutable_spec()->set_digest_every_steps(every);
    const auto pulls = Of<replica::Send>(Feed(replica::Assign{message}));
    return Of<replica::TakeDigest>(Feed(replica::Reply{pulls[0].request, Values(version)}));
  };
  const uint64_t last = static_cast<uint64_t>(SmallAssignment().total_steps());
  EXPECT_THAT(taken_at(0, true, 1), IsEmpty()) << "the initial values";
  ASSERT_EQ(taken_at(1, true, 1).size(), 1u);
  EXPECT_EQ(taken_at(1, true, 1)[0].step, 1);
  EXPECT_EQ(taken_at(1, true, 1)[0].values.size(), 64u);
  EXPECT_THAT(taken_at(1, false, 1), IsEmpty()) << "another worker is the chief";
  EXPECT_THAT(taken_at(1, true, 2), IsEmpty());
  EXPECT_THAT(taken_at(1, true, 0), IsEmpty());
  EXPECT_THAT(taken_at(1, true, 1, false), IsEmpty()) << "an older coordinator";
  EXPECT_EQ(taken_at(last, true, 1000).size(), 1u) << "the last";
}

TEST_F(ReplicaCoreEventTest, AStepThatBecomesTheLastOneHasADigest) {
  v1::AssignReplicas message = SmallAssignment();
  message.mutable_spec()->set_epochs(3);
  message.mutable_spec()->set_digest_every_steps(1000);
  message.set_total_steps(6);
  message.set_epochs_open(1);
  message.set_chief(true);
  message.set_takes_digests(true);
  const auto pulls = Of<replica::Send>(Feed(replica::Assign{message}));
  EXPECT_THAT(Of<replica::TakeDigest>(Feed(replica::Reply{pulls[0].request, Values(2)})), IsEmpty()) << "at the gate";
  message.set_assignment(message.assignment() + 1);
  message.set_total_steps(2);  // early_stopping
  const auto taken = Of<replica::TakeDigest>(Feed(replica::Assign{message}));
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].step, 2);
  message.set_assignment(message.assignment() + 1);
  EXPECT_THAT(Of<replica::TakeDigest>(Feed(replica::Assign{message})), IsEmpty()) << "it has one";
}

TEST_F(ReplicaCoreEventTest, AChiefThatIsAppointedWithinAStepTakesItsDigest) {
  v1::AssignReplicas message = SmallAssignment();
  message.mutable_spec()->set_digest_every_steps(1);
  message.set_takes_digests(true);
  const auto pulls = Of<replica::Send>(Feed(replica::Assign{message}));
  EXPECT_THAT(Of<replica::TakeDigest>(Feed(replica::Reply{pulls[0].request, Values(1)})), IsEmpty());
  message.set_assignment(message.assignment() + 1);
  message.set_chief(true);
  EXPECT_EQ(Of<replica::TakeDigest>(Feed(replica::Assign{message})).size(), 1u);
}

TEST_F(ReplicaCoreEventTest, FencedPushesWaitForTheNewGenerationAndGoOutWithIt) {
  const auto pulls = Of<replica::Send>(Feed(replica::Assign{SmallAssignment()}));
  const auto computes = Of<replica::Compute>(Feed(replica::Reply{pulls[0].request, Values(0)}));
  ASSERT_EQ(computes.size(), 1u);
  EXPECT_EQ(computes[0].step, 0);
  EXPECT_THAT(Of<replica::Send>(Feed(replica::GradientReady{computes[0].work, 0, 1})), IsEmpty())
      << "its figures go with it";
  const auto pushes = Of<replica::Send>(Feed(replica::Computed{computes[0].work, BatchSums{2, 1.5, {}}}));
  ASSERT_EQ(pushes.size(), 1u);
  v1::EpochFigures figures;
  ASSERT_TRUE(figures.ParseFromString(pushes[0].frame.figures));
  EXPECT_EQ(figures.train().examples(), 2u);
  EXPECT_EQ(figures.train().loss(), 1.5);
  EXPECT_EQ(figures.replica_steps(), 1u);
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
  Feed(replica::GradientReady{computes[0].work, 0, 1});
  const auto pushes = Of<replica::Send>(Feed(replica::Computed{computes[0].work, BatchSums{2, 1.5, {}}}));
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

TEST_F(ReplicaCoreEventTest, ReplicasThatTheJobDidNotBeginWithAreRefused) {
  Feed(replica::Assign{SmallAssignment()});
  v1::AssignReplicas message = SmallAssignment();
  message.set_assignment(6);
  message.mutable_spec()->set_replicas(4);
  message.add_replicas(3);
  const auto fails = Of<replica::Fail>(Feed(replica::Assign{message}));
  ASSERT_EQ(fails.size(), 1u);
  EXPECT_THAT(fails[0].message, HasSubstr("there is no replica 3"));
}

TEST_F(ReplicaCoreEventTest, CountsThatAreNoJobsAreRefusedByName) {
  const auto refusal = [this](const std::function<void(v1::AssignReplicas&)>& change) {
    Feed(replica::Drop{});
    v1::AssignReplicas message = SmallAssignment();
    change(message);
    const auto fails = Of<replica::Fail>(Feed(replica::Assign{message}));
    return fails.empty() ? "" : fails[0].message;
  };
  EXPECT_THAT(refusal([](auto& m) { m.mutable_spec()->set_steps_per_epoch(-1); }),
              HasSubstr("assignment: steps_per_epoch: -1"));
  EXPECT_THAT(refusal([](auto& m) { m.mutable_spec()->set_accumulate_steps(1 << 20); }), HasSubstr("accumulate_steps"));
  EXPECT_THAT(refusal([](auto& m) { m.mutable_data()->set_train_examples(UINT64_MAX); }),
              HasSubstr("training examples"));
  EXPECT_THAT(refusal([](auto& m) {
                m.mutable_spec()->set_epochs(INT32_MAX);
                m.mutable_data()->set_train_examples(uint64_t{1} << 40);
              }),
              HasSubstr("assignment: epochs: 2147483647 of 274877906944 steps are more than can be counted"));
}

TEST_F(ReplicaCoreEventTest, AVersionBeyondTheJobsStepsFailsIt) {
  for (const uint64_t version : {uint64_t{3}, UINT64_MAX - 5}) {
    Feed(replica::Drop{});
    const auto pulls = Of<replica::Send>(Feed(replica::Assign{SmallAssignment()}));
    const auto fails = Of<replica::Fail>(Feed(replica::Reply{pulls[0].request, Values(version)}));
    ASSERT_EQ(fails.size(), 1u) << version;
    EXPECT_THAT(fails[0].message, HasSubstr("more updates than the job has steps"));
  }
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
