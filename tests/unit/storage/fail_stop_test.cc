// Goal: what a store has confirmed with sync survives a loss of power at any moment and any call that fails, as the ps
// and the coordinator use it; after the first failure nothing is confirmed any more.
//
// CAIRN_TEST_ROUNDS: how many random moments and failed calls are tried (1,000 by hand).
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/storage/kv_store.h"
#include "coordinator/store/state_store.h"
#include "tests/unit/server/server_test_util.h"
#include "tests/unit/storage/faulty_files.h"
#include "tests/unit/test_seed.h"

namespace cairn {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'000'000);

int Rounds(int usual) {
  const char* given = std::getenv("CAIRN_TEST_ROUNDS");
  return given == nullptr ? usual : std::atoi(given);
}

// Writes to a store, remembers what was confirmed, and looks for it in the store that is left.
class Client {
 public:
  virtual ~Client() = default;
  virtual absl::Status Step(KvStore& store, std::mt19937& rng) = 0;
  virtual void Check(KvStore& left) = 0;
  uint64_t confirmed = 0;
};

// Values of all sizes, replaced and deleted.
class Writer : public Client {
 public:
  explicit Writer(std::string prefix) : prefix_(std::move(prefix)) {}

  absl::Status Step(KvStore& store, std::mt19937& rng) override {
    KvBatch batch;
    std::map<std::string, std::optional<std::string>> wanted;
    for (int i = 0; i < 3; ++i) {
      const std::string key = absl::StrCat(prefix_, rng() % 12);
      wanted[key] = std::nullopt;
      if (rng() % 4 == 0) {
        batch.Delete(key);
        continue;
      }
      const std::string value(rng() % 2 == 0 ? rng() % 100 : rng() % 40'000, static_cast<char>('a' + rng() % 26));
      batch.Put(key, value.substr(0, 5),
                Buffer::CopyOf(value.data() + std::min<size_t>(5, value.size()),
                               value.size() - std::min<size_t>(5, value.size())));
      wanted[key] = value;
    }
    for (const auto& [key, value] : wanted) doubt_[key] = value;
    CAIRN_RETURN_IF_ERROR(store.Write(batch, /*sync=*/true));
    for (auto& [key, value] : wanted) known_[key] = value;
    doubt_.clear();
    ++confirmed;
    return absl::OkStatus();
  }

  void Check(KvStore& left) override {
    bool before = true, after = true;  // the batch in doubt is there as a whole or not at all
    for (const auto& [key, value] : known_) {
      const auto found = left.Get(key);
      ASSERT_TRUE(found.ok()) << key << ": " << found.status();
      if (doubt_.contains(key)) {
        before &= *found == value;
        after &= *found == doubt_[key];
      } else {
        EXPECT_TRUE(*found == value) << key << " after " << confirmed << " confirmed batches";
      }
    }
    EXPECT_TRUE(before || after) << "half of a batch";
  }

 private:
  const std::string prefix_;
  std::map<std::string, std::optional<std::string>> known_, doubt_;
};

// A partition of a job with `fsync: true`, with images.
class Partition : public Client {
 public:
  explicit Partition(uint32_t number) : config_(TestConfig(UpdateMode::kSynchronous, 2, 4096)) {
    config_.partition = PartitionId(number);
    config_.fsync = true;
    config_.image = {.log_bytes_min = 1, .log_to_image_ratio = 2};
    core_ = std::make_unique<PartitionCore>(config_, PartitionState::Initial(config_));
  }

  absl::Status Step(KvStore& store, std::mt19937& rng) override {
    Persistence persistence(store);
    const Frame push = PushFrame(config_, 0, 2, core_->version() + 1, static_cast<float>(rng() % 100));
    CAIRN_RETURN_IF_ERROR(RunEvent(*core_, persistence, FrameEvent{1, push}, kNow).status());
    confirmed = core_->version();
    values_ = Buffer::CopyOf(Dense(core_->state()).values().data(), Dense(core_->state()).values().size());
    if (!core_->image_due()) return absl::OkStatus();
    CAIRN_ASSIGN_OR_RETURN(const PartitionEffects taken, RunEvent(*core_, persistence, TakeImageEvent{}, kNow));
    if (!taken.image) return absl::OkStatus();
    CAIRN_RETURN_IF_ERROR(persistence.WriteImage(config_, *taken.image));
    return RunEvent(*core_, persistence, ImageWrittenEvent{taken.image->header.version(), true}, kNow).status();
  }

