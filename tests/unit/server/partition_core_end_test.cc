// Goal: a copy that ends (it is moved away, or its store failed) answers every waiting request once. A copy whose job
// ends has its last version on disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "common/storage/kv_store.h"
#include "server/core/partition_core.h"
#include "server/storage/persistence.h"
#include "tests/unit/server/server_test_util.h"

namespace cairn {
namespace {

TEST(PartitionCoreEnd, AnswersThoseWhoWait) {
  const PartitionConfig config = TestConfig(UpdateMode::kSynchronous, 2);
  PartitionCore core(config, PartitionState::Initial(config));
  const absl::Time now = absl::FromUnixSeconds(1'000'000);
  core.Step(AssignEvent{Generation(5), false, {}}, now);
  Frame push = PushFrame(config, 0, 1, 1, 1.0f);  // one of two replicas: it waits for the other
  push.generation = Generation(5);
  push.request_id = 11;
  EXPECT_TRUE(core.Step(FrameEvent{1, std::move(push)}, now).replies.empty());
  Frame snapshot;
  snapshot.kind = v1::ExchangeFrame::SNAPSHOT;
  snapshot.request_id = 12;
  snapshot.job = config.job;
  snapshot.partition = config.partition;
  snapshot.generation = Generation(5);
  snapshot.want_version = 3;
  EXPECT_TRUE(core.Step(FrameEvent{2, std::move(snapshot)}, now).replies.empty());

  std::set<std::pair<uint64_t, uint64_t>> answered;
  for (const PartitionReply& reply : core.End(absl::NotFoundError("moved away"))) {
    EXPECT_EQ(reply.frame.kind, v1::ExchangeFrame::ERROR);
    EXPECT_TRUE(absl::IsNotFound(reply.frame.status)) << reply.frame.status;
    answered.insert({reply.client, reply.frame.request_id});
  }
  EXPECT_THAT(answered, testing::ElementsAre(std::pair(1u, 11u), std::pair(2u, 12u)));
}

// Without a log, images are taken only at multiples of snapshot_every, until the job trains no more.
TEST(PartitionCoreEnd, WhatAJobEndsWithIsKept) {
  PartitionConfig config = TestConfig(UpdateMode::kSynchronous, 1);
  config.durability = v1::SNAPSHOT;
  const std::unique_ptr<KvStore> store = NewMemoryKvStore();
  Persistence persistence(*store);
  PartitionCore core(config, PartitionState::Initial(config));
  const absl::Time now = absl::FromUnixSeconds(1'000'000);
  core.Step(AssignEvent{Generation(5), false, {}, /*keep=*/true}, now);
  EXPECT_FALSE(core.image_due()) << "the initial values are a function of the seed";
  core.Step(AssignEvent{Generation(6), false, {}}, now);
  for (uint64_t step = 1; step <= 3; ++step) {
    Frame push = PushFrame(config, 0, 1, step, 1.0f);
    push.generation = Generation(6);
    core.Step(FrameEvent{1, std::move(push)}, now);
  }
  ASSERT_EQ(core.version(), 3u);
  EXPECT_TRUE(core.in_memory());
  EXPECT_FALSE(core.image_due());
  core.Step(AssignEvent{Generation(7), false, {}, /*keep=*/true}, now);
  ASSERT_TRUE(core.image_due());
  std::optional<Image> image = core.Step(TakeImageEvent{}, now).image;
  ASSERT_TRUE(image.has_value());
  core.Step(ImageWrittenEvent{3, /*ok=*/false}, now);
  EXPECT_TRUE(core.in_memory());
  EXPECT_FALSE(core.image_due()) << "it is tried again later";
  core.Step(TickEvent{}, now + absl::Seconds(1));
  ASSERT_TRUE(core.image_due());
  image = core.Step(TakeImageEvent{}, now).image;
  ASSERT_TRUE(image.has_value());
  ASSERT_TRUE(persistence.WriteImage(core.config(), *image).ok());
  core.Step(ImageWrittenEvent{3, /*ok=*/true}, now);
  EXPECT_FALSE(core.in_memory());
  EXPECT_FALSE(core.image_due());
  const auto recovered = persistence.Recover(config);
  ASSERT_TRUE(recovered.ok()) << recovered.status();
  EXPECT_EQ(recovered->version, 3u);
}

// Notes whether the last write had to survive power loss.
class SyncNotes : public KvStore {
 public:
  absl::StatusOr<std::optional<std::string>> Get(std::string_view key) override { return store_->Get(key); }
  absl::Status Write(const KvBatch& batch, bool sync) override {
    synced = sync;
    return store_->Write(batch, sync);
  }
  absl::Status Scan(std::string_view prefix,
                    const std::function<bool(std::string_view, std::string_view)>& fn) override {
    return store_->Scan(prefix, fn);
  }
  bool synced = false;

