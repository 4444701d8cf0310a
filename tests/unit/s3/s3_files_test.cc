// Goal: files of a job in S3 roots are listed, read, written, copied and removed by the job's paths; below a root that
// is only read nothing is written; a model file that is made on this machine arrives whole and leaves nothing here.
// What one job asks can be stopped alone; a stop of all is one of each.
#include "common/s3/s3_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/files.h"
#include "common/s3/limits.h"
#include "tests/unit/s3/fake_s3.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class S3FilesTest : public testing::Test {
 protected:
  S3FilesTest() {
    std::string made = testing::TempDir() + "cairn-s3-files-XXXXXX";
    EXPECT_NE(::mkdtemp(made.data()), nullptr);
    base_ = fs::canonical(made).string();
    EXPECT_TRUE(UseRoots({{"data", "s3://bucket/sets", false},
                          {"out", "s3://bucket/runs", true},
                          {"s3cr3t", base_, true, /*listed=*/false, /*secret=*/true}})
                    .ok());
    s3_.Put("bucket", "elsewhere", "x");
    const Environment environment = [](const char* name) -> std::string {
      if (absl::string_view(name) == "AWS_ENDPOINT_URL") return "http://fake";
      return absl::StartsWith(name, "AWS_ACCESS") || absl::StartsWith(name, "AWS_SECRET") ? "key" : "";
    };
    files_ = std::make_unique<S3Files>(nullptr, S3Files::Staging{base_, "s3cr3t"}, environment,
                                       [this](const S3Settings&, const std::atomic<bool>* stopping) {
                                         stops_.push_back(stopping);
                                         return std::make_unique<Forward>(&s3_);
                                       });
  }
  ~S3FilesTest() override {
    ForgetRoots();
    fs::remove_all(base_);
  }
  absl::StatusOr<std::string> Read(const std::string& path, uint64_t bytes_max = UINT64_MAX) {
    std::string bytes;
    CAIRN_RETURN_IF_ERROR(files_->Read(path, bytes_max, [&](uint64_t size) {
      bytes.resize(size);
      return bytes.data();
    }));
    return bytes;
  }

  // Which of the connections that were made, in their order, have been told to stop.
  std::vector<bool> Stopped() const {
    std::vector<bool> stopped;
    for (const std::atomic<bool>* stop : stops_) stopped.push_back(*stop);
    return stopped;
  }

  std::string base_;
  FakeS3 s3_;
  std::vector<const std::atomic<bool>*> stops_;
  std::unique_ptr<S3Files> files_;
};

TEST_F(S3FilesTest, ListsReadsAndWrites) {
  EXPECT_TRUE(files_->Has("out:/run/x"));
  EXPECT_TRUE(files_->Has("s3://bucket/runs/x"));
  EXPECT_FALSE(files_->Has("/runs/x"));
  EXPECT_TRUE(files_->PutNew("out:/run/manifest", "first").ok());
  EXPECT_TRUE(files_->PutNew("out:/run//manifest", "first").ok()) << "the same bytes by the same path";
  EXPECT_TRUE(absl::IsAlreadyExists(files_->PutNew("out:/run/manifest", "second")));
  EXPECT_TRUE(files_->Copy("out:/run/manifest", "out:/run/best/manifest").ok());
  EXPECT_EQ(*Read("s3://bucket/runs/run/best/manifest"), "first");
  EXPECT_TRUE(absl::IsInvalidArgument(Read("out:/run/manifest", 4).status()));
  EXPECT_TRUE(absl::IsNotFound(Read("out:/run/none").status()));
  const auto listed = files_->List("out:/run");
  ASSERT_TRUE(listed.ok()) << listed.status();
  ASSERT_EQ(listed->size(), 2u);
  EXPECT_EQ((*listed)[0].below, "best/manifest");
  EXPECT_EQ((*listed)[1].bytes, 5u);
  EXPECT_EQ((**files_->Look("out:/run/manifest")).version, Md5Hex("first"));
  EXPECT_FALSE(files_->Look("out:/run/none")->has_value());
  EXPECT_TRUE(files_->Remove("out:/run/manifest").ok());
  EXPECT_TRUE(files_->Remove("out:/run/manifest").ok());
  EXPECT_TRUE(files_->TryToWrite("out:/run", absl::InfiniteFuture()).ok());
  EXPECT_THAT(s3_.Keys("bucket"), ElementsAre("elsewhere", "runs/run/best/manifest")) << "the probe was removed";
  EXPECT_TRUE(files_->List("out:/none")->empty());
  EXPECT_FALSE(files_->Look("out:/../elsewhere").ok());
}

