// Goal: StepClips sends a CLIP only when all shares of a partition's norms are here, one at a time, with the factors
// that a naive sum over the whole norm gives; bytes that are no norms are refused.
#include "worker/core/step_clips.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/worker/core_parts.h"

namespace cairn::replica {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint32_t kOwner = 9;
constexpr uint64_t kNorm = 1;

// The partition's share in the norm over all three, of a gradient of this number everywhere.
NormRecord ShareOf(float number) {
  NormRecord record;
  record.scope = kNorm;
  record.numbers = 16;
  record.total = 48;
  record.squares.Add(std::vector<float>(16, number), 1);
  return record;
}

Frame Norms(std::string scalars) {
  Frame frame;
  frame.kind = v1::ExchangeFrame::NORMS;
  frame.sequence = 3;
  frame.scalars = std::move(scalars);
  return frame;
}

class StepClipsTest : public CorePartsTest {
 protected:
  StepClipsTest() {
    context_.job.spec.mutable_optimizer()->set_global_clipnorm(2);
    clips_.Begin(2);
  }
  std::vector<uint32_t> Known(uint32_t partition, float number) {
    auto known = clips_.Take(Norms(EncodeNorms({ShareOf(number)})), partition);
    EXPECT_TRUE(known.ok()) << known.status();
    return known.ok() ? *known : std::vector<uint32_t>();
  }

