// Goal: whatever the moment of a crash, recovery gives the bits of a run without one, and never less than what was
// acknowledged. The version before is there too; damage is found and named; jobs are listed, narrowed and dropped.
#include "server/storage/persistence.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "tests/unit/server/server_test_util.h"
#include "tests/unit/test_seed.h"

namespace cairn {
namespace {

using testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(1'000'000);

PartitionConfig SmallImages(UpdateMode mode, uint32_t replicas) {
  PartitionConfig c = TestConfig(mode, replicas);
  v1::Optimizer adam;
  adam.mutable_adam()->set_amsgrad(true);
  Dense(c).optimizer = OptimizerRule::From(adam);
  c.image = {.log_bytes_min = 1, .log_to_image_ratio = 2};
  return c;
}

Buffer RandomGradient(const PartitionConfig& c, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  Buffer b = Buffer::Allocate(c.size() * sizeof(float));
  for (float& f : b.mutable_floats()) f = normal(rng);
  return b;
}

// The expected contents of each version.
struct Expected {
  Buffer values;
  std::vector<Buffer> slots;
  std::vector<uint64_t> sequences;
};
Expected Capture(const PartitionState& s) {
  Expected e{Buffer::CopyOf(Dense(s).values().data(), Dense(s).values().size()), {}, s.sequences};
  for (const Buffer& slot : Dense(s).slots()) e.slots.push_back(Buffer::CopyOf(slot.data(), slot.size()));
  return e;
}

class CrashTest : public testing::TestWithParam<UpdateMode> {};

TEST_P(CrashTest, RecoveryAtAnyPointGivesTheSameBits) {
  const uint32_t seed0 = TestSeed();
  for (uint32_t round = 0; round < 6; ++round) {
    const uint32_t seed = seed0 + round;
    SCOPED_TRACE(seed);
    std::mt19937 rng(seed);
    const PartitionConfig config = SmallImages(GetParam(), 2);
    auto store = NewMemoryKvStore();
    auto persistence = std::make_unique<Persistence>(*store);
    auto core = std::make_unique<PartitionCore>(config, PartitionState::Initial(config));
    std::map<uint64_t, Expected> expected;
    expected[0] = Capture(core->state());
    uint64_t acknowledged = 0;
    std::optional<Image> image;  // taken and not yet written
    int images = 0;

    // The crash: only what the store holds now is left.
    const auto check_recovery = [&](uint64_t at_most) {
      auto copy = CopyOf(*store);
      const auto state = Persistence(*copy).Recover(config);
      ASSERT_TRUE(state.ok()) << state.status();
      ASSERT_GE(state->version, acknowledged);
      ASSERT_LE(state->version, at_most);
      if (!expected.contains(state->version)) return;  // appended, not applied yet here: checked after it is
      const Expected& e = expected[state->version];
      ASSERT_TRUE(SameBits(Dense(*state).values(), e.values)) << "version " << state->version;
      for (size_t s = 0; s < e.slots.size(); ++s) ASSERT_TRUE(SameBits(Dense(*state).slots()[s], e.slots[s]));
      ASSERT_EQ(state->sequences, e.sequences);
      if (state->version > 0) {
        ASSERT_TRUE(SameBits(Dense(*state).previous(), expected[state->version - 1].values));
      }
    };

    std::vector<uint64_t> next(2, 1);
    for (int i = 0; i < 60; ++i) {
      // One update.
      const uint32_t r = rng() % 2;
      const bool synchronous = GetParam() == UpdateMode::kSynchronous;
      const uint64_t examples = rng() % 8 == 0 ? 0 : 3;
      Frame push =
          PushFrame(config, synchronous ? 0 : r, synchronous ? 2 : 1, synchronous ? core->version() + 1 : next[r]++,
                    examples == 0 ? Buffer() : RandomGradient(config, rng), examples, 0.01f);
      PartitionEffects e = core->Step(FrameEvent{1, std::move(push)}, kNow);
      ASSERT_EQ(e.persists.size(), 1u);
      check_recovery(core->version());
      ASSERT_TRUE(persistence->Append(config, e.persists[0]).ok());
      check_recovery(core->version() + 1);
      e.persists.clear();
      core->Step(PersistedEvent{core->version() + 1}, kNow);
      expected[core->version()] = Capture(core->state());
      acknowledged = core->version();
      check_recovery(acknowledged);

      // Images: taken, written at once or some updates later (or never), and confirmed.
      if (!image && core->image_due()) image = core->Step(TakeImageEvent{}, kNow).image;
      if (image && rng() % 3 == 0) {
        const bool ok = rng() % 4 != 0;
        if (ok) {
          ASSERT_TRUE(persistence->WriteImage(config, *image).ok());
        }
        check_recovery(acknowledged);
        if (rng() % 4 != 0) {
          core->Step(ImageWrittenEvent{image->header.version(), ok}, kNow);
          images += ok;
          image.reset();
        }
      }
      // A restart now and then.
      if (rng() % 10 == 0) {
        store = CopyOf(*store);
        persistence = std::make_unique<Persistence>(*store);
        auto state = persistence->Recover(config);
        ASSERT_TRUE(state.ok()) << state.status();
        core = std::make_unique<PartitionCore>(config, *std::move(state));
        image.reset();
        ASSERT_EQ(core->version(), acknowledged);
      }
    }
    EXPECT_GT(images, 0);
    // The log is trimmed, it does not only grow.
    int entries = 0;
    ASSERT_TRUE(store->Scan("p", [&](std::string_view, std::string_view) { return ++entries, true; }).ok());
    EXPECT_LT(entries, 80);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, CrashTest, testing::Values(UpdateMode::kSynchronous, UpdateMode::kAsynchronous),
                         [](const auto& i) {
                           return i.param == UpdateMode::kSynchronous ? "Synchronous" : "Asynchronous";
                         });

// A partition after `updates` updates through RunEvent, with images as they fall due.
void Train(const PartitionConfig& config, Persistence& persistence, PartitionCore& core, int updates) {
  for (int i = 0; i < updates; ++i) {
    const auto e = RunEvent(core, persistence, FrameEvent{1, PushFrame(config, 0, 2, core.version() + 1, 1.0f)}, kNow);
    ASSERT_TRUE(e.ok()) << e.status();
    ASSERT_EQ(e->replies.size(), 1u);
    if (!core.image_due()) continue;
    auto taken = RunEvent(core, persistence, TakeImageEvent{}, kNow);
    ASSERT_TRUE(taken.ok() && taken->image);
    ASSERT_TRUE(persistence.WriteImage(config, *taken->image).ok());
    ASSERT_TRUE(RunEvent(core, persistence, ImageWrittenEvent{taken->image->header.version(), true}, kNow).ok());
  }
}

TEST(PersistenceTest, EveryDamagedByteIsFoundAndNamed) {
  const PartitionConfig config = SmallImages(UpdateMode::kSynchronous, 2);
  auto store = NewMemoryKvStore();
  Persistence persistence(*store);
  PartitionCore core(config, PartitionState::Initial(config));
  Train(config, persistence, core, 20);
  const auto good = persistence.Recover(config);
  ASSERT_TRUE(good.ok());
  ASSERT_GT(good->image_version, 0u);

  std::vector<std::pair<std::string, std::string>> all;
  ASSERT_TRUE(store
                  ->Scan("p",
                         [&](std::string_view k, std::string_view v) {
                           all.emplace_back(k, v);
                           return true;
                         })
                  .ok());
  int refused = 0;
  for (const auto& [key, value] : all) {
    for (size_t at = 0; at < value.size(); at += at < 40 ? 1 : 13) {
      std::string bad = value;
      bad[at] = static_cast<char>(bad[at] ^ 0x20);
      auto copy = CopyOf(*store);
      KvBatch batch;
      batch.Put(key, bad);
      ASSERT_TRUE(copy->Write(batch, true).ok());
      const auto state = Persistence(*copy).Recover(config);
      if (state.ok()) {  // what is no longer needed is not read
        ASSERT_TRUE(SameBits(Dense(*state).values(), Dense(*good).values())) << "byte " << at;
        continue;
      }
      ++refused;
      ASSERT_EQ(state.status().code(), absl::StatusCode::kDataLoss) << state.status();
      ASSERT_THAT(std::string(state.status().message()), HasSubstr("job 3 partition 7"));
    }
    for (size_t length : {size_t{0}, size_t{5}, value.size() / 2}) {  // cut off
      auto copy = CopyOf(*store);
      KvBatch batch;
      batch.Put(key, value.substr(0, length));
      ASSERT_TRUE(copy->Write(batch, true).ok());
      const auto state = Persistence(*copy).Recover(config);
      if (!state.ok()) {
        ASSERT_EQ(state.status().code(), absl::StatusCode::kDataLoss);
      }
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(PersistenceTest, AMissingEntryIsNotSkipped) {
  const PartitionConfig config = TestConfig(UpdateMode::kSynchronous, 2);
  auto store = NewMemoryKvStore();
  Persistence persistence(*store);
  PartitionCore core(config, PartitionState::Initial(config));
  Train(config, persistence, core, 4);
  std::vector<std::string> keys;
  ASSERT_TRUE(store
                  ->Scan("p",
                         [&](std::string_view k, std::string_view) {
                           keys.emplace_back(k);
                           return true;
                         })
                  .ok());
  ASSERT_EQ(keys.size(), 4u);
  KvBatch batch;
  batch.Delete(keys[1]);
  ASSERT_TRUE(store->Write(batch, true).ok());
  const auto state = persistence.Recover(config);
  EXPECT_EQ(state.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(state.status().message()), HasSubstr("log entry 3: it does not follow version 1"));
}

TEST(PersistenceTest, AnotherShapeIsRefused) {
  PartitionConfig config = SmallImages(UpdateMode::kSynchronous, 2);
  auto store = NewMemoryKvStore();
  Persistence persistence(*store);
  PartitionCore core(config, PartitionState::Initial(config));
  Train(config, persistence, core, 20);
  config.end += 16;
  const auto state = persistence.Recover(config);
  EXPECT_EQ(state.status().code(), absl::StatusCode::kFailedPrecondition) << state.status();
}

// A store whose disk fails after so many writes.
class FailingStore : public KvStore {
 public:
  FailingStore(KvStore& store, int writes) : store_(store), writes_left_(writes) {}
  absl::StatusOr<std::optional<std::string>> Get(std::string_view key) override { return store_.Get(key); }
  absl::Status Write(const KvBatch& batch, bool sync) override {
    if (writes_left_-- <= 0) return absl::ResourceExhaustedError("no space left");
    return store_.Write(batch, sync);
  }
  absl::Status Scan(std::string_view prefix,
                    const std::function<bool(std::string_view, std::string_view)>& fn) override {
    return store_.Scan(prefix, fn);
  }

 private:
  KvStore& store_;
  int writes_left_;
};

TEST(PersistenceTest, AFailedWriteIsNotAcknowledged) {
  const PartitionConfig config = TestConfig(UpdateMode::kSynchronous, 2);
  auto store = NewMemoryKvStore();
  FailingStore failing(*store, 2);
  Persistence persistence(failing);
  PartitionCore core(config, PartitionState::Initial(config));
  Train(config, persistence, core, 2);
  const auto e = RunEvent(core, persistence, FrameEvent{1, PushFrame(config, 0, 2, 3, 1.0f)}, kNow);
  EXPECT_EQ(e.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(e.status().message()), HasSubstr("job 3 partition 7"));
  EXPECT_EQ(core.version(), 2u);
  EXPECT_EQ(persistence.Recover(config)->version, 2u);
}

v1::HostPartitions Host(uint64_t job, uint64_t generation, std::vector<uint32_t> partitions) {
  v1::HostPartitions host;
  host.set_job_id(job);
  host.set_generation(generation);
  host.mutable_spec()->set_name(absl::StrCat("j", job));
  for (uint32_t p : partitions) {
    v1::PartitionRange* range = host.add_partitions();
    range->set_partition(p);
    range->set_begin(p * 1024);
    range->set_end(p * 1024 + 1024);
  }
  return host;
}

TEST(PersistenceTest, JobsAreListedNarrowedAndDropped) {
  auto store = NewMemoryKvStore();
  Persistence persistence(*store);
  EXPECT_TRUE(persistence.ListHostedJobs()->empty());
  ASSERT_TRUE(persistence.SetHostedJob(Host(300, 2, {1})).ok());
  ASSERT_TRUE(persistence.SetHostedJob(Host(3, 1, {6, 7, 255})).ok());
  ASSERT_TRUE(persistence.SetHostedJob(Host(0xffffffffffffffff, 1, {0xffffffff})).ok());
  const auto jobs = persistence.ListHostedJobs();
  ASSERT_TRUE(jobs.ok());
  ASSERT_EQ(jobs->size(), 3u);
  EXPECT_EQ((*jobs)[0].job_id(), 3u);
  EXPECT_EQ((*jobs)[1].SerializeAsString(), Host(300, 2, {1}).SerializeAsString());

  const auto train = [&](uint64_t job, uint32_t partition) {
    PartitionConfig c = TestConfig(UpdateMode::kSynchronous, 2);
    c.job = JobId(job);
    c.partition = PartitionId(partition);
    PartitionCore core(c, PartitionState::Initial(c));
    Train(c, persistence, core, 3);
    return c;
  };
  const PartitionConfig kept = train(3, 7), narrowed = train(3, 255), other = train(300, 1),
                        last = train(0xffffffffffffffff, 0xffffffff);
  ASSERT_TRUE(persistence.SetHostedJob(Host(3, 2, {6, 7})).ok());
  EXPECT_EQ(persistence.Recover(kept)->version, 3u);
  EXPECT_EQ(persistence.Recover(narrowed)->version, 0u);
  EXPECT_EQ(persistence.ListHostedJobs()->at(0).generation(), 2u);

  ASSERT_TRUE(persistence.DropJob(JobId(3)).ok());
  ASSERT_TRUE(persistence.DropJob(JobId(3)).ok());
  EXPECT_EQ(persistence.Recover(kept)->version, 0u);
  EXPECT_EQ(persistence.Recover(other)->version, 3u);
  EXPECT_EQ(persistence.Recover(last)->version, 3u);
  ASSERT_TRUE(persistence.DropJob(last.job).ok());
  EXPECT_EQ(persistence.Recover(last)->version, 0u);
  EXPECT_EQ(persistence.ListHostedJobs()->size(), 1u);
}

TEST(PersistenceTest, ADamagedAssignmentIsNamed) {
  auto store = NewMemoryKvStore();
  Persistence persistence(*store);
  ASSERT_TRUE(persistence.SetHostedJob(Host(3, 1, {6})).ok());
  std::string key, value;
  ASSERT_TRUE(store
                  ->Scan("j",
                         [&](std::string_view k, std::string_view v) {
                           key = k, value = v;
                           return true;
                         })
                  .ok());
  value.back() = static_cast<char>(value.back() ^ 1);
  KvBatch batch;
  batch.Put(key, value);
  ASSERT_TRUE(store->Write(batch, true).ok());
  EXPECT_EQ(persistence.ListHostedJobs().status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(persistence.ListHostedJobs().status().message()), HasSubstr("job 3"));
}

TEST(PersistenceTest, RocksDbKeepsAPartitionAcrossReopen) {
  std::string directory = testing::TempDir() + "/psXXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  PartitionConfig config = SmallImages(UpdateMode::kSynchronous, 2);
  config.end = config.begin + 16384;  // values that go to blob files
  Dense(config).segments = {{0, 16384}};
  auto memory = NewMemoryKvStore();
  Persistence reference_persistence(*memory);
  PartitionCore reference(config, PartitionState::Initial(config));
  for (int round = 0; round < 4; ++round) {
    auto store = OpenRocksDbKvStore(directory);
    ASSERT_TRUE(store.ok()) << store.status();
    Persistence persistence(**store);
    auto state = persistence.Recover(config);
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_TRUE(SameBits(Dense(*state).values(), Dense(reference.state()).values()));
    PartitionCore core(config, *std::move(state));
    Train(config, persistence, core, 17);
    Train(config, reference_persistence, reference, 17);
    EXPECT_EQ(core.version(), reference.version());
    EXPECT_GT(core.state().image_version, 0u);
  }
  std::filesystem::remove_all(directory);
}

TEST(PersistenceClusterId, IsKeptAndChecked) {
  const std::unique_ptr<KvStore> store = NewMemoryKvStore();
  EXPECT_EQ(*Persistence(*store).ClusterId(), 0u);
  ASSERT_TRUE(Persistence(*store).SetClusterId(0x8000'0000'0000'0001).ok());
  EXPECT_EQ(*Persistence(*store).ClusterId(), 0x8000'0000'0000'0001u);
  KvBatch damage;
  damage.Put("c", std::string(16, '\1'));
  ASSERT_TRUE(store->Write(damage, false).ok());
  EXPECT_TRUE(absl::IsDataLoss(Persistence(*store).ClusterId().status()));
}

}  // namespace
}  // namespace cairn