TEST_F(S3FilesTest, LargeFilesAreReadInParts) {
  std::string bytes(3 * kS3PartBytesMax + 77, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 13);
  s3_.Put("bucket", "runs/large", bytes);
  EXPECT_TRUE(*Read("out:/large") == bytes);
  s3_.fault = [](const S3Request& request) -> std::optional<absl::StatusOr<S3Reply>> {
    if (!absl::StrContains(FakeS3::HeaderOf(request, "range"), "bytes=8388608-")) return std::nullopt;
    return ErrorReply(403, "AccessDenied");
  };
  EXPECT_TRUE(absl::IsPermissionDenied(Read("out:/large").status())) << "one part of it";
}

TEST_F(S3FilesTest, RangesAreOfTheFileThatWasLookedAt) {
  std::string bytes(2 * kS3PartBytesMax + 77, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 13);
  s3_.Put("bucket", "runs/large", bytes);
  const RemoteFiles::File file = **files_->Look("out:/large");
  EXPECT_EQ(*files_->ReadRange("out:/large", file, 5, 10), bytes.substr(5, 10));
  EXPECT_TRUE(*files_->ReadRange("out:/large", file, 7, 2 * kS3PartBytesMax) == bytes.substr(7, 2 * kS3PartBytesMax));
  EXPECT_EQ(*files_->ReadRange("out:/large", file, bytes.size(), 0), "");
  EXPECT_TRUE(absl::IsInvalidArgument(files_->ReadRange("out:/large", file, bytes.size(), 1).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(files_->ReadRange("out:/large", file, 1, bytes.size()).status()));
  bytes[0] ^= 1;
  s3_.Put("bucket", "runs/large", bytes);
  EXPECT_TRUE(absl::IsFailedPrecondition(files_->ReadRange("out:/large", file, 5, 10).status())) << "another one";
}

TEST_F(S3FilesTest, NothingIsWrittenBelowARootThatIsOnlyRead) {
  s3_.Put("bucket", "sets/a", "x");
  EXPECT_EQ(*Read("data:/a"), "x");
  const absl::Status refused[] = {files_->PutNew("data:/b", "y"),
                                  files_->Create("data:/b", 1).status(),
                                  files_->Copy("data:/a", "data:/b"),
                                  files_->Remove("data:/a"),
                                  files_->Stage("data:/b").status(),
                                  files_->TryToWrite("data:/", absl::InfiniteFuture()),
                                  files_->RemoveUnfinished("data:/", [](absl::string_view) { return true; })};
  for (const absl::Status& status : refused) {
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("lies in the S3 root data=s3://bucket/sets, which this worker only reads"));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("s3cr3t")));
  }
  EXPECT_THAT(s3_.Keys("bucket"), ElementsAre("elsewhere", "sets/a"));
  EXPECT_EQ(s3_.asked_for("PUT") + s3_.asked_for("DELETE") + s3_.asked_for("POST"), 0u);
}

TEST_F(S3FilesTest, AServerWithoutConditionsIsLookedAtFirst) {
  s3_.knows_conditions = false;
  EXPECT_TRUE(files_->PutNew("out:/m", "first").ok());
  EXPECT_TRUE(absl::IsAlreadyExists(files_->PutNew("out:/m", "second")));
  EXPECT_EQ(s3_.BytesOf("bucket", "runs/m"), "first");
  const std::string version = (**files_->Look("out:/m")).version;
  EXPECT_TRUE(files_->PutOver("out:/m", version, "second").ok());
  EXPECT_TRUE(absl::IsAborted(files_->PutOver("out:/m", version, "third")));
  EXPECT_EQ(s3_.BytesOf("bucket", "runs/m"), "second");
}

TEST_F(S3FilesTest, AServerThatIgnoresConditionsIsLookedAtFirst) {
  s3_.ignores_conditions = true;
  EXPECT_TRUE(files_->PutNew("out:/run/m", "first").ok());
  EXPECT_TRUE(absl::IsAlreadyExists(files_->PutNew("out:/run/m", "second")));
  EXPECT_EQ(s3_.BytesOf("bucket", "runs/run/m"), "first");
  EXPECT_THAT(s3_.Keys("bucket"), ElementsAre("elsewhere", "runs/run/m")) << "what it was tried with is removed";
}

