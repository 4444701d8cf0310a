// Goal: the durabilities: what each stores and when, and how far a log can take a partition back; images on the wire.
#include <algorithm>
#include <iterator>
#include <random>

#include "server/core/snapshot_stride.h"
#include "tests/unit/server/replication_test_util.h"
#include "tests/unit/test_seed.h"

namespace cairn {
namespace {

TEST(DurabilityTest, ASnapshotJobHasImagesAtCommonVersionsAndNoLog) {
  PartitionConfig config = Config(v1::SNAPSHOT);
  config.image.snapshot_every = 4;
  Copy copy(config, {Generation(5), false, {}});
  std::map<uint64_t, Buffer> values;
  for (uint64_t v = 1; v <= 22; ++v) {
    PartitionEffects e = copy.Run(FrameEvent{1, PushFrame(config, 0, 1, v, 1.0f)});
    EXPECT_EQ(e.replies.size(), 1u);
    values[v] = Dense(copy.core.state()).values();
    ASSERT_EQ(e.image.has_value(), v % 4 == 0);
    if (!e.image) continue;
    ASSERT_TRUE(copy.persistence.WriteImage(config, *e.image).ok());
    copy.Run(ImageWrittenEvent{v, true});
  }
  auto reach = copy.persistence.ReachOf(config, 22);
  ASSERT_TRUE(reach.ok());
  EXPECT_EQ(reach->version_min, 22u);
  EXPECT_THAT(reach->versions, testing::ElementsAre(0, 8, 12, 16, 20));
  for (uint64_t back : {20, 16, 12, 8, 0}) {
    auto store = CopyOf(*copy.store);
    Persistence persistence(*store);
    ASSERT_TRUE(persistence.RollBack(config, back).ok());
    auto state = persistence.Recover(config);
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_EQ(state->version, back);
    if (back > 0) {
      EXPECT_TRUE(SameBits(Dense(*state).values(), values[back]));
    }
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(copy.persistence.RollBack(config, 13)));
}

// Each partition's disk has its own speed, some slower than the interval between two images: an image that falls due
// meanwhile is not written.
TEST(DurabilityTest, SlowImagesLeaveSnapshotJobsACommonVersion) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  constexpr uint64_t kEvery = 4, kSteps = 300, kWritingMax = 16;
  PartitionConfig config = Config(v1::SNAPSHOT);
  config.image.snapshot_every = kEvery;
  struct Partition {
    explicit Partition(const PartitionConfig& c) : copy(c, {Generation(5), false, {}}) {}
    Copy copy;
    uint64_t slowness = 1;  // an image takes up to this many steps
    std::optional<Image> writing;
    uint64_t written_at = 0;
  };
  // The first two alternate: one at 4, 12, 20, the other at 8, 16, 24.
  std::vector<std::unique_ptr<Partition>> partitions;
  for (uint64_t slowness : {6, 6, 1, 15}) {
    partitions.push_back(std::make_unique<Partition>(config));
    partitions.back()->slowness = slowness;
  }
  for (uint64_t v = 1; v <= kSteps; ++v) {
    std::vector<uint64_t> common;
    for (auto& p : partitions) {
      if (p->writing && v >= p->written_at) {
        const uint64_t taken = p->writing->header.version();
        ASSERT_TRUE(p->copy.persistence.WriteImage(config, *p->writing).ok());
        p->writing.reset();
        p->copy.Run(ImageWrittenEvent{taken, true});
      }
      PartitionEffects e = p->copy.Run(FrameEvent{1, PushFrame(config, 0, 1, v, 1.0f)});
      if (e.image) {
        ASSERT_FALSE(p->writing);
        p->writing = std::move(e.image);
        const bool early = p == partitions[1] && v == kEvery;
        p->written_at = v + (early ? 2 : p->slowness == 6 ? 6 : 1 + rng() % p->slowness);
      }
      const auto reach = p->copy.persistence.ReachOf(config, v);
      ASSERT_TRUE(reach.ok());
      std::vector<uint64_t> both;
      std::set_intersection(reach->versions.begin(), reach->versions.end(), common.begin(), common.end(),
                            std::back_inserter(both));
      common = p == partitions[0] ? reach->versions : both;
    }
    ASSERT_FALSE(common.empty());
    // Images of the largest stride: the last one may not be finished, the one before may have been missed while the
    // stride was being found.
    if (v > 4 * kWritingMax) {
      ASSERT_GE(common.back() + 3 * kWritingMax, v);
    }
  }
}

// Much slower disks, without the rest of a ps: partitions whose images take up to 30 times the interval between two
// always have a common version, once each has found its stride.
TEST(DurabilityTest, PartitionsOnVerySlowDisksMeet) {
  constexpr uint64_t kEvery = 4, kSteps = 8000, kSettled = 2000;
  struct Partition {
    SnapshotStride stride{kEvery};
    uint64_t slowness = 1;
    std::optional<uint64_t> writing;
    uint64_t written_at = 0;
    std::vector<uint64_t> images;  // newest first
  };
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    std::mt19937 rng(seed);
    std::vector<Partition> partitions(3);
    for (Partition& p : partitions) p.slowness = 1 + rng() % (30 * kEvery);
    for (uint64_t v = 1; v <= kSteps; ++v) {
      for (Partition& p : partitions) {
        if (p.writing && v >= p.written_at) {
          p.images.insert(p.images.begin(), *p.writing);
          for (uint64_t gone : SuperfluousSnapshots(p.images, kEvery)) std::erase(p.images, gone);
          p.stride.Written(*p.writing, v);
          p.writing.reset();
        }
        if (p.stride.Due(v, p.writing.has_value())) {
          p.writing = v;
          p.written_at = v + 1 + rng() % p.slowness;
        }
        ASSERT_LE(p.images.size(), 20u) << "disks are not endless; seed " << seed;
      }
      const auto all_have = [&](uint64_t version) {
        return std::all_of(partitions.begin(), partitions.end(), [&](const Partition& p) {
          return std::find(p.images.begin(), p.images.end(), version) != p.images.end();
        });
      };
      const auto& first = partitions[0].images;
      ASSERT_TRUE(v < kSettled || std::any_of(first.begin(), first.end(), all_have))
          << "nothing to go back to at step " << v << ", seed " << seed;
    }
  }
}

