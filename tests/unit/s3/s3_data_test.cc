// Goal: a path in an S3 root is fetched, whole or not at all, and opens as any data set; the second time only the
// listing is asked for. Keys that are no paths, objects that change, data sets that are too large are refused by name.
#include "common/s3/s3_data.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/base/roots.h"
#include "common/s3/limits.h"
#include "tests/unit/s3/fake_s3.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class S3DataTest : public testing::Test {
 protected:
  S3DataTest() {
    std::string made = testing::TempDir() + "cairn-s3-data-XXXXXX";
    EXPECT_NE(::mkdtemp(made.data()), nullptr);
    base_ = fs::canonical(made).string();
    Use(uint64_t{64} << 20);
  }
  ~S3DataTest() override {
    data_.reset();
    ForgetRoots();
    fs::remove_all(base_);
  }

  void Use(uint64_t cache_bytes) {
    auto cache = ObjectCache::Open(base_ + "/cache", cache_bytes);
    ASSERT_TRUE(cache.ok()) << cache.status();
    fs::create_directories(base_ + "/runs");
    const absl::Status used = UseRoots({{"data", "s3://bucket/sets", false},
                                        {"", "s3://whole/", false},
                                        {"runs", base_ + "/runs", true},
                                        {"", (*cache)->sets_folder(), false, /*listed=*/false}});
    ASSERT_TRUE(used.ok()) << used;
    const Environment environment = [](const char* name) -> std::string {
      if (absl::string_view(name) == "AWS_ENDPOINT_URL") return "http://fake";
      return absl::StartsWith(name, "AWS_ACCESS") || absl::StartsWith(name, "AWS_SECRET") ? "key" : "";
    };
    data_ = std::make_unique<S3Data>(*cache, environment, [this](const S3Settings&, const std::atomic<bool>*) {
      return std::make_unique<Forward>(&s3_);
    });
  }
  void PutTable(const std::string& below) {
    s3_.Put("bucket", below + "/train.csv", "x,y\n1,0\n2,1\n3,0\n");
    s3_.Put("bucket", below + "/test.csv", "x,y\n4,1\n");
  }
  absl::StatusOr<std::shared_ptr<const Dataset>> Open(const std::string& path) {
    v1::Data data;
    data.set_path(path);
    return Open(data);
  }
  absl::StatusOr<std::shared_ptr<const Dataset>> Open(const v1::Data& data) {
    CAIRN_ASSIGN_OR_RETURN(FetchedData fetched, FetchData(data, data_.get(), absl::InfiniteDuration()));
    return OpenFetchedDataset(std::move(fetched), {});
  }
  std::string ErrorOf(const std::string& path) { return std::string(Open(path).status().message()); }
  size_t OpenSets() const {
    size_t sets = 0;
    for (const auto& process : fs::directory_iterator(base_ + "/cache/sets")) {
      for (const auto& set : fs::directory_iterator(process)) sets += set.is_directory() ? 1 : 0;
    }
    return sets;
  }
  // They are removed on a thread of the cache.
  void WaitUntilNoneIsOpen() const {
    for (const absl::Time until = absl::Now() + absl::Seconds(60); OpenSets() > 0 && absl::Now() < until;)
      absl::SleepFor(absl::Milliseconds(1));
    EXPECT_EQ(OpenSets(), 0u);
  }

  std::string base_;
  FakeS3 s3_;
  std::unique_ptr<S3Data> data_;
};

TEST_F(S3DataTest, OpensADataSetAndKeepsIt) {
  PutTable("sets/table");
  s3_.Put("bucket", "sets/table/", "");  // as programs that show folders make it
  s3_.Put("bucket", "sets/table-2/train.csv", "x\n");
  {
    const auto dataset = Open("data:/table");
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ((*dataset)->size(v1::TRAIN), 3);
    EXPECT_EQ((*dataset)->size(v1::TEST), 1);
    EXPECT_EQ((*dataset)->info().path().substr(0, 12), "data:/table#");
    EXPECT_EQ(OpenSets(), 1u);
    EXPECT_EQ(s3_.asked_for("GET /bucket/sets/"), 2u);
    EXPECT_TRUE(Open("s3://bucket/sets/table").ok()) << "by its address";
    EXPECT_EQ(s3_.asked_for("GET /bucket/sets/"), 2u) << "from the cache";
  }
  WaitUntilNoneIsOpen();
  const std::string version = (*Open("data:/table"))->info().path();
  EXPECT_FALSE(AreOtherVersions(version, (*Open("data:/table"))->info().path()));
  s3_.Put("bucket", "sets/table/train.csv", "x,y\n1,0\n2,1\n");
  const auto changed = Open("data:/table");
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_EQ((*changed)->size(v1::TRAIN), 2) << "a new object is fetched";
  EXPECT_EQ(s3_.asked_for("GET /bucket/sets/"), 3u);
  EXPECT_TRUE(AreOtherVersions(version, (*changed)->info().path())) << version;
  EXPECT_FALSE(AreOtherVersions("data:/table", version));
}

