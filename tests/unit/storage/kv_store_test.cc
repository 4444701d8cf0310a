// Goal: both stores do what kv_store.h says: order, prefixes, atomic batches with range deletes, and (RocksDB) that
// everything is there after the directory is opened again; random operations are compared with a sorted map.
#include "common/storage/kv_store.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/unit/test_seed.h"

namespace cairn {
namespace {

std::string NewDirectory() {
  std::string path = testing::TempDir() + "/kvXXXXXX";
  EXPECT_NE(mkdtemp(path.data()), nullptr);
  return path;
}

class KvStoreTest : public testing::TestWithParam<bool> {
 protected:
  KvStoreTest() {
    if (GetParam()) {
      directory_ = NewDirectory();
      auto store = OpenRocksDbKvStore(directory_ + "/made/on/the/way");
      EXPECT_TRUE(store.ok()) << store.status();
      store_ = *std::move(store);
    } else {
      store_ = NewMemoryKvStore();
    }
  }
  ~KvStoreTest() override {
    store_.reset();
    if (!directory_.empty()) std::filesystem::remove_all(directory_);
  }
  std::map<std::string, std::string> All(std::string_view prefix) {
    std::map<std::string, std::string> out;
    std::string last;
    EXPECT_TRUE(store_
                    ->Scan(prefix,
                           [&](std::string_view k, std::string_view v) {
                             EXPECT_TRUE(last.empty() || last < k);
                             last = std::string(k);
                             out.emplace(k, v);
                             return true;
                           })
                    .ok());
    return out;
  }

