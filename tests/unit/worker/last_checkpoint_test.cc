// Goal: the last step is over with its validation and its checkpoint. The checkpoint after the last step outlasts a
// failover: a cut that fails is tried again with back-off, for a time that is bounded, and no replica is told to be
// finished before. Minutes between checkpoints are counted by the chief's clock.
#include <gtest/gtest.h>

#include <map>

#include "worker/core/replica_core.h"

namespace cairn {
namespace {

using Outcome = replica::CheckpointDone::Outcome;

constexpr uint64_t kNumbers = 16, kSteps = 4;

class LastCheckpointTest : public ::testing::Test {
 protected:
  static v1::AssignReplicas Assignment() {
    v1::AssignReplicas message;
    message.set_job_id(7);
    message.set_generation(1);
    message.set_assignment(1);
    message.set_chief(true);
    v1::JobSpec& spec = *message.mutable_spec();
    spec.set_strategy(v1::MULTI_WORKER_MIRRORED);
    spec.set_replicas(1);
    spec.set_batch_size(8);
    spec.set_epochs(1);
    spec.mutable_optimizer()->mutable_sgd();
    spec.mutable_checkpoints()->set_dir("/checkpoints");
    message.mutable_data()->set_train_examples(8 * kSteps);
    message.set_steps_per_epoch(kSteps);
    message.set_total_steps(kSteps);
    message.add_replicas(0);
    v1::Route& route = *message.add_routes();
    route.mutable_range()->set_end(kNumbers);
    route.set_address("ps-0:7071");
    return message;
  }

  void Feed(replica::Event event) {
    for (replica::Effect& effect : core_.Step(std::move(event), now_)) {
      if (auto* send = std::get_if<replica::Send>(&effect)) {
        send_ = std::move(*send);
        if (send_.frame.kind == v1::ExchangeFrame::PULL) pulls_[send_.frame.replica_first.value] = send_.request;
      } else if (const auto* compute = std::get_if<replica::Compute>(&effect)) {
        work_ = compute->work;
      } else if (const auto* evaluate = std::get_if<replica::Evaluate>(&effect)) {
        work_ = evaluate->work;
      } else if (const auto* take = std::get_if<replica::TakeCheckpoint>(&effect)) {
        taken_ = take->number;
        last_try_ = take->last_try;
        ++takes_;
      } else if (const auto* timer = std::get_if<replica::SetTimer>(&effect)) {
        timer_ = timer->at;
      } else if (const auto* report = std::get_if<replica::Report>(&effect)) {
        finished_ |= report->report.finished();
      }
    }
  }
  static Frame Values(uint64_t version, uint64_t sequence = 0) {
    Frame frame;
    frame.kind = v1::ExchangeFrame::VALUES;
    frame.version = version;
    frame.sequence = sequence;
    frame.dtype = v1::FLOAT32;
    frame.payload = Buffer::Zeros(kNumbers * sizeof(float));
    return frame;
  }
  void AnswerValues(uint64_t version) { Feed(replica::Reply{send_.request, Values(version)}); }
  // All steps are done: what is left is the checkpoint.
  void BeginAtTheEnd() {
    Feed(replica::Assign{Assignment()});
    AnswerValues(kSteps);
  }
  void End(Outcome outcome) { Feed(replica::CheckpointDone{taken_, outcome}); }
  // The cuts fail, one after the other, from now on for so long.
  void FailFor(absl::Duration duration) {
    const absl::Time end = now_ + duration;
    while (now_ < end && !finished_) {
      End(Outcome::kNoCut);
      const int before = takes_;
      while (takes_ == before && now_ < end && !finished_) {
        ASSERT_GT(timer_, now_) << "nobody would ever try again";
        now_ = timer_;
        Feed(replica::Timer{});
      }
    }
  }

