// Goal: the value log trusts nothing that a damaged store names, ignores files that are not its own, and says which
// file cannot be written when the disk is full; afterwards it goes on when there is room again.
#include "common/storage/value_log.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/limits.h"
#include "common/storage/kv_store.h"

namespace cairn {
namespace {

class ValueLogTest : public testing::Test {
 protected:
  ValueLogTest() {
    directory_ = testing::TempDir() + "/logXXXXXX";
    EXPECT_NE(mkdtemp(directory_.data()), nullptr);
  }
  ~ValueLogTest() override { std::filesystem::remove_all(directory_); }

  std::string directory_;
};

// While it lives, no file of this process grows beyond `bytes`: simulates a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_;
};

TEST_F(ValueLogTest, PlacesThatWereNeverWrittenAreRefused) {
  const auto log = *ValueLog::Open(directory_);
  const ValueLog::Place places[] = {
      {0, 0, 8}, {UINT64_MAX, 0, 8}, {kValueLogSegmentsMax, 0, 8}, {1, 0, 0}, {1, UINT64_MAX - 3, 8}};
  for (const ValueLog::Place& place : places) {
    const absl::Status status = log->Retain(place);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << place.segment << " " << place.offset << " " << place.size;
    EXPECT_TRUE(absl::StrContains(status.message(), directory_)) << status;
  }
  EXPECT_TRUE(log->Retain({kValueLogSegmentsMax - 1, 0, 8}).ok());
}

// The number after the highest one is 0, which means "no file": bodies went where nothing could be read.
TEST_F(ValueLogTest, AFileWithTheHighestNumberIsNotOurs) {
  std::ofstream(absl::StrCat(directory_, "/", UINT64_MAX, ".values")) << "x";
  const auto log = *ValueLog::Open(directory_);
  log->Sweep();
  const auto place = log->Append("abc", 3);
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(place->segment, 1u);
  std::string out;
  EXPECT_TRUE(log->Read(*place, &out).ok());
  EXPECT_EQ(out, "abc");
}

TEST_F(ValueLogTest, WhatMayComeLaterFillsFilesOfItsOwn) {
  using Urgency = ValueLog::Urgency;
  const auto log = *ValueLog::Open(directory_);
  const auto now = *log->Append("now", 3);
  const auto later = *log->Append("later", 5, Urgency::kLater);
  const auto more = *log->Append("more", 4);
  const auto latest = *log->Append("latest", 6, Urgency::kLater);
  const auto lasting = *log->Append("lasting", 7, Urgency::kLasting);
  EXPECT_NE(now.segment, later.segment);
  EXPECT_NE(lasting.segment, now.segment);
  EXPECT_NE(lasting.segment, later.segment);
  EXPECT_EQ(more.segment, now.segment);
  EXPECT_EQ(latest.segment, later.segment);
  // A file that is being filled is kept, although nothing in it is named any more; its next body is appended.
  log->Release(later);
  log->Release(latest);
  log->Sweep();
  const auto again = *log->Append("again", 5, Urgency::kLater);
  EXPECT_EQ(again.segment, later.segment);
  EXPECT_GT(again.offset, latest.offset);
  ValueLog::Unsynced unsynced;
  const auto synced = *log->Append("synced", 6, Urgency::kNow, &unsynced);
  EXPECT_TRUE(log->Sync(unsynced).ok());
  EXPECT_TRUE(log->Sync({}).ok());
  for (const auto& [place, body] : {std::pair{synced, "synced"}, {now, "now"}, {more, "more"}, {again, "again"}}) {
    std::string out;
    EXPECT_TRUE(log->Read(place, &out).ok());
    EXPECT_EQ(out, body);
  }
}

TEST_F(ValueLogTest, AFullDiskIsNamedAndLaterThereIsRoomAgain) {
  const auto log = *ValueLog::Open(directory_);
  const std::string body(10'000, 'b');
  {
    const FileSizeLimit full(8192);
    const auto place = log->Append(body.data(), body.size());
    EXPECT_EQ(place.status().code(), absl::StatusCode::kResourceExhausted) << place.status();
    EXPECT_TRUE(absl::StrContains(place.status().message(), directory_ + "/1.values")) << place.status();
  }
  const auto place = log->Append(body.data(), body.size());
  ASSERT_TRUE(place.ok()) << place.status();
  std::string out;
  EXPECT_TRUE(log->Read(*place, &out).ok());
  EXPECT_EQ(out, body);
}

TEST_F(ValueLogTest, AStoreOnAFullDiskKeepsWhatItConfirmedAndNamesItsDirectory) {
  absl::Status full;
  int confirmed = 0;
  {
    const auto store = *OpenRocksDbKvStore(directory_);
    const FileSizeLimit limit(64 << 10);
    for (; confirmed < 1000; ++confirmed) {  // small values: RocksDB's own log fills up
      KvBatch batch;
      batch.Put(absl::StrCat("key", confirmed), std::string(1000, 'v'));
      full = store->Write(batch, /*sync=*/true);
      if (!full.ok()) break;
    }
    KvBatch batch;
    batch.Delete("key1");
    for (const bool sync : {false, true}) EXPECT_EQ(store->Write(batch, sync), full);
    EXPECT_TRUE(store->Get("key1")->has_value());
  }
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  EXPECT_TRUE(absl::StrContains(full.message(), directory_)) << full;
  EXPECT_GT(confirmed, 10);
  // RocksDB's logger asserts when it cannot write: it must not be on the disk that is full.
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/db/LOG"));
  const auto store = OpenRocksDbKvStore(directory_);
  ASSERT_TRUE(store.ok()) << store.status();
  for (int i = 0; i < confirmed; ++i) {
    EXPECT_EQ(**(*store)->Get(absl::StrCat("key", i)), std::string(1000, 'v')) << i;
  }
}

}  // namespace
}  // namespace cairn