  StepClips clips_{context_, kOwner, /*by_layer=*/false};
  const std::vector<char> none_done_ = std::vector<char>(kPartitions, 0);
};

TEST_F(StepClipsTest, TheLastShareSendsAllClips) {
  EXPECT_THAT(Known(0, 1), IsEmpty());
  EXPECT_THAT(Known(2, 3), IsEmpty());
  EXPECT_TRUE(clips_.Has(0));
  EXPECT_FALSE(clips_.Has(1));
  const std::vector<uint32_t> known = Known(1, 2);
  ASSERT_THAT(known, ElementsAre(0, 1, 2));
  clips_.Send(known, none_done_);
  const std::vector<Send> sent = Take<Send>();
  ASSERT_THAT(sent, SizeIs(kPartitions));
  const double naive = 2 / std::sqrt(16.0 * (1 + 4 + 9));
  for (uint32_t p = 0; p < kPartitions; ++p) {
    const Frame& clip = sent[p].frame;
    EXPECT_EQ(clip.kind, v1::ExchangeFrame::CLIP);
    EXPECT_EQ(clip.partition.value, p);
    EXPECT_EQ(clip.sequence, 3u);
    EXPECT_EQ(clip.norms_xxh3, HashOfNorms(EncodeNorms({ShareOf(static_cast<float>(p + 1))})));
    EXPECT_EQ(clip.reply_dtype, v1::FLOAT32);
    EXPECT_EQ(NameOf(sent[p].request).owner, kOwner);
    const auto factors = DecodeFactors(clip.scalars, 1);
    ASSERT_TRUE(factors.ok()) << factors.status();
    EXPECT_NEAR((*factors)[0], naive, 1e-12);
  }
  clips_.Send(known, none_done_);
  EXPECT_THAT(Take<Send>(), IsEmpty()) << "one at a time";
}

TEST_F(StepClipsTest, ThoseThatAreDoneGetNone) {
  Known(0, 1);
  Known(1, 1);
  const std::vector<uint32_t> known = Known(2, 1);
  clips_.Send(known, {0, 1, 0});
  const std::vector<Send> sent = Take<Send>();
  ASSERT_THAT(sent, SizeIs(2));
  EXPECT_EQ(sent[0].frame.partition.value, 0u);
  EXPECT_EQ(sent[1].frame.partition.value, 2u);
  clips_.End(0);
  EXPECT_EQ(clips_.request(0).state, Request::State::kIdle);
}

TEST_F(StepClipsTest, BytesThatAreNoNormsAreRefused) {
  const auto empty = clips_.Take(Norms(""), 1);
  EXPECT_TRUE(absl::IsInvalidArgument(empty.status()));
  EXPECT_THAT(empty.status().message(), HasSubstr("partition 1: NORMS without records"));
  EXPECT_TRUE(absl::IsInvalidArgument(clips_.Take(Norms("7 bytes"), 1).status()));
  EXPECT_FALSE(clips_.Has(1));
}

TEST_F(StepClipsTest, ValuesOfAnUpdateThatWasNotClippedTellNothing) {
  const auto known = clips_.Take(Values(1, 3), 1);
  ASSERT_TRUE(known.ok());
  EXPECT_THAT(*known, IsEmpty());
  EXPECT_FALSE(clips_.Has(1));
}

TEST_F(StepClipsTest, AShareThatIsLostIsWaitedForAgain) {
  Known(0, 1);
  Known(1, 1);
  clips_.Send(Known(2, 1), none_done_);
  const std::vector<Send> first = Take<Send>();
  ASSERT_THAT(first, SizeIs(kPartitions));
  clips_.Forget(1);
  EXPECT_FALSE(clips_.Has(1));
  // The CLIP of partition 0 goes again, but its factor is not known any more: it waits for the share.
  clips_.Resend(0, /*moved=*/true, /*raised=*/true);
  EXPECT_THAT(Take<Send>(), IsEmpty());
  EXPECT_EQ(clips_.request(0).state, Request::State::kIdle);
  const std::vector<uint32_t> known = Known(1, 1);
  ASSERT_THAT(known, ElementsAre(0, 1, 2));
  clips_.Send(known, none_done_);
  const std::vector<Send> again = Take<Send>();
  ASSERT_THAT(again, SizeIs(2)) << "partition 2's is under way";
  EXPECT_EQ(again[0].frame.partition.value, 0u);
  EXPECT_EQ(again[1].frame.partition.value, 1u);
}

TEST_F(StepClipsTest, WhatFailedIsSentWhenItsTimeHasComeOrTheGenerationRose) {
  Known(0, 1);
  Known(1, 1);
  clips_.Send(Known(2, 1), none_done_);
  Take<Send>();
  context_.requests.Retry(clips_.request(1), 1, absl::UnavailableError("away"));
  clips_.ResendDue();
  clips_.Resend(1, /*moved=*/false, /*raised=*/false);
  EXPECT_THAT(Take<Send>(), IsEmpty());
  clips_.Resend(1, /*moved=*/false, /*raised=*/true);
  EXPECT_THAT(Take<Send>(), SizeIs(1));
  context_.requests.Retry(clips_.request(1), 1, absl::UnavailableError("away"));
  Advance(context_.options.retry_max);
  clips_.ResendDue();
  EXPECT_THAT(Take<Send>(), SizeIs(1));
}

// With backup_replicas the first partition of a norm decides; the others take over the factor that it applied.
TEST_F(StepClipsTest, OnePartitionDecidesWhereSlowPushesAreDropped) {
  context_.job.spec.set_backup_replicas(1);
  clips_.Begin(2);
  Known(0, 1);
  Known(1, 1);
  const std::vector<uint32_t> first = Known(2, 1);
  ASSERT_THAT(first, ElementsAre(0));
  clips_.Send(first, none_done_);
  EXPECT_THAT(Take<Send>(), SizeIs(1));
  Frame update = Values(0, 3);
  update.scalars = EncodeNorms({ShareOf(1)}) + EncodeFactors({0.25});
  const auto others = clips_.Take(update, 0);
  ASSERT_TRUE(others.ok()) << others.status();
  clips_.Send(*others, {1, 0, 0});
  const std::vector<Send> sent = Take<Send>();
  ASSERT_THAT(sent, SizeIs(2));
  for (const Send& clip : sent) EXPECT_THAT(*DecodeFactors(clip.frame.scalars, 1), ElementsAre(0.25));
}

TEST_F(StepClipsTest, ANewStepKnowsNothingOfTheLast) {
  Known(0, 1);
  Known(1, 1);
  clips_.Begin(3);
  EXPECT_FALSE(clips_.Has(0));
  EXPECT_THAT(Known(2, 1), IsEmpty());
  clips_.Stop();
  EXPECT_EQ(clips_.partitions(), 0u);
  EXPECT_FALSE(clips_.Has(2));
}

// Where weights are not kept (CENTRAL_STORAGE) nothing would hold the values of the answer.
TEST_F(StepClipsTest, ByLayerAsksForNoValues) {
  StepClips by_layer(context_, kOwner, /*by_layer=*/true);
  by_layer.Begin(2);
  std::vector<uint32_t> known;
  for (uint32_t p = 0; p < kPartitions; ++p) known = *by_layer.Take(Norms(EncodeNorms({ShareOf(1)})), p);
  by_layer.Send(known, none_done_);
  for (const Send& clip : Take<Send>()) EXPECT_EQ(clip.frame.reply_dtype, v1::DATA_TYPE_UNSPECIFIED);
}

}  // namespace
}  // namespace cairn::replica