  std::string directory_;
  std::unique_ptr<KvStore> store_;
};

TEST_P(KvStoreTest, HeadAndBodyMakeOneValue) {
  const std::string body(100'000, 'b');
  KvBatch batch;
  batch.Put("k", "head", Buffer::CopyOf(body.data(), body.size()));
  batch.Put("empty", "");
  ASSERT_TRUE(store_->Write(batch, true).ok());
  EXPECT_EQ(store_->Get("k")->value(), "head" + body);
  EXPECT_EQ(store_->Get("empty")->value(), "");
  EXPECT_FALSE(store_->Get("missing")->has_value());
}

TEST_P(KvStoreTest, OperationsOfABatchHappenInOrder) {
  KvBatch batch;
  batch.Put("a1", "x");
  batch.Put("a2", "x");
  batch.Put("b1", "x");
  batch.DeleteRange("a", "b");
  batch.Put("a2", "again");
  batch.Delete("b1");
  batch.DeleteRange("z", "y");  // empty range
  ASSERT_TRUE(store_->Write(batch, false).ok());
  EXPECT_EQ(All(""), (std::map<std::string, std::string>{{"a2", "again"}}));
}

TEST_P(KvStoreTest, ScanStopsAtThePrefixAndWhenTold) {
  KvBatch batch;
  for (const char* k : {"p", "p\x01", "p\xff", "q", "o"}) batch.Put(k, k);
  ASSERT_TRUE(store_->Write(batch, false).ok());
  EXPECT_EQ(All("p").size(), 3u);
  EXPECT_EQ(All("").size(), 5u);
  EXPECT_TRUE(All("r").empty());
  int seen = 0;
  ASSERT_TRUE(store_->Scan("p", [&](std::string_view, std::string_view) { return ++seen < 2; }).ok());
  EXPECT_EQ(seen, 2);
}

TEST_P(KvStoreTest, RandomOperationsMatchASortedMap) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  std::map<std::string, std::string> model;
  const auto key = [&] { return absl::StrCat(rng() % 2 == 0 ? "a" : "b", rng() % 20); };
  for (int i = 0; i < 200; ++i) {
    KvBatch batch;
    for (int n = rng() % 4; n >= 0; --n) {
      const std::string k = key(), k2 = key();
      switch (rng() % 4) {
        case 0:
          batch.Delete(k);
          model.erase(k);
          break;
        case 1:
          if (rng() % 4 != 0) break;
          batch.DeleteRange(k, k2);
          if (k < k2) model.erase(model.lower_bound(k), model.lower_bound(k2));
          break;
        default: {
          const std::string v(rng() % 40'000, static_cast<char>('a' + rng() % 26));
          batch.Put(k, v.substr(0, v.size() / 3), Buffer::CopyOf(v.data() + v.size() / 3, v.size() - v.size() / 3));
          model[k] = v;
        }
      }
    }
    ASSERT_TRUE(store_->Write(batch, false).ok());
  }
  EXPECT_EQ(All(""), model);
}

INSTANTIATE_TEST_SUITE_P(Stores, KvStoreTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "RocksDb" : "Memory"; });

TEST(RocksDbKvStoreTest, KeepsEverythingAcrossReopenAndIsOneProcessOnly) {
  const std::string directory = NewDirectory();
  const std::string big(3'000'000, 'x');
  for (int round = 0; round < 3; ++round) {
    auto store = OpenRocksDbKvStore(directory);
    ASSERT_TRUE(store.ok()) << store.status();
    for (int i = 0; i < round; ++i) EXPECT_EQ((*store)->Get(absl::StrCat("k", i))->value(), absl::StrCat(big, i));
    KvBatch batch;
    batch.Put(absl::StrCat("k", round), big, Buffer::CopyOf(absl::StrCat(round).data(), 1));
    ASSERT_TRUE((*store)->Write(batch, false).ok());

    const auto second = OpenRocksDbKvStore(directory);
    EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition) << second.status();
    EXPECT_NE(second.status().message().find(directory), std::string::npos);
  }
  std::filesystem::remove_all(directory);
}

TEST(RocksDbKvStoreTest, SpaceOfDeletedEntriesIsGivenBack) {
  const std::string directory = NewDirectory();
  auto store = OpenRocksDbKvStore(directory);
  ASSERT_TRUE(store.ok());
  const Buffer body = Buffer::Zeros(size_t{2} << 20);
  for (int i = 1000; i < 1300; ++i) {  // 600 MiB pass through, 8 entries live
    KvBatch batch;
    batch.Put(absl::StrCat("l", i), "", body);
    batch.DeleteRange("l", absl::StrCat("l", i - 8));
    ASSERT_TRUE((*store)->Write(batch, false).ok());
  }
  uintmax_t bytes = 0;
  for (const auto& f : std::filesystem::recursive_directory_iterator(directory)) {
    std::error_code gone;
    const uintmax_t size = std::filesystem::file_size(f.path(), gone);
    if (!gone) bytes += size;
  }
  EXPECT_LT(bytes, uintmax_t{250} << 20);
  store->reset();
  std::filesystem::remove_all(directory);
}

uintmax_t BytesOf(const std::string& directory) {
  uintmax_t bytes = 0;
  for (const auto& f : std::filesystem::directory_iterator(directory)) bytes += std::filesystem::file_size(f.path());
  return bytes;
}

// Also the space of small values, which are in RocksDB's own files, and of the value log's dead files.
TEST(RocksDbKvStoreTest, GivesBackTheSpaceOfAPrefixWhenTold) {
  const std::string directory = NewDirectory();
  auto store = OpenRocksDbKvStore(directory);
  ASSERT_TRUE(store.ok()) << store.status();
  const auto bytes = [&] {
    uint64_t sum = 0;
    std::error_code gone;  // while we look
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
      if (entry.is_regular_file(gone)) sum += entry.file_size(gone);
    }
    return sum;
  };
  for (const char prefix : {'a', 'b'}) {
    for (int i = 0; i < 3'000; ++i) {  // 12 MB each
      KvBatch batch;
      batch.Put(absl::StrCat(std::string(1, prefix), 10'000 + i), std::string(4'000, static_cast<char>('a' + i % 26)));
      if (i % 30 == 0) batch.Put(absl::StrCat(std::string(1, prefix), "x", i), "", Buffer::Zeros(1 << 20));
      ASSERT_TRUE((*store)->Write(batch, false).ok());
    }
  }
  KvBatch gone;
  gone.DeleteRange("a", "b");
  gone.Put("a1", "kept");
  ASSERT_TRUE((*store)->Write(gone, false).ok());
  const uint64_t before = bytes();
  ASSERT_TRUE((*store)->GiveBackSpace("a").ok());
  // The values of the other prefix, and files that are being filled.
  const uint64_t most = (uint64_t{12} << 20) + (uint64_t{100} << 20) + (uint64_t{45} << 20);
  for (int i = 0; i < 300 && bytes() > most; ++i)
    absl::SleepFor(absl::Milliseconds(100));  // RocksDB deletes files behind
  EXPECT_LT(bytes(), most) << "of " << before;
  EXPECT_EQ((*store)->Get("a1")->value(), "kept");
  EXPECT_EQ((*store)->Get("b10000")->value(), std::string(4'000, 'a'));
  store->reset();
  std::filesystem::remove_all(directory);
}

TEST(RocksDbKvStoreTest, ABodyWithoutItsKeyIsGarbageAndOneWithoutItsFileIsDataLoss) {
  const std::string directory = NewDirectory();
  const std::string values = directory + "/values";
  const std::string body(100'000, 'x');
  {
    auto store = OpenRocksDbKvStore(directory);
    ASSERT_TRUE(store.ok());
    KvBatch batch;
    batch.Put("k", "head", Buffer::CopyOf(body.data(), body.size()));
    ASSERT_TRUE((*store)->Write(batch, true).ok());
  }
  // A crash between body and key leaves a file that nothing names. It is not used again, and such files do not
  // accumulate.
  for (int n = 100; n < 120; ++n) std::ofstream(absl::StrCat(values, "/", n, ".values")) << body;
  std::ofstream(values + "/readme.txt") << "not ours";
  {
    auto store = OpenRocksDbKvStore(directory);
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_EQ((*store)->Get("k")->value(), "head" + body);
    EXPECT_LT(BytesOf(values), 7 * body.size());
    EXPECT_TRUE(std::filesystem::exists(values + "/readme.txt"));
    for (int i = 0; i < 3; ++i) {  // new bodies go to new places
      KvBatch batch;
      batch.Put(absl::StrCat("n", i), "", Buffer::CopyOf(body.data(), body.size()));
      ASSERT_TRUE((*store)->Write(batch, i == 1).ok());
    }
    EXPECT_EQ((*store)->Get("k")->value(), "head" + body);
    EXPECT_EQ((*store)->Get("n2")->value(), body);
  }
  for (const auto& f : std::filesystem::directory_iterator(values)) std::filesystem::resize_file(f.path(), 10'000);
  {
    auto store = OpenRocksDbKvStore(directory);
    ASSERT_TRUE(store.ok());
    EXPECT_EQ((*store)->Get("k").status().code(), absl::StatusCode::kDataLoss);
    const absl::Status scan = (*store)->Scan("", [](std::string_view, std::string_view) { return true; });
    EXPECT_EQ(scan.code(), absl::StatusCode::kDataLoss);
    EXPECT_NE(scan.message().find(values), std::string::npos) << scan;
  }
  std::filesystem::remove_all(directory);
}

TEST(RocksDbKvStoreTest, WritersOfDifferentKeysRunSideBySide) {
  const std::string directory = NewDirectory();
  {
    auto opened = OpenRocksDbKvStore(directory);
    ASSERT_TRUE(opened.ok());
    KvStore& store = **opened;
    std::vector<std::thread> writers;
    for (int w = 0; w < 4; ++w) {
      writers.emplace_back([&store, w] {
        for (int i = 0; i < 100; ++i) {
          const std::string body(50'000 + 10'000 * w + i, static_cast<char>('a' + w));
          KvBatch batch;
          batch.Put(absl::StrCat(w, "/", 100 + i), absl::StrCat(i), Buffer::CopyOf(body.data(), body.size()));
          if (i >= 5) batch.DeleteRange(absl::StrCat(w, "/"), absl::StrCat(w, "/", 100 + i - 4));
          EXPECT_TRUE(store.Write(batch, i % 20 == 0).ok());
        }
      });
    }
    for (std::thread& t : writers) t.join();
  }
  auto store = OpenRocksDbKvStore(directory);
  ASSERT_TRUE(store.ok());
  int found = 0;
  ASSERT_TRUE((*store)
                  ->Scan("",
                         [&](std::string_view key, std::string_view value) {
                           const int w = key[0] - '0', i = std::stoi(std::string(key.substr(2))) - 100;
                           EXPECT_EQ(value, absl::StrCat(i) +
                                                std::string(50'000 + 10'000 * w + i, static_cast<char>('a' + w)));
                           ++found;
                           return true;
                         })
                  .ok());
  EXPECT_EQ(found, 4 * 5);
  store->reset();
  std::filesystem::remove_all(directory);
}

TEST(RocksDbKvStoreTest, ErrorsNameTheDirectory) {
  const std::string directory = NewDirectory();
  std::ofstream(directory + "/file") << "in the way";
  const auto blocked = OpenRocksDbKvStore(directory + "/file/store");
  EXPECT_FALSE(blocked.ok());
  EXPECT_NE(blocked.status().message().find(directory + "/file/store"), std::string::npos) << blocked.status();

  ASSERT_TRUE(OpenRocksDbKvStore(directory + "/store").ok());
  std::ofstream(directory + "/store/db/CURRENT", std::ios::trunc) << "nonsense\n";
  const auto corrupt = OpenRocksDbKvStore(directory + "/store");
  EXPECT_EQ(corrupt.status().code(), absl::StatusCode::kDataLoss) << corrupt.status();
  EXPECT_NE(corrupt.status().message().find(directory + "/store"), std::string::npos);
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace cairn