 private:
  const std::unique_ptr<KvStore> store_ = NewMemoryKvStore();
};

class LastImage : public testing::Test {
 protected:
  LastImage() : config_(Config()), persistence_(store_), core_(config_, PartitionState::Initial(config_)) {
    Assign(5, false);
  }
  static PartitionConfig Config() {
    PartitionConfig config = TestConfig(UpdateMode::kSynchronous, 1);
    config.durability = v1::SNAPSHOT;
    config.image.snapshot_every = 3;
    return config;
  }
  void Assign(uint64_t generation, bool keep) {
    core_.Step(AssignEvent{Generation(generation), false, {}, keep}, now_);
  }
  std::optional<Image> Train(uint64_t steps) {
    std::optional<Image> image;
    for (uint64_t step = 1; step <= steps; ++step) {
      Frame push = PushFrame(config_, 0, 1, core_.version() + 1, 1.0f);
      push.generation = core_.generation();
      image = core_.Step(FrameEvent{1, std::move(push)}, now_).image;
    }
    return image;
  }
  void Write(const Image& image) {
    ASSERT_TRUE(persistence_.WriteImage(core_.config(), image).ok());
    core_.Step(ImageWrittenEvent{image.header.version(), /*ok=*/true}, now_);
  }
  void ExpectOneMoreSynced() {
    EXPECT_TRUE(core_.in_memory());
    ASSERT_TRUE(core_.image_due());
    const std::optional<Image> image = core_.Step(TakeImageEvent{}, now_).image;
    ASSERT_TRUE(image.has_value());
    Write(*image);
    EXPECT_TRUE(store_.synced);
    EXPECT_FALSE(core_.in_memory());
    EXPECT_FALSE(core_.image_due());
    const auto recovered = persistence_.Recover(config_);
    ASSERT_TRUE(recovered.ok()) << recovered.status();
    EXPECT_EQ(recovered->version, core_.version());
    EXPECT_TRUE(SameBits(Dense(*recovered).values(), Dense(core_.state()).values()));
  }

  const PartitionConfig config_;
  const absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  SyncNotes store_;
  Persistence persistence_;
  PartitionCore core_;
};

// The image of a version that is a multiple of snapshot_every was written while the job trained: power loss may lose
// it.
TEST_F(LastImage, OneOfBeforeTheEndIsWrittenOnceMore) {
  const std::optional<Image> image = Train(3);
  ASSERT_TRUE(image.has_value());
  Write(*image);
  EXPECT_FALSE(store_.synced);
  EXPECT_FALSE(core_.in_memory());
  Assign(6, true);
  ExpectOneMoreSynced();
  Assign(7, true);
  EXPECT_FALSE(core_.image_due()) << "once is enough";
}

TEST_F(LastImage, OneThatIsUnderWayIsWrittenOnceMore) {
  const std::optional<Image> image = Train(3);
  ASSERT_TRUE(image.has_value());
  Assign(6, true);
  EXPECT_FALSE(core_.image_due()) << "one at a time";
  core_.Step(ImageWrittenEvent{3, /*ok=*/true}, now_);
  ExpectOneMoreSynced();
}

TEST_F(LastImage, WhatWasRestoredIsWrittenOnceMoreOrSynced) {
  for (const bool keep : {false, true}) {
    const uint64_t generation = core_.generation().value + 1, version = 40 + generation;
    Assign(generation, keep);
    PartitionState state = PartitionState::Initial(config_);
    state.version = version;
    state.sequences.assign(1, version);
    PartitionEffects effects;
    for (Frame& f : ImageFrames(config_, MakeImage(config_, state, {}), 77)) {
      f.generation = Generation(generation);
      effects = core_.Step(FrameEvent{9, std::move(f)}, now_);
    }
    ASSERT_TRUE(effects.reset.has_value());
    ASSERT_TRUE(persistence_.ResetTo(core_.config(), *effects.reset).ok());
    EXPECT_EQ(store_.synced, keep);
    core_.Step(ResetEvent{version}, now_);
    EXPECT_FALSE(core_.in_memory());
    if (keep) continue;
    Assign(generation + 1, true);
    ExpectOneMoreSynced();
  }
}

// The job was cancelled in the middle of a step: other partitions are at version 3.
TEST_F(LastImage, ServesTheVersionBeforeAfterARestartToo) {
  Train(3);
  const Buffer before = Dense(core_.state()).values();
  core_.Step(ImageWrittenEvent{3, true}, now_);
  Train(1);
  Assign(6, true);
  ExpectOneMoreSynced();
  auto recovered = persistence_.Recover(config_);
  ASSERT_TRUE(recovered.ok()) << recovered.status();
  PartitionCore again(config_, *std::move(recovered));
  again.Step(AssignEvent{Generation(7), false, {}, /*keep=*/true}, now_);
  EXPECT_FALSE(again.in_memory());
  for (const uint64_t version : {3, 4}) {
    Frame pull = PullFrame(config_, 20 + version);
    pull.want_version = version;
    const PartitionEffects answer = again.Step(FrameEvent{1, std::move(pull)}, now_);
    ASSERT_EQ(answer.replies.size(), 1u);
    EXPECT_EQ(answer.replies[0].frame.kind, v1::ExchangeFrame::VALUES) << answer.replies[0].frame.status;
    EXPECT_EQ(answer.replies[0].frame.version, version);
    EXPECT_TRUE(SameBits(answer.replies[0].frame.payload, version == 3 ? before : Dense(core_.state()).values()));
  }
  // If the job goes back to the version before, the copy stays as it is and serves both.
  const auto reach = persistence_.ReachOf(config_, 4);
  ASSERT_TRUE(reach.ok()) << reach.status();
  EXPECT_THAT(reach->versions, testing::ElementsAre(0u, 3u));
  ASSERT_TRUE(persistence_.RollBack(config_, 3).ok());
  const auto back = persistence_.Recover(config_);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(back->version == 4 && SameBits(Dense(*back).previous(), before));
}

}  // namespace
}  // namespace cairn