TEST_F(S3DataTest, OpensOneFileAndAllShardsOfOne) {
  PutTable("sets/table");
  const auto dataset = Open("data:table/train.csv");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(v1::TRAIN), 3);
  EXPECT_EQ((*dataset)->size(v1::TEST), 0);
  for (const char* name : {"r-00000-of-00002", "r-00001-of-00002", "r-00000-of-00002.d/x", "s-00000-of-00001"})
    s3_.Put("whole", name, name);
  const auto shards = data_->Fetch("s3://whole/r-00001-of-00002", absl::InfiniteDuration());
  ASSERT_TRUE(shards.ok()) << shards.status();
  EXPECT_EQ(fs::path((*shards)->path()).filename(), "r-00001-of-00002");
  EXPECT_TRUE(fs::exists(fs::path((*shards)->path()).parent_path() / "r-00000-of-00002"));
  EXPECT_FALSE(fs::exists(fs::path((*shards)->path()).parent_path() / "s-00000-of-00001"));
}

TEST_F(S3DataTest, ReadsLargeObjectsInPartsAndLongListingsInPages) {
  std::string large;
  for (int i = 0; large.size() < kS3PartBytesMax * 2 + 5; ++i) absl::StrAppend(&large, i, ",");
  s3_.page_keys = 3;
  s3_.Put("whole", "set/large", large);
  for (int i = 0; i < 10; ++i) s3_.Put("whole", absl::StrCat("set/some names/n+", i), absl::StrCat(i));
  const auto copy = data_->Fetch("s3://whole/set", absl::InfiniteDuration());
  ASSERT_TRUE(copy.ok()) << copy.status();
  std::ifstream in((*copy)->path() + "/large");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), large);
  EXPECT_TRUE(fs::exists((*copy)->path() + "/some names/n+9"));
  EXPECT_EQ(s3_.asked_for("list-type=2"), 4u);
  EXPECT_EQ(s3_.asked_for("GET /whole/set/large"), 3u);
}

TEST_F(S3DataTest, RefusesKeysThatLeadOut) {
  PutTable("sets/table");
  for (const char* key : {"sets/table/../../../escaped", "sets/table//escaped", "sets/table/esc\naped"}) {
    s3_.Put("bucket", key, "x");
    EXPECT_THAT(ErrorOf("data:/table"), HasSubstr("data.path: s3://bucket/sets/table/")) << key;
    EXPECT_THAT(ErrorOf("data:/table"), HasSubstr("no file can be called like it")) << key;
    s3_.Remove("bucket", key);
  }
  for (const char* path : {"data:/../other", "data:/table/./x", "data:/a//b"})
    EXPECT_EQ(Open(path).status().code(), absl::StatusCode::kInvalidArgument) << path;
  for (const auto& entry : fs::recursive_directory_iterator(base_))
    EXPECT_THAT(entry.path().string(), Not(HasSubstr("escaped")));
  EXPECT_EQ(s3_.asked_for("other"), 0u);
}

TEST_F(S3DataTest, SaysWhatIsMissingOrTooLarge) {
  PutTable("sets/table");
  EXPECT_THAT(ErrorOf("data:/nothing"), HasSubstr("s3://bucket/sets/nothing: there is no object of this key"));
  EXPECT_TRUE(absl::IsNotFound(Open("data:/nothing").status()));
  EXPECT_THAT(ErrorOf("s3://whole/x"), HasSubstr("NoSuchBucket"));
  s3_.Put("bucket", "sets/odd/file.bin", "x");
  EXPECT_THAT(ErrorOf("data:/odd"), HasSubstr("data.path: data:/odd: cannot tell the format"));
  EXPECT_THAT(ErrorOf("data:/odd"), Not(HasSubstr(base_))) << "the job's path, not that of the cache";
  data_.reset();
  Use(20);
  EXPECT_THAT(ErrorOf("data:/table"), HasSubstr("2 objects of 24 bytes together do not fit into this worker's cache of "
                                                "20 bytes; raise its --s3-cache-bytes"));
}

TEST_F(S3DataTest, AnObjectThatChangesMeanwhileIsNamed) {
  PutTable("sets/table");
  s3_.fault = [this](const S3Request& request) -> std::optional<absl::StatusOr<S3Reply>> {
    if (absl::StrContains(request.url, "train.csv")) s3_.Put("bucket", "sets/table/train.csv", "x,y\n9,9\n9,9\n9,9\n");
    return std::nullopt;
  };
  const absl::Status status = Open("data:/table").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("s3://bucket/sets/table/train.csv: "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("changed after it was listed"));
  WaitUntilNoneIsOpen();
}

