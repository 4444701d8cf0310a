// Goal: the cache keeps to its bound, evicts what was used least and is in no open set, finds what another process left
// or fetched, and never gives a file that is not whole.
#include "common/s3/object_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/s3/signer.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ObjectCacheTest : public testing::Test {
 protected:
  ObjectCacheTest() {
    std::string made = testing::TempDir() + "cairn-s3-cache-XXXXXX";
    EXPECT_NE(::mkdtemp(made.data()), nullptr);
    folder_ = fs::canonical(made).string();
  }
  ~ObjectCacheTest() override { fs::remove_all(folder_); }

  std::shared_ptr<ObjectCache> Cache(uint64_t bytes_max) const {
    auto cache = ObjectCache::Open(folder_, bytes_max);
    EXPECT_TRUE(cache.ok()) << cache.status();
    return *cache;
  }
  static CacheFile File(const std::string& path, uint64_t bytes) {
    return {Sha256Hex(absl::StrCat(path, bytes)), path, bytes};
  }
  static std::string BytesOf(const CacheFile& file) { return std::string(file.bytes, file.path.back()); }

  static absl::Status Fill(ObjectCache::Set& set) {
    for (const size_t i : set.missing()) {
      CAIRN_ASSIGN_OR_RETURN(const FileDescriptor file, set.Create(i));
      const std::string bytes = BytesOf(set.files()[i]);
      EXPECT_EQ(::write(file.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    }
    return set.Keep(set.missing());
  }
  // How many of the files had to be fetched; -1: an error, which is in error_.
  int Take(ObjectCache& cache, const std::vector<CacheFile>& files) {
    auto set = cache.Reserve(files);
    error_ = std::string(set.status().message());
    if (!set.ok()) return -1;
    const absl::Status filled = Fill(**set);
    EXPECT_TRUE(filled.ok()) << filled;
    ExpectWhole(**set);
    return static_cast<int>((*set)->missing().size());
  }
  static void ExpectWhole(const ObjectCache::Set& set) {
    for (const CacheFile& file : set.files()) {
      std::ifstream in(set.files_folder() + "/" + file.path);
      EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), BytesOf(file)) << file.path;
    }
  }
  size_t SetsLeft() const {
    size_t sets = 0;
    for (const auto& process : fs::directory_iterator(folder_ + "/sets")) {
      for (const auto& set : fs::directory_iterator(process)) sets += set.is_directory() ? 1 : 0;
    }
    return sets;
  }
  // When it was last used, as a file's time says.
  void SetUsed(const CacheFile& file, int64_t unix_seconds) const {
    const timespec times[2] = {{unix_seconds, 0}, {unix_seconds, 0}};
    EXPECT_EQ(::utimensat(AT_FDCWD, ObjectPath(file).c_str(), times, 0), 0);
  }
  std::string ObjectPath(const CacheFile& file) const {
    return absl::StrCat(folder_, "/objects/", file.id.substr(0, 2), "/", file.id);
  }
  bool IsKept(const CacheFile& file) const { return fs::exists(ObjectPath(file)); }

  std::string folder_, error_;
};

TEST_F(ObjectCacheTest, KeepsWhatWasFetched) {
  const std::vector<CacheFile> files = {File("train/a.jpg", 30), File("train/b.jpg", 0), File("c", 20)};
  EXPECT_EQ(Take(*Cache(100), files), 3);
  EXPECT_EQ(Take(*Cache(100), files), 0) << "by another process too";
  EXPECT_EQ(Take(*Cache(100), {files[0], File("c", 21)}), 1) << "another version of c";
  EXPECT_EQ(SetsLeft(), 0u);
}

TEST_F(ObjectCacheTest, EvictsWhatWasUsedLeast) {
  const CacheFile a = File("a", 40), b = File("b", 40), c = File("c", 40);
  const auto cache = Cache(100);
  EXPECT_EQ(Take(*cache, {a}), 1);
  EXPECT_EQ(Take(*cache, {b}), 1);
  SetUsed(a, 2000);
  SetUsed(b, 1000);
  EXPECT_EQ(Take(*cache, {c}), 1);
  EXPECT_TRUE(IsKept(a));
  EXPECT_FALSE(IsKept(b));
  EXPECT_TRUE(IsKept(c));
  EXPECT_EQ(Take(*cache, {a}), 0);  // was used now
  EXPECT_EQ(Take(*Cache(50), {File("d", 5)}), 1) << "the bound is smaller now";
  EXPECT_TRUE(IsKept(a));
  EXPECT_FALSE(IsKept(c));
}