  void Check(KvStore& left) override {
    const auto state = Persistence(left).Recover(config_);
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_GE(state->version, confirmed);
    EXPECT_LE(state->version, confirmed + 1);
    if (state->version == confirmed && confirmed > 0) {
      EXPECT_TRUE(SameBits(Dense(*state).values(), values_));
    }
  }

 private:
  PartitionConfig config_;
  std::unique_ptr<PartitionCore> core_;
  Buffer values_;
};

class Lent : public KvStore {
 public:
  explicit Lent(KvStore* store) : store_(store) {}
  absl::StatusOr<std::optional<std::string>> Get(std::string_view key) override { return store_->Get(key); }
  absl::Status Write(const KvBatch& batch, bool sync) override { return store_->Write(batch, sync); }
  absl::Status Scan(std::string_view prefix,
                    const std::function<bool(std::string_view, std::string_view)>& fn) override {
    return store_->Scan(prefix, fn);
  }

 private:
  KvStore* const store_;
};

// The coordinator's state: stored before anything is answered.
class State : public Client {
 public:
  absl::Status Step(KvStore& store, std::mt19937& rng) override {
    StateStore state(std::make_unique<Lent>(&store));
    const std::string key = absl::StrCat("job/", rng() % 5), value(rng() % 60'000, static_cast<char>('a' + rng() % 26));
    doubt_ = {key, value};
    CAIRN_RETURN_IF_ERROR(state.Write({{key, value}}));
    known_[key] = value;
    doubt_ = {};
    ++confirmed;
    return absl::OkStatus();
  }
  void Check(KvStore& left) override {
    for (const auto& [key, value] : known_) {
      const auto found = left.Get(key);
      ASSERT_TRUE(found.ok() && found->has_value()) << key;
      EXPECT_TRUE(**found == value || (key == doubt_.first && **found == doubt_.second)) << key;
    }
  }

 private:
  std::map<std::string, std::string> known_;
  std::pair<std::string, std::string> doubt_;
};

class FailStopTest : public testing::Test {
 protected:
  FailStopTest() {
    SilenceLog();  // hundreds of planted failures would bury the one that matters
    base_ = testing::TempDir() + "/failXXXXXX";
    EXPECT_NE(mkdtemp(base_.data()), nullptr);
  }
  ~FailStopTest() override {
    files_.Stop();
    std::filesystem::remove_all(base_);
  }

  // A folder that is watched; what the round before left is removed.
  std::string Begin() {
    files_.Stop();
    for (const auto& entry : std::filesystem::directory_iterator(base_)) std::filesystem::remove_all(entry.path());
    const std::string disk = base_ + "/disk";
    std::filesystem::create_directory(disk);
    files_.Watch(disk);
    clients_.clear();
    clients_.push_back(std::make_unique<Writer>("a"));
    clients_.push_back(std::make_unique<Partition>(1));
    clients_.push_back(std::make_unique<Partition>(2));
    clients_.push_back(std::make_unique<State>());
    return disk + "/of/daemon/store";
  }

