// Goal: a checkpoint in S3 exists with its manifest, which is put last and removed first, wherever the writer dies; the
// next writer removes what is left, and nothing else; no writer harms a checkpoint of another; another job's checkpoint
// is set aside; what is read is what was written, and a fault of S3 is no reason to read an older one. To check what
// a job begins with no tensors are read.
#include "worker/checkpoint/remote_checkpoints.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "tests/unit/worker/checkpoint_testing.h"
#include "tests/unit/worker/fake_remote_files.h"
#include "worker/checkpoint/checkpoint_files.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/checkpoint/checkpoint_restore.h"
#include "worker/checkpoint/path_probe.h"
#include "worker/checkpoint/writer_mark.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RemoteCheckpointsTest : public CheckpointTest {
 protected:
  CheckpointOwner Owner(uint64_t job = 7) { return CheckpointOwner::Of(job, 0, Spec()); }
  std::unique_ptr<JobCheckpoints> Of(uint64_t job = 7) { return CheckpointsIn("out:/run", Owner(job), &files_); }
  absl::StatusOr<std::string> WriteRemotely(int64_t step, uint64_t job = 7, int64_t time = 1000, uint64_t seed = 1) {
    CheckpointContents contents = Contents(Spec(), step, seed);
    contents.manifest.job_id = job;
    const std::unique_ptr<JobCheckpoints> checkpoints = Of(job);
    absl::StatusOr<std::string> path = checkpoints->Write(std::move(contents), time);
    set_aside_ = checkpoints->TakeSetAside();
    return path;
  }
  std::vector<std::string> Steps() { return *StepsIn("out:/run", &files_); }
  static std::string PathOf(const std::string& name) { return "out:/run/" + name; }
  CheckpointManifest Manifest(const std::string& name) {
    return *ParseManifest(files_.files[PathOf(name) + "/manifest.json"]);
  }
  // The path of the file that the manifest names.
  std::string Named(const std::string& name, const char* file) {
    return PathOf(name) + "/" + TensorsFileName(file, FilesNonce(Manifest(name)));
  }
  std::vector<std::string> Paths() const {
    std::vector<std::string> paths;
    for (const auto& [path, bytes] : files_.files) paths.push_back(path);
    return paths;
  }
  // What another chief of the job that does not know that it is late has there.
  void LeaveAttempt(const std::string& name, const std::string& nonce, const CheckpointOwner& owner) {
    files_.files[PathOf(name) + "/" + MarkName(nonce)] = EncodeMark(owner);
    files_.files[PathOf(name) + "/" + TensorsFileName(kModelFile, nonce)] = "half of one";
    files_.unfinished.insert(PathOf(name) + "/" + TensorsFileName(kOptimizerFile, nonce));
  }
  bool IsWhole(const std::string& name) { return ReadCheckpoint("out:/run/" + name, &files_).ok(); }

  FakeRemoteFiles files_;
  std::vector<std::string> set_aside_;  // by the last WriteRemotely
};

TEST_F(RemoteCheckpointsTest, WhatIsReadIsWhatWasWritten) {
  const auto path = WriteRemotely(20);
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(*path, "out:/run/step-20");
  std::vector<std::string> written = files_.done;
  std::erase_if(written, [](const std::string& one) {
    return !absl::StartsWith(one, "put") && !absl::StartsWith(one, "finish") && !absl::StartsWith(one, "remove");
  });
  const std::string nonce = FilesNonce(Manifest("step-20")), mark = PathOf("step-20") + "/" + MarkName(nonce);
  EXPECT_TRUE(IsNonce(nonce)) << nonce;
  EXPECT_THAT(written, ElementsAre("put " + mark, "finish " + Named("step-20", kModelFile),
                                   "finish " + Named("step-20", kOptimizerFile), "put out:/run/step-20/manifest.json",
                                   "remove " + mark));
  Write(Contents(Spec(), 20));  // the same in a folder
  EXPECT_EQ(files_.files[Named("step-20", kModelFile)], Load(dir_ + "/step-20/model.safetensors"));
  EXPECT_EQ(files_.files[Named("step-20", kOptimizerFile)], Load(dir_ + "/step-20/optimizer.safetensors"));
  CheckpointManifest manifest = Manifest("step-20");
  SetFilesNonce("", manifest);
  EXPECT_EQ(EncodeManifest(manifest), Load(dir_ + "/step-20/manifest.json"));

  const v1::JobSpec spec = Spec();
  const auto here = RestoreCheckpoint(spec, dir_, {}, kStepsPerEpoch);
  const auto there = RestoreCheckpoint(spec, "out:/run", {}, kStepsPerEpoch, 0, &files_);
  ASSERT_TRUE(there.ok()) << there.status();
  EXPECT_EQ(there->path, "out:/run/step-20");
  EXPECT_EQ(there->step, 20);
  EXPECT_TRUE(std::equal(here->values.floats().begin(), here->values.floats().end(), there->values.floats().begin()));
  EXPECT_TRUE(RestoreWeights(spec, "out:/run/step-20", {}, &files_).ok());
  EXPECT_EQ(NewestWrittenUnixMs("out:/run", &files_), 1000);
  EXPECT_TRUE(absl::IsNotFound(RestoreCheckpoint(spec, "out:/none", {}, kStepsPerEpoch, 0, &files_).status()));
  EXPECT_THAT(std::string(RestoreWeights(spec, "out:/none", {}, &files_).status().message()),
              HasSubstr("out:/none: there is no file of this name in S3, nor a checkpoint"));
}