TEST_F(ObjectCacheTest, WhatIsInUseStays) {
  const CacheFile a = File("a", 40), b = File("b", 40);
  const auto cache = Cache(100);
  auto open = cache->Reserve({a});
  ASSERT_TRUE(open.ok()) << open.status();
  ASSERT_TRUE(Fill(**open).ok());
  auto coming = cache->Reserve({b});  // counts from here on
  ASSERT_TRUE(coming.ok()) << coming.status();
  EXPECT_EQ(Take(*cache, {File("c", 30)}), -1);
  EXPECT_THAT(error_, HasSubstr("needs 30 bytes more, and of the 100 bytes of the cache 80 bytes are in use"));
  EXPECT_THAT(error_, HasSubstr("--s3-cache-bytes"));
  EXPECT_EQ(Take(*cache, {File("d", 20)}), 1) << "fits beside them";
  coming->reset();  // it was not fetched
  EXPECT_EQ(Take(*cache, {File("c", 30)}), 1);
  ExpectWhole(**open);
  EXPECT_EQ(Take(*cache, {File("e", 101)}), -1);
  EXPECT_THAT(error_, HasSubstr("1 objects of 101 bytes together do not fit into this worker's cache of 100 bytes"));
  EXPECT_TRUE(IsKept(a)) << "nothing is evicted for what cannot fit";
}

TEST_F(ObjectCacheTest, ProcessesThatDieLeaveNothing) {
  const CacheFile a = File("a", 40), b = File("b", 50);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto cache = ObjectCache::Open(folder_, 100);
    auto open = (*cache)->Reserve({a});
    const bool filled = Fill(**open).ok();
    auto coming = (*cache)->Reserve({b});
    _exit(filled && coming.ok() ? 0 : 1);  // as if it was killed
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(SetsLeft(), 2u);
  const auto cache = Cache(100);
  EXPECT_EQ(Take(*cache, {a}), 0) << "it was whole";
  EXPECT_EQ(Take(*cache, {b}), 1);
  EXPECT_EQ(Take(*cache, {File("c", 90)}), 1) << "their room is free";
  EXPECT_EQ(SetsLeft(), 0u);
}

TEST_F(ObjectCacheTest, ProcessesDoNotSeeEachOthersSets) {
  const auto one = Cache(100), two = Cache(100);
  EXPECT_NE(one->sets_folder(), two->sets_folder());
  auto open = one->Reserve({File("a", 40)});
  ASSERT_TRUE(open.ok()) << open.status();
  EXPECT_EQ((*open)->files_folder().rfind(one->sets_folder() + "/", 0), 0u);
  EXPECT_EQ(Take(*two, {File("b", 70)}), -1) << "but they count";
  one->Discard(*std::move(open));
  EXPECT_EQ(Take(*one, {File("b", 70)}), 1) << "what was discarded is in nobody's way";
}

TEST_F(ObjectCacheTest, FetchesAgainWhatIsNotWhole) {
  const CacheFile a = File("a", 40);
  const auto cache = Cache(100);
  EXPECT_EQ(Take(*cache, {a}), 1);
  fs::permissions(ObjectPath(a), fs::perms::owner_all);
  fs::resize_file(ObjectPath(a), 39);
  EXPECT_EQ(Take(*cache, {a}), 1);
}

TEST_F(ObjectCacheTest, TwoThatFetchTheSameObject) {
  const CacheFile a = File("a", 40), c = File("c", 10);
  const auto cache = Cache(200);
  auto one = cache->Reserve({a}), two = cache->Reserve({a, c});
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_TRUE(Fill(**one).ok());
  EXPECT_TRUE(Fill(**two).ok());
  ExpectWhole(**two);
  EXPECT_EQ(fs::hard_link_count(ObjectPath(a)), 3u) << "both have the same file";
}

TEST_F(ObjectCacheTest, NamesThatCannotBeBesideEachOther) {
  const auto cache = Cache(100);
  EXPECT_EQ(Take(*cache, {File("a/b", 1), File("a", 1)}), -1);
  EXPECT_THAT(error_, HasSubstr("\"a\" is an object, and the folder of others"));
  EXPECT_EQ(Take(*cache, {File("x", 1), File("x", 1)}), -1);
  EXPECT_THAT(error_, HasSubstr("\"x\" was listed twice"));
  EXPECT_EQ(SetsLeft(), 0u);
}

TEST_F(ObjectCacheTest, AFolderThatOthersMayChangeIsRefused) {
  fs::permissions(folder_, fs::perms::owner_all | fs::perms::others_write);
  EXPECT_THAT(std::string(ObjectCache::Open(folder_, 100).status().message()), HasSubstr("others may write"));
  EXPECT_THAT(std::string(ObjectCache::Open("/dev/null", 100).status().message()), HasSubstr("is no folder"));
  const auto made = ObjectCache::Open(folder_ + "/new/folder", 100);
  ASSERT_TRUE(made.ok()) << made.status();
  struct stat st {};
  ASSERT_EQ(::stat((folder_ + "/new/folder").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777u, 0700u);
}

TEST_F(ObjectCacheTest, OneFetchesADataSetAtATime) {
  const auto cache = Cache(100);
  auto held = cache->LockFetch("s3://bucket/data", [] { return false; });
  ASSERT_TRUE(held.ok()) << held.status();
  int asked = 0;
  EXPECT_TRUE(absl::IsCancelled(cache->LockFetch("s3://bucket/data", [&] { return ++asked == 3; }).status()));
  EXPECT_EQ(asked, 3) << "it waited";
  *held = FileDescriptor();
  EXPECT_TRUE(cache->LockFetch("s3://bucket/data", [] { return true; }).ok());
}

}  // namespace
}  // namespace cairn
