// Goal: HostPartitions.keep: a ps reports that a job's last values are kept once all partitions of which it is the
// primary are on its disk, and not before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/synchronization/mutex.h"
#include "tests/unit/rpc/exchange_fixture.h"

namespace cairn {
namespace {

constexpr uint64_t kJob = 5, kGeneration = 3;

// A store in which images wait until they are let through.
class GatedStore : public KvStore {
 public:
  absl::StatusOr<std::optional<std::string>> Get(std::string_view key) override { return store_->Get(key); }
  absl::Status Write(const KvBatch& batch, bool sync) override {
    if (batch.background()) {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &GatedStore::HasRoom));
      --room_;
    }
    return store_->Write(batch, sync);
  }
  absl::Status Scan(std::string_view prefix,
                    const std::function<bool(std::string_view, std::string_view)>& fn) override {
    return store_->Scan(prefix, fn);
  }
  void Admit(int images) {
    absl::MutexLock lock(&mutex_);
    room_ += images;
  }

 private:
  bool HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return room_ > 0; }

  const std::unique_ptr<KvStore> store_ = NewMemoryKvStore();
  absl::Mutex mutex_;
  int room_ ABSL_GUARDED_BY(mutex_) = 0;
};

class TellKeptTest : public testing::Test {
 protected:
  TellKeptTest()
      : host_(
            store_, ProcessEnvironment(clock_, 2),
            {.reply = [this](uint64_t, Frame) { Note([this] { ++replies_; }); },
             .job_error = [](JobId, Generation, const absl::Status&) {},
             .kept =
                 [this](v1::PartitionsReady ready) { Note([this, &ready] { kept_.push_back(std::move(ready)); }); }}) {
    v1::JobSpec spec = DenseJob(8, 4, 1, /*asynchronous=*/false);
    spec.set_durability(v1::SNAPSHOT);
    assignment_ = HostAll(kJob, kGeneration, spec, 64);
  }
  void Note(const std::function<void()>& note) {
    absl::MutexLock lock(&mutex_);
    note();
  }
  int Partitions() const { return assignment_.partitions_size(); }
  void TrainStep() {
    for (int p = 0; p < Partitions(); ++p) host_.OnFrame(1, PushOf(assignment_, p, 0, 1, 2.0f), nullptr);
    absl::MutexLock lock(&mutex_);
    const auto all = [this] { return replies_ == Partitions(); };
    ASSERT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&all), absl::Seconds(30)));
  }
  v1::PartitionsReady Assign(bool keep) {
    assignment_.set_generation(assignment_.generation() + 1);
    assignment_.set_keep(keep);
    const auto ready = host_.Host(assignment_);
    EXPECT_TRUE(ready.ok()) << ready.status();
    return ready.ok() ? *ready : v1::PartitionsReady();
  }
  int Told() {
    absl::MutexLock lock(&mutex_);
    return static_cast<int>(kept_.size());
  }
  bool WaitUntilTold(int times) {
    absl::MutexLock lock(&mutex_);
    const auto told = [&] { return static_cast<int>(kept_.size()) >= times; };
    return mutex_.AwaitWithTimeout(absl::Condition(&told), absl::Seconds(30));
  }

  RealClock clock_;
  GatedStore store_;
  absl::Mutex mutex_;
  int replies_ = 0;
  std::vector<v1::PartitionsReady> kept_;
  v1::HostPartitions assignment_;
  PartitionHost host_;
};

TEST_F(TellKeptTest, OnceAllThatItServesIsOnItsDisk) {
  ASSERT_GE(Partitions(), 2);
  Assign(/*keep=*/false);
  TrainStep();
  EXPECT_EQ(Told(), 0) << "nobody asked";
  const v1::PartitionsReady ready = Assign(/*keep=*/true);
  ASSERT_EQ(ready.partitions_size(), Partitions());
  for (const v1::HeldPartition& p : ready.partitions()) EXPECT_TRUE(p.in_memory());
  store_.Admit(Partitions() - 1);
  host_.ReportAgain();
  EXPECT_EQ(Told(), 0) << "one is in memory yet";
  store_.Admit(1);
  ASSERT_TRUE(WaitUntilTold(1));
  EXPECT_EQ(kept_[0].job_id(), kJob);
  EXPECT_EQ(kept_[0].generation(), assignment_.generation());
  ASSERT_EQ(kept_[0].partitions_size(), Partitions());
  for (const v1::HeldPartition& p : kept_[0].partitions()) {
    EXPECT_EQ(p.version(), 1u);
    EXPECT_FALSE(p.in_memory());
  }
  host_.ReportAgain();
  EXPECT_EQ(Told(), 2) << "to a coordinator that was away";
  Assign(/*keep=*/true);
  EXPECT_EQ(Told(), 3) << "the next assignment is answered, too";
  Assign(/*keep=*/false);
  host_.ReportAgain();
  EXPECT_EQ(Told(), 3);
}

TEST_F(TellKeptTest, BackupsAloneSayNothing) {
  for (v1::PartitionRange& range : *assignment_.mutable_partitions()) range.set_backup(true);
  Assign(/*keep=*/true);
  host_.ReportAgain();
  EXPECT_EQ(Told(), 0);
}

TEST_F(TellKeptTest, TheInitialValuesNeedNoImage) {
  const v1::PartitionsReady ready = Assign(/*keep=*/true);
  for (const v1::HeldPartition& p : ready.partitions()) EXPECT_FALSE(p.in_memory());
  EXPECT_EQ(Told(), 1);
}

}  // namespace
}  // namespace cairn