  ReplicaCore core_;
  absl::Time now_ = absl::FromUnixSeconds(1000), timer_;
  replica::Send send_;
  std::map<int, uint64_t> pulls_;  // by replica, of asynchronous ones
  uint64_t work_ = 0, taken_ = 0;
  int takes_ = 0;
  bool last_try_ = false;
  bool finished_ = false;
};

TEST_F(LastCheckpointTest, IsTriedAgainUntilAFailoverIsOver) {
  BeginAtTheEnd();
  ASSERT_EQ(takes_, 1);
  FailFor(absl::Seconds(20));
  EXPECT_FALSE(finished_) << "the job would end without it";
  EXPECT_LT(takes_, 60) << "with pauses";
  EXPECT_EQ(core_.step(), static_cast<int64_t>(kSteps) - 1) << "it is not over";
  End(Outcome::kWritten);
  EXPECT_TRUE(finished_);
}

// Heartbeats that say that all is done would end the job without the figures.
TEST_F(LastCheckpointTest, TheLastValidationIsPartOfTheLastStep) {
  v1::AssignReplicas assignment = Assignment();
  assignment.mutable_spec()->clear_checkpoints();
  assignment.mutable_data()->set_validation_examples(16);
  Feed(replica::Assign{assignment});
  AnswerValues(kSteps);
  ASSERT_NE(work_, 0u);
  EXPECT_EQ(core_.step(), static_cast<int64_t>(kSteps) - 1);
  EXPECT_FALSE(finished_);
  Feed(replica::Evaluated{work_, BatchSums{16, 1, {}}});
  EXPECT_TRUE(finished_);
  EXPECT_EQ(core_.step(), static_cast<int64_t>(kSteps));
}

TEST_F(LastCheckpointTest, IsGivenUpAfterABoundedTime) {
  BeginAtTheEnd();
  const absl::Time begin = now_;
  FailFor(absl::Minutes(5));
  EXPECT_TRUE(finished_);
  EXPECT_TRUE(last_try_) << "the coordinator would wait for it";
  EXPECT_LT(now_ - begin, absl::Seconds(125));
}

// What failed before the last step takes nothing from the last one's time.
TEST_F(LastCheckpointTest, HasItsTimeWhateverFailedBefore) {
  v1::AssignReplicas assignment = Assignment();
  assignment.mutable_spec()->mutable_checkpoints()->set_every_steps(kSteps - 1);
  Feed(replica::Assign{assignment});
  AnswerValues(kSteps - 2);
  End(Outcome::kNoCut);  // of the step before
  now_ += absl::Minutes(5);
  Feed(replica::Timer{});
  for (uint64_t step = kSteps - 2; step < kSteps; ++step) {
    Feed(replica::GradientReady{work_, 0, 1});
    Feed(replica::Computed{work_, BatchSums{8, 1, {}}});
    AnswerValues(step + 1);
  }
  ASSERT_EQ(takes_, 2);
  EXPECT_FALSE(last_try_);
  FailFor(absl::Seconds(60));
  EXPECT_FALSE(finished_);
  End(Outcome::kWritten);
  EXPECT_TRUE(finished_);
}

// A cut that failed shortly before pauses the last one, and the job waits for it.
TEST_F(LastCheckpointTest, WaitsForThePauseOfTheOneBefore) {
  v1::AssignReplicas assignment = Assignment();
  assignment.mutable_spec()->mutable_checkpoints()->set_every_steps(kSteps - 1);
  Feed(replica::Assign{assignment});
  AnswerValues(kSteps - 2);
  ASSERT_EQ(takes_, 1) << "of step " << kSteps - 1;
  End(Outcome::kNoCut);
  for (uint64_t step = kSteps - 2; step < kSteps; ++step) {
    Feed(replica::GradientReady{work_, 0, 1});
    Feed(replica::Computed{work_, BatchSums{8, 1, {}}});
    AnswerValues(step + 1);
  }
  EXPECT_EQ(takes_, 1);
  EXPECT_FALSE(finished_);
  now_ = timer_;
  Feed(replica::Timer{});
  EXPECT_EQ(takes_, 2);
  End(Outcome::kWritten);
  EXPECT_TRUE(finished_);
}

// A chief before had a clock that is an hour ahead; each assignment tells of its checkpoint again.
TEST_F(LastCheckpointTest, MinutesAreNotCountedFromTheFuture) {
  v1::AssignReplicas assignment = Assignment();
  assignment.mutable_spec()->mutable_checkpoints()->set_every_minutes(10);
  v1::CheckpointInfo& info = *assignment.add_checkpoints();
  info.set_step(1);
  info.set_written_unix_ms(absl::ToUnixMillis(now_ + absl::Hours(1)));
  Feed(replica::Assign{assignment});
  AnswerValues(1);
  EXPECT_EQ(takes_, 0);
  now_ += absl::Minutes(6);
  assignment.set_assignment(2);
  Feed(replica::Assign{assignment});
  now_ += absl::Minutes(6);
  Feed(replica::GradientReady{work_, 0, 1});
  Feed(replica::Computed{work_, BatchSums{8, 1, {}}});
  AnswerValues(2);
  EXPECT_EQ(takes_, 1) << "12 minutes have passed here";
}

// Asynchronous replicas come to their end one by one. The slowest of the chief's moves away shortly before it: what is
// left is at the end, and the job would be over before the checkpoint is written.
TEST_F(LastCheckpointTest, IsWaitedForByReplicasThatWereThereEarlier) {
  v1::AssignReplicas assignment = Assignment();
  assignment.mutable_spec()->set_strategy(v1::PARAMETER_SERVER);
  assignment.mutable_spec()->set_replicas(2);
  assignment.add_replicas(1);
  Feed(replica::Assign{assignment});
  Feed(replica::Reply{pulls_.at(0), Values(2 * kSteps - 1, kSteps)});
  Feed(replica::Reply{pulls_.at(1), Values(2 * kSteps - 1, kSteps - 1)});
  EXPECT_EQ(takes_, 0) << "replica 1 is a step behind";
  EXPECT_FALSE(finished_);
  assignment.set_assignment(2);
  assignment.mutable_replicas()->RemoveLast();
  Feed(replica::Assign{assignment});
  EXPECT_EQ(takes_, 1);
  EXPECT_FALSE(finished_);
  End(Outcome::kWritten);
  EXPECT_TRUE(finished_);
}

TEST_F(LastCheckpointTest, IsAnothersWhenTheChiefIsAnother) {
  BeginAtTheEnd();
  End(Outcome::kNoCut);
  EXPECT_FALSE(finished_);
  v1::AssignReplicas assignment = Assignment();
  assignment.set_assignment(2);
  assignment.set_chief(false);
  Feed(replica::Assign{assignment});
  EXPECT_TRUE(finished_);
}

TEST_F(LastCheckpointTest, IsOverWhenAnotherWroteIt) {
  BeginAtTheEnd();
  End(Outcome::kNoCut);
  EXPECT_FALSE(finished_);
  v1::AssignReplicas assignment = Assignment();
  assignment.set_assignment(2);
  assignment.add_checkpoints()->set_step(kSteps);
  Feed(replica::Assign{assignment});
  EXPECT_TRUE(finished_);
}

}  // namespace
}  // namespace cairn