  // Each client by a thread of its own, until it fails or has done its steps. Returns how many failed.
  int Run(KvStore& store, int steps, uint32_t seed) {
    std::atomic<int> failed{0};
    std::vector<std::thread> threads;
    for (auto& client : clients_) {
      threads.emplace_back([&store, &failed, &client, steps, seed, n = threads.size()] {
        std::mt19937 rng(seed * 7 + static_cast<uint32_t>(n));
        for (int i = 0; i < steps; ++i) {
          if (client->Step(store, rng).ok()) continue;
          ++failed;
          return;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return failed;
  }

  // What the disk holds is opened as a daemon would, and has all that was confirmed.
  void CheckDisk(double share, uint32_t seed) {
    files_.Stop();
    files_.RestoreTo(base_ + "/left", share, seed);
    const auto left = OpenRocksDbKvStore(base_ + "/left/of/daemon/store");
    ASSERT_TRUE(left.ok()) << left.status();
    for (auto& client : clients_) client->Check(**left);
  }

  FaultyFiles& files_ = FaultyFiles::Instance();
  std::string base_;
  std::vector<std::unique_ptr<Client>> clients_;
};

TEST_F(FailStopTest, PowerIsLostAtARandomMoment) {
  uint64_t confirmed = 0;
  for (int round = 0; round < Rounds(60); ++round) {
    const uint32_t seed = TestSeed() + static_cast<uint32_t>(round);
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 rng(seed);
    const std::string path = Begin();
    files_.CutPower(rng() % 700);
    if (auto store = OpenRocksDbKvStore(path); store.ok()) Run(**store, 25, seed);
    for (const auto& client : clients_) confirmed += client->confirmed;
    // Nothing of what was not synced, or some of it.
    CheckDisk(round % 2 == 0 ? 0 : 0.7, seed);
    if (HasFailure()) return;
  }
  EXPECT_GT(confirmed, static_cast<uint64_t>(Rounds(60)) * 10);
}

TEST_F(FailStopTest, AnyCallFails) {
  int ended = 0, survived = 0;
  for (int round = 0; round < Rounds(60); ++round) {
    const uint32_t seed = TestSeed() + static_cast<uint32_t>(round);
    const FaultKind kind = round % 3 == 0 ? FaultKind::kIo : round % 3 == 1 ? FaultKind::kNoSpace : FaultKind::kShort;
    // By hand each call in turn; otherwise some of them.
    const uint64_t number = Rounds(0) > 0 ? static_cast<uint64_t>(round) / 3 : std::mt19937(seed)() % 450;
    SCOPED_TRACE(absl::StrCat("seed ", seed, ", kind ", static_cast<int>(kind), ", call ", number));
    const std::string path = Begin();
    files_.FailCall(number, kind);
    std::atomic<int> told{0};
    auto store = OpenRocksDbKvStore(path, [&](const absl::Status& status) {
      EXPECT_FALSE(status.ok());
      ++told;
    });
    if (!store.ok()) {
      EXPECT_TRUE(files_.failed()) << store.status();
      continue;
    }
    const int failed = Run(**store, 20, seed);
    EXPECT_EQ(told, failed > 0 ? 1 : 0);
    if (failed > 0) {  // the disk works again, the store does not
      EXPECT_NE(kind, FaultKind::kShort);
      KvBatch batch;
      batch.Put("later", "x");
      const absl::Status later = (*store)->Write(batch, true);
      EXPECT_FALSE(later.ok());
      EXPECT_NE(later.message().find(path), std::string::npos) << later;
    }
    ++(failed > 0 ? ended : survived);
    files_.CutPower();
    store->reset();
    CheckDisk(0, seed);
    if (HasFailure()) return;
  }
  EXPECT_GT(ended, 0);
  EXPECT_GT(survived, 0);
}

// Two partitions append to one file of the value log. The sync of the first fails and takes the pages of both with it;
// a second sync of the file succeeds, without them.
TEST_F(FailStopTest, AFailedSyncIsNotRepairedByTheNextOneOfTheSameFile) {
  const std::string path = Begin();
  clients_.clear();
  auto store = *OpenRocksDbKvStore(path);
  const auto write = [&](const std::string& key) {
    KvBatch batch;
    batch.Put(key, "", Buffer::Zeros(20'000));
    return store->Write(batch, /*sync=*/true);
  };
  ASSERT_TRUE(write("before").ok());
  std::atomic<int> syncs{0};
  std::atomic<bool> first_ended{false};
  std::atomic<uint64_t> calls_at_first{0};
  files_.OnSync([&](const std::string& file) {
    if (file.find("/values/") == std::string::npos) return;
    if (++syncs == 1) {  // waits for the other's body
      calls_at_first = files_.calls();
      while (files_.calls() == calls_at_first) std::this_thread::yield();
      files_.FailCall(files_.calls(), FaultKind::kIo);
    } else {
      while (!first_ended) std::this_thread::yield();
    }
  });
  absl::Status first, second;
  std::thread one([&] {
    first = write("one");
    first_ended = true;
  });
  while (calls_at_first == 0) std::this_thread::yield();
  std::thread two([&] { second = write("two"); });
  one.join();
  two.join();
  EXPECT_FALSE(first.ok());
  EXPECT_FALSE(second.ok()) << "confirmed, though its pages are lost";
  EXPECT_FALSE(write("three").ok());
  files_.CutPower();
  store.reset();
  CheckDisk(0, 1);
}

}  // namespace
}  // namespace cairn