TEST(DurabilityTest, TheGradientsMemoryHoldsTheNewValues) {
  for (const v1::Durability durability : {v1::SNAPSHOT, v1::LOGGED}) {
    PartitionConfig config = Config(durability);
    Copy copy(config, {Generation(5), false, {}});
    for (uint64_t v = 1; v <= 3; ++v) {
      Frame push = PushFrame(config, 0, 1, v, 1.0f);
      const uint8_t* const gradient = push.payload.data();
      copy.Run(FrameEvent{1, std::move(push)});
      EXPECT_EQ(Dense(copy.core.state()).values().data(), gradient)
          << "it was copied: " << v1::Durability_Name(durability) << ", version " << v;
    }
  }
}

TEST(DurabilityTest, ALogTakesThePartitionBackToEachVersionOfItsReach) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  PartitionConfig config = Config(v1::LOGGED);
  config.image = {.log_bytes_min = 1, .log_to_image_ratio = 2};
  Copy copy(config, {Generation(5), false, {}});
  std::map<uint64_t, Buffer> values;
  values[0] = Dense(copy.core.state()).values();
  for (uint64_t v = 1; v <= 40; ++v) {
    copy.Run(FrameEvent{1, PushFrame(config, 0, 1, v, static_cast<float>(rng() % 10))});
    values[v] = Dense(copy.core.state()).values();
    if (!copy.core.image_due() || rng() % 2 == 0) continue;
    PartitionEffects e = copy.Run(TakeImageEvent{});
    ASSERT_TRUE(copy.persistence.WriteImage(config, *e.image).ok());
    copy.Run(ImageWrittenEvent{v, true});
  }
  auto reach = copy.persistence.ReachOf(config, 40);
  ASSERT_TRUE(reach.ok());
  EXPECT_LT(reach->version_min, 40u);
  EXPECT_GT(reach->version_min, 0u);
  for (uint64_t back = 0; back <= 41; ++back) {
    auto store = CopyOf(*copy.store);
    Persistence persistence(*store);
    const absl::Status status = persistence.RollBack(config, back);
    const bool offered = (back >= reach->version_min && back <= 40) ||
                         std::count(reach->versions.begin(), reach->versions.end(), back) > 0;
    ASSERT_EQ(status.ok(), offered) << back << ": " << status;
    if (!offered) continue;
    auto state = persistence.Recover(config);
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_EQ(state->version, back);
    EXPECT_TRUE(SameBits(Dense(*state).values(), values[back]));
  }
}