TEST_F(S3FilesTest, AProbeWhoseReplyIsLostIsRemoved) {
  s3_.alter = [](const S3Request& request, S3Reply* reply) {
    if (request.method == "PUT") *reply = ErrorReply(403, "AccessDenied");
  };
  EXPECT_TRUE(absl::IsPermissionDenied(files_->TryToWrite("out:/run", absl::InfiniteFuture())));
  EXPECT_THAT(s3_.Keys("bucket"), ElementsAre("elsewhere")) << "the server has it all the same";
  s3_.alter = nullptr;
  EXPECT_TRUE(absl::IsDeadlineExceeded(files_->TryToWrite("out:/run", absl::Now() - absl::Seconds(1))));
  EXPECT_EQ(s3_.asked_for("DELETE"), 2u) << "it is tried also when the time is over";
}

TEST_F(S3FilesTest, UploadsOfTheDeadAreRemoved) {
  {
    auto upload = files_->Create("out:/run/step-1/model", 2 * kS3PartBytesMax);
    ASSERT_TRUE(upload.ok());
    EXPECT_TRUE((*upload)->Add(std::string(kS3PartBytesMax, 'x')).ok());
    EXPECT_TRUE(files_->RemoveUnfinished("out:/run", [](absl::string_view below) { return below == "other"; }).ok());
    EXPECT_THAT(s3_.PendingKeys(), ElementsAre("runs/run/step-1/model"));
    EXPECT_TRUE(
        files_->RemoveUnfinished("out:/run", [](absl::string_view below) { return below == "step-1/model"; }).ok());
    EXPECT_THAT(s3_.PendingKeys(), IsEmpty());
    EXPECT_FALSE((*upload)->Add(std::string(kS3PartBytesMax, 'x')).ok() && (*upload)->Finish().ok())
        << "who still writes it is told";
  }
  s3_.fault = [](const S3Request& request) -> std::optional<absl::StatusOr<S3Reply>> {
    if (!absl::StrContains(request.url, "uploads=")) return std::nullopt;
    return ErrorReply(501, "NotImplemented");
  };
  EXPECT_TRUE(files_->RemoveUnfinished("out:/run", [](absl::string_view) { return true; }).ok()) << "it is logged";
}

TEST_F(S3FilesTest, FilesOfAJobAreStoppedAlone) {
  const std::shared_ptr<RemoteFiles> one = files_->ForJob(), other = files_->ForJob();
  for (RemoteFiles* files : {one.get(), other.get(), static_cast<RemoteFiles*>(files_.get())})
    EXPECT_TRUE(files->PutNew("out:/run/m", "bytes").ok());
  EXPECT_EQ(s3_.asked_for("DELETE"), 1u) << "what one has learnt of the server the others know";
  EXPECT_THAT(Stopped(), ElementsAre(false, false, false));
  one->Stop();
  EXPECT_THAT(Stopped(), ElementsAre(true, false, false));
  files_->Stop();
  EXPECT_THAT(Stopped(), ElementsAre(true, true, true));
  const std::shared_ptr<RemoteFiles> late = files_->ForJob();
  EXPECT_TRUE(late->Look("out:/run/m").ok());
  EXPECT_THAT(Stopped(), ElementsAre(true, true, true, true));
}

TEST_F(S3FilesTest, AStagedFileArrives) {
  const std::string bytes(kS3PartBytesMax + 5, 'm');
  {
    const auto staged = files_->Stage("out:/models/m.keras");
    ASSERT_TRUE(staged.ok()) << staged.status();
    EXPECT_THAT((*staged)->local(), HasSubstr("/m.keras"));
    EXPECT_TRUE(WriteFileWhole((*staged)->local(), [&](const std::string& beside) -> absl::Status {
                  const FileDescriptor file = CreateBeside(beside);
                  return ::write(file.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size())
                             ? absl::OkStatus()
                             : absl::InternalError("short");
                }).ok());
    const absl::Status put = (*staged)->Put();
    EXPECT_TRUE(put.ok()) << put;
  }
  EXPECT_TRUE(s3_.BytesOf("bucket", "runs/models/m.keras") == bytes);
  EXPECT_TRUE(fs::is_empty(base_)) << "nothing is left here";
  EXPECT_FALSE(IsThere(base_)) << "the folder is reached by the secret name alone";
}

}  // namespace
}  // namespace cairn
