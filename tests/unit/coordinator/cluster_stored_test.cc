// Goal: what a coordinator stores of a job's epochs is written once each, and read again by the next coordinator, also
// in the layout of earlier releases and where a part of it is missing.
#include <gtest/gtest.h>

#include <algorithm>

#include "coordinator/core/stored_state.h"
#include "tests/unit/coordinator/copies.h"

namespace cairn {
namespace {

size_t EpochKeys(const FakeCluster& c) {
  return std::count_if(c.disk.begin(), c.disk.end(),
                       [](const auto& entry) { return entry.first.starts_with(kEpochKeyPrefix); });
}

TEST(ClusterStored, EpochsAreStoredOnceAndReadAgain) {
  Cluster c(1, 1);
  v1::JobSpec spec = FakeCluster::Spec(1);
  spec.set_epochs(40);
  const uint64_t id = c.SubmitOk(spec);
  ASSERT_TRUE(c.RunToEnd(id));
  const v1::JobStatus before = c.Job(id);
  ASSERT_EQ(before.epochs_size(), 40);
  EXPECT_EQ(EpochKeys(c), 40u);
  v1::StoredJob stored;
  ASSERT_TRUE(stored.ParseFromString(c.disk.at(absl::StrCat(kJobKeyPrefix, id))));
  EXPECT_EQ(stored.status().epochs_size(), 0);
  EXPECT_EQ(stored.epochs_apart(), 40);
  c.RestartCoordinator();
  c.ReconnectAll();
  ASSERT_EQ(c.Job(id).epochs_size(), 40);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(c.Job(id).epochs(i).SerializeAsString(), before.epochs(i).SerializeAsString());
  v1::GetJobRequest ref;
  ref.set_job_id(id);
  c.Do(DeleteJob{ReplyToken{900}, ref});
  EXPECT_EQ(EpochKeys(c), 0u);
}

size_t BytesStored(int epochs) {
  Cluster c(1, 1);
  v1::JobSpec spec = FakeCluster::Spec(1);
  spec.set_epochs(epochs);
  EXPECT_TRUE(c.RunToEnd(c.SubmitOk(spec)));
  return c.bytes_stored;
}

TEST(ClusterStored, WhatIsWrittenGrowsWithTheEpochsNotWithTheirSquare) {
  const size_t some = BytesStored(50), more = BytesStored(200);
  EXPECT_LT(more, some * 5) << some << " bytes for 50 epochs, " << more << " for 200";
}

// The layout of a coordinator that kept everything in one value.
TEST(ClusterStored, TheLayoutOfBeforeIsRead) {
  Cluster c(1, 1);
  const uint64_t id = c.SubmitOk(FakeCluster::Spec(1));
  ASSERT_TRUE(c.RunToEnd(id));
  const v1::JobStatus before = c.Job(id);
  const std::string key = absl::StrCat(kJobKeyPrefix, id);
  v1::StoredJob stored;
  ASSERT_TRUE(stored.ParseFromString(c.disk.at(key)));
  *stored.mutable_status()->mutable_epochs() = before.epochs();
  stored.set_epochs_apart(0);
  c.disk[key] = stored.SerializeAsString();
  std::erase_if(c.disk, [](const auto& entry) { return entry.first.starts_with(kEpochKeyPrefix); });
  c.RestartCoordinator();
  c.ReconnectAll();
  EXPECT_EQ(c.Job(id).epochs_size(), before.epochs_size());
}

TEST(ClusterStored, MissingAndOrphanedEpochs) {
  Cluster c(1, 1);
  const uint64_t id = c.SubmitOk(FakeCluster::Spec(1));
  ASSERT_TRUE(c.RunToEnd(id));
  std::map<std::string, std::string> entries = c.disk;
  entries[absl::StrCat(kEpochKeyPrefix, id, "/00000009")] = "";
  entries[absl::StrCat(kEpochKeyPrefix, id + 7, "/00000000")] = "";
  EXPECT_EQ(ReadStored(entries)->orphans.size(), 2u);
  c.disk = entries;
  c.RestartCoordinator();
  c.Pass(absl::Seconds(1));
  EXPECT_EQ(EpochKeys(c), 2u) << "the orphans are deleted";
  entries.erase(absl::StrCat(kEpochKeyPrefix, id, "/00000001"));
  const auto without = ReadStored(entries);
  ASSERT_TRUE(without.ok()) << without.status();
  ASSERT_EQ(without->jobs[0].status().epochs_size(), 2);
  EXPECT_GT(without->jobs[0].status().epochs(0).train().examples(), 0u);
  EXPECT_EQ(without->jobs[0].status().epochs(1).epoch(), 1);
  EXPECT_EQ(without->jobs[0].status().epochs(1).train().examples(), 0u);
}

// The coordinator ends between the Store of an epoch and that of its job, and the epoch is stored again before the
// first tick.
TEST(ClusterStored, AnEpochThatIsStoredBeforeTheFirstTickStays) {
  for (int at = 0; at < 40; ++at) {
    Cluster c(1, 1);
    v1::JobSpec spec = FakeCluster::Spec(1);
    spec.set_epochs(6);
    const uint64_t id = c.SubmitOk(spec);
    c.Pass(absl::Milliseconds(300));
    c.Train(8);
    c.CrashSoon(at);
    for (int i = 0; i < 14; ++i) {  // no tick in between
      c.TrainStep();
      c.Settle();
      c.ReconnectAll();
      c.Settle();
    }
    c.Pass(absl::Seconds(1));
    const auto state = ReadStored(c.disk);
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_EQ(state->jobs[0].status().epochs_size(), c.Job(id).epochs_size());
    for (const v1::EpochResult& epoch : state->jobs[0].status().epochs()) {
      EXPECT_GT(epoch.train().examples(), 0u) << "crash after " << at << " effects: epoch " << epoch.epoch();
    }
  }
}

}  // namespace
}  // namespace cairn