// A new backup starts with an image, and may be the only copy left when the others die: a partition that is one update
// behind must not end the job. It stays where it is and serves both versions.
TEST(DurabilityTest, AnImageWithTheValuesBeforeItCanServeTheVersionBefore) {
  const PartitionConfig config = Config(v1::REPLICATED);
  Copy primary(config, {Generation(5), false, {}});
  Buffer before;
  for (uint64_t v = 1; v <= 5; ++v) {
    before = Dense(primary.core.state()).values();
    primary.Run(FrameEvent{1, PushFrame(config, 0, 1, v, static_cast<float>(v))});
  }
  const PartitionState& at_five = primary.core.state();
  for (const bool with_previous : {true, false}) {
    for (const uint64_t logged : {5, 6, 7}) {
      Copy copy(config, {Generation(5), false, {}});
      ASSERT_TRUE(copy.persistence.ResetTo(config, MakeImage(config, at_five, {.previous = with_previous})).ok());
      auto reset = copy.persistence.Recover(config);
      ASSERT_TRUE(reset.ok()) << reset.status();
      PartitionCore core(config, *std::move(reset));
      ASSERT_TRUE(RunEvent(core, copy.persistence, AssignEvent{Generation(5), false, {}}, absl::UnixEpoch()).ok());
      for (uint64_t v = 6; v <= logged; ++v) {
        ASSERT_TRUE(
            RunEvent(core, copy.persistence, FrameEvent{1, PushFrame(config, 0, 1, v, 1.0f)}, absl::UnixEpoch()).ok());
      }
      ASSERT_EQ(core.version(), logged);
      const auto reach = copy.persistence.ReachOf(config, logged);
      ASSERT_TRUE(reach.ok());
      EXPECT_EQ(reach->version_min, 5u);
      if (!with_previous) {
        EXPECT_TRUE(reach->versions.empty());
        EXPECT_TRUE(absl::IsFailedPrecondition(copy.persistence.RollBack(config, 4)));
        continue;
      }
      EXPECT_THAT(reach->versions, testing::ElementsAre(4));
      EXPECT_TRUE(absl::IsFailedPrecondition(copy.persistence.RollBack(config, 3)));
      for (int twice = 0; twice < 2; ++twice) {
        const absl::Status status = copy.persistence.RollBack(config, 4);
        ASSERT_TRUE(status.ok()) << status;
        const auto state = copy.persistence.Recover(config);
        ASSERT_TRUE(state.ok()) << state.status();
        EXPECT_EQ(state->version, 5u);
        EXPECT_TRUE(SameBits(Dense(*state).values(), Dense(at_five).values()));
        EXPECT_TRUE(SameBits(Dense(*state).previous(), before));
      }
    }
  }
}

// ---- images ----

TEST(ImageTest, WhatDoesNotFitIsRefused) {
  const PartitionConfig c = Config(v1::REPLICATED);
  const Image image = MakeImage(c, PartitionState::Initial(c), {.previous = true});
  const auto refused = [&](auto change) {
    std::vector<Frame> frames = ImageFrames(c, image, 1);
    change(frames);
    ImageReceiver receiver;
    for (Frame& f : frames) {
      auto added = receiver.Add(c, 1, std::move(f));
      if (!added.ok()) return added.status();
    }
    return absl::OkStatus();
  };
  EXPECT_TRUE(refused([](auto&) {}).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(refused([](auto& f) { f[0].image = "\xff"; })));
  EXPECT_TRUE(absl::IsInvalidArgument(refused([](auto& f) { f[1].payload = f[1].payload.Slice(0, 4); })));
  EXPECT_TRUE(absl::IsInvalidArgument(refused([](auto& f) { f[0].tensors = 9; })));
  EXPECT_TRUE(absl::IsInvalidArgument(refused([](auto& f) { f[1].dtype = v1::BFLOAT16; })));
  EXPECT_TRUE(absl::IsFailedPrecondition(refused([](auto& f) { f.erase(f.begin()); })));
  EXPECT_TRUE(absl::IsFailedPrecondition(refused([](auto& f) { f[2].request_id = 2; })));
  PartitionConfig other = c;
  other.replicas = 4;
  v1::PartitionImage header = image.header;
  header.mutable_sequences()->add_last_sequence(0);
  EXPECT_TRUE(absl::IsInvalidArgument(refused([&](auto& f) { f[0].image = header.SerializeAsString(); })));
}

}  // namespace
}  // namespace cairn