// Every request may be the last one.
TEST_F(RemoteCheckpointsTest, AWriterThatDiesLeavesNoCheckpointAndTheNextOneSweeps) {
  ASSERT_TRUE(WriteRemotely(10).ok());
  files_.dies = true;
  const auto before = files_.files;
  int died = 0;
  for (int at = 0;; ++at) {
    files_.files = before;
    files_.unfinished.clear();
    files_.calls = 0;
    files_.fail_at = at;
    const auto written = WriteRemotely(20);
    files_.fail_at = -1;
    if (written.ok()) break;
    ++died;
    EXPECT_EQ(written.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(Steps(), ElementsAre("step-10")) << "after " << at << " requests";
    const auto found = OpenCheckpoint("out:/run", {}, nullptr, &files_);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_THAT(found->skipped, IsEmpty()) << "what has no manifest does not exist";
    ASSERT_TRUE(WriteRemotely(30).ok());
    EXPECT_THAT(files_.unfinished, IsEmpty());
    for (const auto& [path, bytes] : files_.files) EXPECT_FALSE(absl::StrContains(path, "step-20")) << path;
  }
  EXPECT_GT(died, 10);
  EXPECT_TRUE(IsWhole("step-20"));
}

TEST_F(RemoteCheckpointsTest, RemovesTheManifestFirst) {
  ASSERT_TRUE(WriteRemotely(10).ok());
  files_.files["out:/run/step-10/notes.txt"] = "a person's";
  const std::string model = Named("step-10", kModelFile), optimizer = Named("step-10", kOptimizerFile),
                    mark = PathOf("step-10") + "/" + MarkName(FilesNonce(Manifest("step-10")));
  files_.done.clear();
  EXPECT_TRUE(Of()->Remove("step-10").ok());
  std::erase_if(files_.done, [](const std::string& one) { return absl::StartsWith(one, "read"); });
  EXPECT_THAT(files_.done, ElementsAre("put " + mark, "remove out:/run/step-10/manifest.json", "remove " + model,
                                       "remove " + optimizer, "remove " + mark));
  EXPECT_TRUE(Of()->Remove("step-10").ok()) << "it is gone";
  EXPECT_EQ(files_.files.size(), 1u) << "what a person has put there stays";
}

TEST_F(RemoteCheckpointsTest, KeepsOtherJobsCheckpoints) {
  ASSERT_TRUE(WriteRemotely(10, 8).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(Of()->Check("step-10")));
  EXPECT_THAT(std::string(Of()->Remove("step-10").message()), HasSubstr("is a checkpoint of another job, 8"));
  ASSERT_TRUE(WriteRemotely(10, 7).ok());
  EXPECT_THAT(set_aside_, ElementsAre(HasSubstr("out:/run/step-10 was a checkpoint of another job, 8 (")));
  EXPECT_THAT(set_aside_, ElementsAre(HasSubstr("it is kept as former-step-10-of-job-8-0")));
  EXPECT_TRUE(Of()->Check("step-10").ok());
  EXPECT_TRUE(IsWhole("former-step-10-of-job-8-0"));
  ASSERT_TRUE(WriteRemotely(20, 8).ok());
  EXPECT_THAT(std::string(Of()->RemoveAll().message()), HasSubstr("is a checkpoint of another job, 8"));
  EXPECT_FALSE(IsWhole("step-10"));
  EXPECT_TRUE(IsWhole("step-20")) << "of job 8";
  files_.files["out:/run/step-30/manifest.json"] = "no manifest";
  EXPECT_THAT(std::string(WriteRemotely(30).status().message()), HasSubstr("out:/run/step-30"));
  EXPECT_EQ(files_.files["out:/run/step-30/manifest.json"], "no manifest");
}

TEST_F(RemoteCheckpointsTest, KeepsTheBest) {
  EXPECT_EQ(Of()->BestKeptAt(), absl::InfinitePast());
  ASSERT_TRUE(WriteRemotely(10).ok());
  ASSERT_TRUE(WriteRemotely(20, 7, 2000, 2).ok());
  EXPECT_EQ(*Of()->KeepAsBest(10), "out:/run/best");
  EXPECT_GT(Of()->BestKeptAt(), absl::InfinitePast());
  EXPECT_EQ(*Of()->KeepAsBest(20), "out:/run/best");
  EXPECT_EQ(files_.files[Named("best", kModelFile)], files_.files[Named("step-20", kModelFile)]);
  EXPECT_NE(FilesNonce(Manifest("best")), FilesNonce(Manifest("step-20")));
  EXPECT_TRUE(IsWhole("best"));
  EXPECT_TRUE(absl::IsNotFound(Of()->KeepAsBest(30).status()));
  EXPECT_TRUE(IsWhole("best")) << "nothing took its place";
  EXPECT_TRUE(Of()->RemoveAll().ok());
  EXPECT_THAT(files_.files, IsEmpty());
}

// A request for `best` fails, each in turn: there is always a whole one.
TEST_F(RemoteCheckpointsTest, TheBestIsReplacedWithoutAGap) {
  ASSERT_TRUE(WriteRemotely(10).ok());
  ASSERT_TRUE(WriteRemotely(20, 7, 2000, 2).ok());
  ASSERT_TRUE(Of()->KeepAsBest(10).ok());
  const auto before = files_.files;
  int failed = 0;
  for (int at = 0;; ++at) {
    files_.files = before;
    files_.calls = 0;
    files_.fail_at = at;
    const auto kept = Of()->KeepAsBest(20);
    files_.fail_at = -1;
    EXPECT_TRUE(IsWhole("best")) << "after " << at << " requests";
    if (kept.ok()) break;
    ++failed;
  }
  EXPECT_GT(failed, 5);
  EXPECT_EQ(Manifest("best").step, 20);
}

TEST_F(RemoteCheckpointsTest, TwoWritersOfOneCheckpointMakeOne) {
  files_.before = [&, once = true](const std::string& what) mutable {
    if (!once || what != "put out:/run/step-10/manifest.json") return;
    once = false;
    files_.files["out:/run/step-10/manifest.json"] = "another writer's";
  };
  const auto late = WriteRemotely(10);
  EXPECT_EQ(late.status().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(late.status().message()), HasSubstr("another worker writes or removes this checkpoint"));
  EXPECT_EQ(files_.files["out:/run/step-10/manifest.json"], "another writer's");
}

// A chief that is late goes on writing while the next one has begun and ended.
TEST_F(RemoteCheckpointsTest, ALateWriterHarmsNoCheckpoint) {
  int moments = 0;
  for (bool again : {false, true}) {
    for (int at = 0;; ++at) {
      files_ = FakeRemoteFiles();
      if (again) {
        ASSERT_TRUE(WriteRemotely(10, 7, 500, 3).ok()) << "both replace it";
      }
      files_.calls = 0;
      bool met = false;
      files_.before = [&](const std::string&) {
        if (files_.calls != at || met) return;
        met = true;
        const auto next = WriteRemotely(10, 7, 2000, 2);
        EXPECT_TRUE(next.ok()) << next.status() << " at " << at;
        files_.calls = at;
      };
      const auto late = WriteRemotely(10);
      files_.before = nullptr;
      if (!met) break;
      ++moments;
      EXPECT_TRUE(late.ok() || absl::IsAborted(late.status())) << late.status() << " at " << at;
      EXPECT_TRUE(IsWhole("step-10")) << "at " << at << ": " << late.status();
      EXPECT_THAT(files_.unfinished, IsEmpty());
      ASSERT_TRUE(WriteRemotely(20).ok());
      EXPECT_TRUE(IsWhole("step-10")) << "also after the next sweep, at " << at;
    }
  }
  EXPECT_GT(moments, 25);
}

TEST_F(RemoteCheckpointsTest, AFailedWriterLeavesTheOthersCheckpoint) {
  files_.before = [&, once = true](const std::string& what) mutable {
    if (!once || !absl::StartsWith(what, "finish out:/run/step-10/model-")) return;
    once = false;
    ASSERT_TRUE(WriteRemotely(10, 7, 2000, 2).ok()) << "which ends the upload of the late one";
  };
  const auto late = WriteRemotely(10);
  EXPECT_EQ(late.status().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(late.status().message()), HasSubstr("another worker writes or removes this checkpoint"));
  EXPECT_TRUE(IsWhole("step-10"));
  EXPECT_EQ(Manifest("step-10").written_unix_ms, 2000);
  EXPECT_EQ(files_.files.size(), 3u) << "the late one has left nothing";
}

TEST_F(RemoteCheckpointsTest, WhatAPersonHasPutThereStays) {
  const std::string nonce = "0123456789abcdef";
  for (const char* below : {"step-5/model.safetensors", "best/optimizer.safetensors", "step-007/manifest.json",
                            "step-+5/model-0123456789abcdef.safetensors", "step-5/model-0123456789abcdef.safetensors",
                            "step-5/model-0123456789ABCDEF.safetensors", "step-6/writing-0123456789abcdef.json",
                            "step-007/writing-0123456789abcdef.json", "step-6/model-0123456789abcdef.safetensors"})
    files_.files[PathOf(below)] = "a person's";
  files_.files[PathOf("step-007/") + MarkName(nonce)] = EncodeMark(Owner());
  const auto before = files_.files;
  LeaveAttempt("step-8", nonce, Owner());
  LeaveAttempt("step-9", nonce, Owner(8));
  ASSERT_TRUE(WriteRemotely(20).ok());
  for (const auto& [path, bytes] : before) EXPECT_EQ(files_.files[path], bytes) << path;
  for (const auto& [path, bytes] : files_.files) EXPECT_FALSE(absl::StrContains(path, "step-8/")) << path;
  EXPECT_TRUE(files_.files.contains(PathOf("step-9/") + MarkName(nonce))) << "another job may be writing it";
  EXPECT_THAT(files_.unfinished, ElementsAre(PathOf("step-9/") + TensorsFileName(kOptimizerFile, nonce)));
}

// As it lies there after it was copied from a folder.
TEST_F(RemoteCheckpointsTest, ACheckpointWithoutNamesIsReadReplacedAndRemoved) {
  Write(Contents(Spec(), 10));
  const auto copy = [&] {
    for (const char* file : {kManifestFile, kModelFile, kOptimizerFile})
      files_.files[PathOf("step-10/") + file] = Load(dir_ + "/step-10/" + file);
  };
  copy();
  EXPECT_TRUE(IsWhole("step-10"));
  EXPECT_TRUE(Of()->KeepAsBest(10).ok());
  EXPECT_TRUE(IsWhole("best"));
  ASSERT_TRUE(WriteRemotely(10, 7, 2000, 2).ok());
  EXPECT_TRUE(IsWhole("step-10"));
  EXPECT_FALSE(files_.files.contains(PathOf("step-10/model.safetensors")));
  copy();
  EXPECT_TRUE(Of()->Remove("step-10").ok());
  EXPECT_FALSE(files_.files.contains(PathOf("step-10/model.safetensors")));
}

TEST_F(RemoteCheckpointsTest, WhatIsAlteredIsFoundAndTheOneBeforeIsUsed) {
  ASSERT_TRUE(WriteRemotely(10).ok());
  ASSERT_TRUE(WriteRemotely(20, 7, 2000).ok());
  files_.files[Named("step-20", kModelFile)].back() ^= 1;
  const auto found = OpenCheckpoint("out:/run", {}, nullptr, &files_);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->checkpoint.path, "out:/run/step-10");
  ASSERT_EQ(found->skipped.size(), 1u);
  EXPECT_THAT(found->skipped[0], HasSubstr(Named("step-20", kModelFile) + ": its checksum is"));
}