TEST_F(S3DataTest, ManyWhoAskAtTheSameTimeFetchOnce) {
  PutTable("sets/table");
  absl::Notification go_on;
  s3_.fault = [&](const S3Request& request) -> std::optional<absl::StatusOr<S3Reply>> {
    if (absl::StrContains(request.url, "train.csv")) go_on.WaitForNotification();
    return std::nullopt;
  };
  const absl::Status waiting = data_->Fetch("data:/table", absl::Milliseconds(1)).status();
  EXPECT_TRUE(absl::IsUnavailable(waiting)) << waiting;
  EXPECT_THAT(std::string(waiting.message()), HasSubstr("data:/table is being fetched from S3"));
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { good += data_->Fetch("data:/table", absl::InfiniteDuration()).ok() ? 1 : 0; });
  }
  go_on.Notify();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 4);
  EXPECT_EQ(s3_.asked_for("train.csv"), 1u);
  data_->Stop();
  EXPECT_TRUE(absl::IsCancelled(data_->Fetch("data:/table", absl::InfiniteDuration()).status()));
}

TEST_F(S3DataTest, NothingElseReadsOrWritesThere) {
  EXPECT_EQ(RootsText(), absl::StrCat("runs=", base_, "/runs, data=s3://bucket/sets (read), s3://whole (read)"));
  for (const Access access : {Access::kRead, Access::kWrite}) {
    const std::string error(CheckInRoots("checkpoints.dir", "data:/run", access).message());
    EXPECT_THAT(error,
                HasSubstr("checkpoints.dir: \"data:/run\" lies in the S3 root data=s3://bucket/sets, which holds "
                          "data sets, checkpoints and model files, but not this"));
    EXPECT_FALSE(CheckInRoots("initial_weights", "s3://whole/w", access).ok());
  }
  EXPECT_FALSE(CheckInRoots("checkpoints.dir", "s3://wholesale/w", Access::kWrite).ok());
  EXPECT_TRUE(CheckInAnyRoot("weights", "data:/w", Access::kRead).ok());
  EXPECT_THAT(std::string(CheckInAnyRoot("checkpoints.dir", "data:/w", Access::kWrite).message()),
              HasSubstr("lies in the S3 root data=s3://bucket/sets, which this worker only reads"));
  EXPECT_TRUE(absl::IsNotFound(CheckInAnyRoot("weights", "s3://wholesale/w", Access::kRead)));
  EXPECT_LT(OpenPath("data:/run", O_RDONLY).get(), 0);
  EXPECT_EQ(errno, EREMOTE);
  v1::Data data;
  data.set_path("data:/table");
  data.add_targets()->set_pictures("../masks");
  PutTable("sets/table");
  EXPECT_THAT(std::string(Open(data).status().message()),
              HasSubstr("\"../masks\" leads out of data.path, data:/table"));
  data.clear_targets();
  data.set_cache_dir("data:/cache");
  EXPECT_THAT(std::string(Open(data).status().message()),
              HasSubstr("data.cache_dir: \"data:/cache\" lies in the S3 root"));
}

TEST(S3Roots, AreReadFromAFlag) {
  const auto root = ParseRoot("data=s3://bucket/a=b:ro");
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_EQ(root->name, "data");
  EXPECT_EQ(root->folder, "s3://bucket/a=b");
  EXPECT_TRUE(root->remote());
  EXPECT_FALSE(root->writable);
  EXPECT_TRUE(ParseRoot("runs=s3://bucket/runs")->writable);
  EXPECT_THAT(std::string(UseRoots({{"", "/tmp"}, {"a", "s3://b/x/y", false}, {"b", "s3://b/x", true}}).message()),
              HasSubstr("s3://b/x/y is read only, but lies below s3://b/x, where jobs may write"));
  EXPECT_THAT(std::string(ParseRoot("runs=s3://:ro").status().message()), HasSubstr("names no bucket"));
  EXPECT_THAT(std::string(UseRoots({{"", "/tmp", true}, {"", "/tmp", false, false}}).message()),
              HasSubstr("the cache of what is read from S3, lies below /tmp, where jobs may write"));
  ForgetRoots();
}

TEST(FetchData, AnS3PathWithoutARootSaysHowToMakeOne) {
  v1::Data data;
  data.set_path("s3://b/x");
  EXPECT_EQ(
      FetchData(data, nullptr, absl::ZeroDuration()).status(),
      absl::NotFoundError("data.path: \"s3://b/x\" lies below no S3 root of this worker; give a path below one, or "
                          "start workers with --root NAME=s3://BUCKET/PREFIX[:ro]"));
  data.set_path("/a");
  data.add_targets()->set_pictures("s3://b/y");
  EXPECT_EQ(FetchData(data, nullptr, absl::ZeroDuration()).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace cairn
