// Goal: StepFinder asks every partition by one request at a time, tells an old answer, an error and a version that is
// gone apart, and knows when all have answered and which loss scale they named.
#include "worker/core/step_finder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/core_parts.h"

namespace cairn::replica {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint32_t kOwner = 5;

class StepFinderTest : public CorePartsTest {
 protected:
  StepFinder::Answer Answer(const Send& send, absl::StatusOr<Frame> frame) {
    Reply reply{send.request, std::move(frame)};
    return finder_.OnReply(NameOf(send.request).partition, reply);
  }

  StepFinder finder_{context_, kOwner};
};

TEST_F(StepFinderTest, AllAreFoundWhenEachHasAnswered) {
  finder_.Start(absl::ZeroDuration());
  const std::vector<Send> pulls = Take<Send>();
  ASSERT_THAT(pulls, SizeIs(kPartitions));
  for (uint32_t p = 0; p < kPartitions; ++p) {
    EXPECT_EQ(pulls[p].address, context_.assignment.parts[p].address);
    EXPECT_EQ(pulls[p].frame.kind, v1::ExchangeFrame::PULL);
    EXPECT_EQ(pulls[p].frame.want_version, std::nullopt);
    EXPECT_EQ(NameOf(pulls[p].request).owner, kOwner);
    EXPECT_FALSE(finder_.all_found());
    EXPECT_EQ(Answer(pulls[p], Values(p, 10 + p)), StepFinder::Answer::kFound);
  }
  EXPECT_TRUE(finder_.all_found());
  EXPECT_THAT(finder_.versions(), ElementsAre(10, 11, 12));
}

TEST_F(StepFinderTest, AnAnswerCountsOnce) {
  finder_.Start(absl::ZeroDuration());
  const std::vector<Send> pulls = Take<Send>();
  EXPECT_EQ(Answer(pulls[0], Values(0, 4)), StepFinder::Answer::kFound);
  EXPECT_EQ(Answer(pulls[0], Values(0, 5)), StepFinder::Answer::kIgnored);
  EXPECT_EQ(finder_.versions()[0], 4u);
  finder_.Start(absl::ZeroDuration());
  EXPECT_EQ(Answer(pulls[1], Values(1, 4)), StepFinder::Answer::kIgnored) << "of the search before";
}

TEST_F(StepFinderTest, AnswersThatDoNotFitAreAskedForAgainAfterAPause) {
  finder_.Start(absl::ZeroDuration());
  std::vector<Send> pulls = Take<Send>();
  Frame small = Values(0, 4);
  small.payload = Buffer::Zeros(8);
  EXPECT_EQ(Answer(pulls[0], small), StepFinder::Answer::kIgnored);
  EXPECT_EQ(Answer(pulls[1], Values(2, 4)), StepFinder::Answer::kIgnored) << "another partition's";
  EXPECT_EQ(Answer(pulls[2], absl::UnavailableError("gone")), StepFinder::Answer::kIgnored);
  EXPECT_THAT(Take<Send>(), IsEmpty());
  finder_.ResendDue();
  EXPECT_THAT(Take<Send>(), IsEmpty()) << "before the pause is over";
  Advance(context_.options.retry_max);
  finder_.ResendDue();
  pulls = Take<Send>();
  ASSERT_THAT(pulls, SizeIs(kPartitions));
  for (uint32_t p = 0; p < kPartitions; ++p) EXPECT_EQ(Answer(pulls[p], Values(p, 4)), StepFinder::Answer::kFound);
  EXPECT_TRUE(finder_.all_found());
}

TEST_F(StepFinderTest, InvalidArgumentFailsTheJob) {
  finder_.Start(absl::ZeroDuration());
  const std::vector<Send> pulls = Take<Send>();
  EXPECT_EQ(Answer(pulls[1], absl::InvalidArgumentError("too big")), StepFinder::Answer::kIgnored);
  const std::vector<Fail> fails = Take<Fail>();
  ASSERT_THAT(fails, SizeIs(1));
  EXPECT_THAT(fails[0].message, HasSubstr("partition 1 at ps-1: too big"));
}

TEST_F(StepFinderTest, AskedAgainForAVersionItIsThereOrGone) {
  finder_.Start(absl::ZeroDuration());
  std::vector<Send> pulls = Take<Send>();
  for (uint32_t p = 0; p < kPartitions; ++p) Answer(pulls[p], Values(p, p == 1 ? 4 : 5));
  ASSERT_TRUE(finder_.all_found());
  finder_.Again(0, 4);
  finder_.Again(2, 4);
  EXPECT_FALSE(finder_.all_found());
  pulls = Take<Send>();
  ASSERT_THAT(pulls, SizeIs(2));
  EXPECT_EQ(pulls[0].frame.want_version, 4u);
  EXPECT_EQ(Answer(pulls[0], Values(0, 4)), StepFinder::Answer::kFound);
  EXPECT_FALSE(finder_.all_found());
  EXPECT_EQ(Answer(pulls[1], absl::FailedPreconditionError("version 6")), StepFinder::Answer::kGone);
  finder_.Again(0, 4);
  EXPECT_EQ(Answer(Take<Send>().at(0), Values(0, 6)), StepFinder::Answer::kGone) << "other values than asked for";
}

TEST_F(StepFinderTest, WithoutAVersionAFencedPullIsTriedAgain) {
  finder_.Start(absl::ZeroDuration());
  const std::vector<Send> pulls = Take<Send>();
  EXPECT_EQ(Answer(pulls[0], absl::FailedPreconditionError("generation 4")), StepFinder::Answer::kIgnored);
  EXPECT_LT(context_.output.wake(), absl::InfiniteFuture());
}

TEST_F(StepFinderTest, AfterAnAssignmentOnlyMovedOrWaitingOnesAreSent) {
  finder_.Start(absl::ZeroDuration());
  const std::vector<Send> pulls = Take<Send>();
  Answer(pulls[0], Values(0, 4));
  Answer(pulls[1], absl::UnavailableError("away"));
  finder_.Resend({1, 0, 0}, /*raised=*/false);
  EXPECT_THAT(Take<Send>(), IsEmpty()) << "partition 0 has answered, 1 waits and did not move";
  finder_.Resend({0, 0, 1}, /*raised=*/true);
  const std::vector<Send> again = Take<Send>();
  ASSERT_THAT(again, SizeIs(2));
  EXPECT_EQ(again[0].frame.partition.value, 1u);
  EXPECT_EQ(again[1].frame.partition.value, 2u);
  EXPECT_EQ(Answer(pulls[2], Values(2, 4)), StepFinder::Answer::kIgnored) << "the answer of the former address";
}

TEST_F(StepFinderTest, PausesGrowUntilTheAttemptsEnd) {
  EXPECT_LE(finder_.NextPause(), context_.options.retry_min);
  for (int i = 0; i < 10; ++i) finder_.NextPause();
  EXPECT_GE(finder_.NextPause(), context_.options.retry_max / 2);
  finder_.EndAttempts();
  const absl::Duration pause = finder_.NextPause();
  EXPECT_LE(pause, context_.options.retry_min);
  finder_.Start(absl::Seconds(1));
  EXPECT_THAT(Take<Send>(), IsEmpty());
  Advance(absl::Seconds(1));
  finder_.ResendDue();
  EXPECT_THAT(Take<Send>(), SizeIs(kPartitions));
}

TEST_F(StepFinderTest, TheLossScaleIsThatOfAPartitionAtTheVersion) {
  context_.job.has_loss_scale = true;
  finder_.Start(absl::ZeroDuration());
  const std::vector<Send> pulls = Take<Send>();
  for (uint32_t p = 0; p < kPartitions; ++p) {
    Frame frame = Values(p, p == 1 ? 4 : 5);
    frame.loss_scale = p == 1 ? 8 : 16;
    EXPECT_EQ(Answer(pulls[p], frame), StepFinder::Answer::kFound);
  }
  EXPECT_EQ(finder_.LossScaleAt(4), 8);
  EXPECT_EQ(finder_.LossScaleAt(5), 16);
  EXPECT_EQ(finder_.LossScaleAt(6), std::nullopt);
}

}  // namespace
}  // namespace cairn::replica