// As a submission does.
TEST_F(RemoteCheckpointsTest, WhatIsCheckedIsNotReadWhole) {
  ASSERT_TRUE(WriteRemotely(10).ok() && WriteRemotely(20, 7, 2000).ok());
  const v1::JobSpec spec = Spec();
  const auto shapes_read = [this] {  // and no tensors
    const bool whole = std::any_of(files_.done.begin(), files_.done.end(), [](const std::string& one) {
      return absl::StartsWith(one, "read ") && absl::StrContains(one, ".safetensors");
    });
    return !whole && files_.ranged > 0;
  };
  files_.done.clear();
  const auto found = CheckRestoreCheckpoint(spec, "out:/run", kStepsPerEpoch, &files_);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->checkpoint.path, PathOf("step-20"));
  EXPECT_TRUE(shapes_read());
  EXPECT_EQ(*CheckRestoreWeights(spec, "out:/run", &files_), PathOf("step-20"));
  EXPECT_EQ(*CheckRestoreWeights(spec, Named("step-10", kModelFile), &files_), Named("step-10", kModelFile));
  EXPECT_TRUE(shapes_read());

  v1::JobSpec other = spec;
  other.mutable_model()->mutable_layers(4)->mutable_dense()->set_units(5);
  for (const std::string& path : {PathOf("step-20"), Named("step-10", kModelFile)}) {
    const absl::Status refused = CheckRestoreWeights(other, path, &files_).status();
    EXPECT_THAT(std::string(refused.message()), HasSubstr("variable \"dense/kernel\": shape ["));
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckRestoreCheckpoint(other, "out:/run", 0, &files_).status()));
  files_.files[Named("step-20", kModelFile)].pop_back();
  EXPECT_EQ(CheckRestoreCheckpoint(spec, "out:/run", kStepsPerEpoch, &files_)->checkpoint.path, PathOf("step-10"))
      << "the newest is torn";
  files_.fails = [](const std::string& what) { return absl::StartsWith(what, "range "); };
  EXPECT_TRUE(absl::IsUnavailable(CheckRestoreCheckpoint(spec, "out:/run", kStepsPerEpoch, &files_).status()));
}

TEST_F(RemoteCheckpointsTest, AFaultOfS3IsNoReasonToTakeAnOlderOne) {
  ASSERT_TRUE(WriteRemotely(10).ok());
  ASSERT_TRUE(WriteRemotely(20, 7, 2000).ok());
  files_.calls = 0;
  ASSERT_TRUE(OpenCheckpoint("out:/run", {}, nullptr, &files_).ok());
  const int requests = files_.calls;
  EXPECT_GT(requests, 8);
  for (const auto code : {absl::StatusCode::kUnavailable, absl::StatusCode::kPermissionDenied,
                          absl::StatusCode::kDeadlineExceeded, absl::StatusCode::kResourceExhausted}) {
    files_.fails_with = code;
    for (int at = 0; at < requests; ++at) {
      files_.before = [&, at](const std::string&) { files_.fail_at = files_.calls == at ? at : -1; };
      files_.calls = 0;
      const auto found = OpenCheckpoint("out:/run", {"out:/run"}, nullptr, &files_);
      EXPECT_EQ(found.status().code(), code) << "request " << at;
    }
    files_.before = nullptr;
    files_.fail_at = -1;
  }
}

TEST_F(RemoteCheckpointsTest, NamesInAManifestAreOfOneWriter) {
  ASSERT_TRUE(WriteRemotely(10).ok());
  const CheckpointManifest manifest = Manifest("step-10");
  EXPECT_EQ(NonceOf(kModelFile, TensorsFileName(kModelFile, FilesNonce(manifest))), FilesNonce(manifest));
  EXPECT_EQ(NonceOf(kModelFile, TensorsFileName(kOptimizerFile, FilesNonce(manifest))), "");
  for (const char* nonce : {"../../other/123456", "0123456789ABCDEF", "0123456789abcde"}) {
    CheckpointManifest altered = manifest;
    SetFilesNonce(nonce, altered);
    EXPECT_EQ(ParseManifest(EncodeManifest(altered)).status().code(), absl::StatusCode::kDataLoss) << nonce;
  }
}

TEST_F(RemoteCheckpointsTest, OnlyWholeFilesAreWrittenThere) {
  EXPECT_TRUE(TryToWrite({"checkpoints.dir", "out:/run", true, /*whole=*/true}, &files_).ok());
  EXPECT_TRUE(TryToWrite({"filepath", "out:/models/m.keras", false, /*whole=*/true}, &files_).ok());
  EXPECT_THAT(files_.done, ElementsAre("try out:/run", "try out:/models"));
  files_.fail_at = files_.calls;
  EXPECT_THAT(std::string(TryToWrite({"checkpoints.dir", "out:/run", true, true}, &files_).message()),
              HasSubstr("checkpoints.dir: \"out:/run\" cannot be written: out:/run: S3 is away"));
}

}  // namespace
}  // namespace cairn
