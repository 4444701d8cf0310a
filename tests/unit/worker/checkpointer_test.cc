// Goal: of two workers that were told to keep a best checkpoint, the one that was told last decides; a checkpoint of
// which only a report is known pushes none out; what S3 did not remove or keep is tried again.
#include "worker/train/checkpointer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/unit/worker/fake_remote_files.h"
#include "worker/checkpoint/checkpoint_writer.h"
#include "worker/limits.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

class CheckpointerTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "cairn-checkpointer-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
    auto assignment = std::make_shared<v1::AssignReplicas>();
    assignment->mutable_spec()->mutable_checkpoints()->set_dir(dir_);
    for (int64_t step : {10, 20}) {
      Tell(*assignment, step);
      const std::string path = absl::StrCat(dir_, "/step-", step);
      fs::create_directory(path);
      for (const char* file : {kModelFile, kOptimizerFile}) std::ofstream(absl::StrCat(path, "/", file)) << step;
      CheckpointManifest manifest;
      manifest.job_id = 7;
      manifest.spec.set_replicas(1);
      manifest.step = step;
      manifest.files = {{kModelFile, {}}, {kOptimizerFile, {}}};
      manifest.partitions = {{0, 16, static_cast<uint64_t>(step), {}}};
      std::ofstream(absl::StrCat(path, "/", kManifestFile)) << EncodeManifest(manifest);
    }
    assignment_ = std::move(assignment);
    checkpointer_ = std::make_shared<Checkpointer>(
        JobId(7), CheckpointerServices{nullptr, &queues_, &clock_, [this](v1::NodeMessage message) {
                                         reported_.push_back(message.checkpoint().checkpoint().step());
                                         for (const std::string& text : message.checkpoint().set_aside())
                                           set_aside_.push_back(text);
                                       }});
    checkpointer_->Know(assignment_);
  }
  void TearDown() override {
    queues_.Stop();
    fs::remove_all(dir_);
  }
  static void Tell(v1::AssignReplicas& assignment, int64_t step) {
    v1::CheckpointInfo& info = *assignment.add_checkpoints();
    info.set_step(step);
    info.set_written_unix_ms(step);
  }
  // The command was given at clock_'s time, years ago; it is carried out now.
  void MarkBest(int64_t step) {
    v1::MarkBest command;
    command.set_step(step);
    checkpointer_->MarkBest(command, assignment_);
    Await();
  }
  void Await() { ASSERT_TRUE(queues_.AwaitIdle(absl::InfiniteDuration())); }
  int64_t Best() const {
    int64_t step = 0;
    std::ifstream(absl::StrCat(dir_, "/best/", kModelFile)) >> step;
    return step;
  }

  std::string dir_;
  ManualClock clock_;
  FakeRemoteFiles files_;
  FileQueues queues_{&files_};
  std::vector<int64_t> reported_;       // in tasks
  std::vector<std::string> set_aside_;  // likewise
  std::shared_ptr<const v1::AssignReplicas> assignment_;
  std::shared_ptr<Checkpointer> checkpointer_;
};

TEST_F(CheckpointerTest, ALateMarkDoesNotReplaceThatOfTheNextChief) {
  ASSERT_TRUE(KeepAsBest(dir_, 20, CheckpointOwner::Of(7, 0, {})).ok());  // by another worker
  MarkBest(10);
  EXPECT_EQ(Best(), 20);
  EXPECT_TRUE(reported_.empty());
  clock_.Advance(absl::Now() + absl::Hours(1) - clock_.Now());
  MarkBest(10);  // told after that
  EXPECT_EQ(Best(), 10);
  EXPECT_EQ(reported_, std::vector<int64_t>{10});
}

TEST_F(CheckpointerTest, ItsOwnMarksFollowEachOther) {
  MarkBest(10);
  MarkBest(20);
  EXPECT_EQ(Best(), 20);
  EXPECT_EQ(reported_, (std::vector<int64_t>{10, 20}));
}

TEST_F(CheckpointerTest, AnotherJobsBestThatWasRenamedIsReportedAndAgainAfterALostSession) {
  fs::copy(dir_ + "/step-10", dir_ + "/best", fs::copy_options::recursive);
  std::ifstream in(absl::StrCat(dir_, "/best/", kManifestFile));
  CheckpointManifest manifest = *ParseManifest(std::string{std::istreambuf_iterator<char>(in), {}});
  manifest.job_id = 3;
  manifest.spec.set_name("before");
  std::ofstream(absl::StrCat(dir_, "/best/", kManifestFile)) << EncodeManifest(manifest);
  clock_.Advance(absl::Now() + absl::Hours(1) - clock_.Now());
  MarkBest(20);
  EXPECT_EQ(Best(), 20);
  const std::string text =
      absl::StrCat(dir_, "/best was a checkpoint of another job, 3 (\"before\"); it is kept as former-best-of-job-3-0");
  EXPECT_THAT(set_aside_, testing::ElementsAre(text));
  MarkBest(10);
  EXPECT_EQ(set_aside_.size(), 1u) << "once";
  checkpointer_->ReportAgain();
  EXPECT_THAT(set_aside_, testing::ElementsAre(text, text));
}

TEST_F(CheckpointerTest, WhatIsKnownByHearsayPushesNoneOut) {
  v1::AssignReplicas told = *assignment_;
  told.mutable_spec()->mutable_checkpoints()->set_keep_max(2);
  for (int64_t step : {30, 40, 50}) Tell(told, step);
  checkpointer_->Know(std::make_shared<const v1::AssignReplicas>(told));
  EXPECT_THAT(checkpointer_->Prune(told, nullptr), testing::ElementsAre(30, 40, 50)) << "they are not there";
  for (const char* name : {"/step-10", "/step-20"}) EXPECT_TRUE(fs::exists(dir_ + name));
  told.mutable_spec()->mutable_checkpoints()->set_keep_max(1);
  EXPECT_THAT(checkpointer_->Prune(told, nullptr), testing::ElementsAre(10));
  EXPECT_FALSE(fs::exists(dir_ + "/step-10"));
}

TEST_F(CheckpointerTest, WhatWaitedToBeComparedGoesWhenItWas) {
  v1::AssignReplicas told = *assignment_;
  told.set_steps_per_epoch(10);
  told.mutable_spec()->mutable_checkpoints()->set_keep_max(1);
  told.mutable_spec()->mutable_checkpoints()->set_save_best("loss");
  EXPECT_THAT(checkpointer_->Prune(told, nullptr), testing::IsEmpty());
  told.mutable_checkpoints(0)->set_compared(true);
  checkpointer_->Know(std::make_shared<const v1::AssignReplicas>(told));
  Await();
  EXPECT_FALSE(fs::exists(dir_ + "/step-10"));
  EXPECT_TRUE(fs::exists(dir_ + "/step-20"));
  EXPECT_EQ(reported_.size(), 1u) << "that it is gone";
}

// The same checkpoints on S3.
class RemoteCheckpointerTest : public CheckpointerTest {
 protected:
  void SetUp() override {
    CheckpointerTest::SetUp();
    for (const char* name : {"/step-10/", "/step-20/"}) {
      for (const char* file : {kManifestFile, kModelFile, kOptimizerFile}) {
        std::ifstream in(dir_ + name + file);
        files_.files[absl::StrCat("out:/run", name, file)] = {std::istreambuf_iterator<char>(in), {}};
      }
      const std::string manifest = absl::StrCat("out:/run", name, kManifestFile);
      CheckpointManifest sized = *ParseManifest(files_.files[manifest]);
      for (auto& [file, described] : sized.files) described.bytes = 2;  // "10" or "20"
      files_.files[manifest] = EncodeManifest(sized);
    }
    told_ = *assignment_;
    told_.mutable_spec()->mutable_checkpoints()->set_dir("out:/run");
    told_.mutable_spec()->mutable_checkpoints()->set_keep_max(1);
    clock_.Advance(absl::Now() - clock_.Now());
    remote_ = std::make_shared<Checkpointer>(
        JobId(7), CheckpointerServices{nullptr, &queues_, &clock_, [this](v1::NodeMessage message) {
                                         const v1::CheckpointReport& report = message.checkpoint();
                                         best_ += report.checkpoint().best();
                                         errors_ += !report.error().empty();
                                         for (const std::string& text : report.set_aside()) set_aside_.push_back(text);
                                       }});
  }
  void Know() {
    remote_->Know(std::make_shared<const v1::AssignReplicas>(told_));
    Await();
  }
  bool HasStep(int64_t step) { return files_.files.contains(absl::StrCat("out:/run/step-", step, "/manifest.json")); }

  v1::AssignReplicas told_;
  int best_ = 0, errors_ = 0;  // in tasks
  std::shared_ptr<Checkpointer> remote_;
};

TEST_F(RemoteCheckpointerTest, WhatWasNotRemovedIsTriedAgain) {
  Know();
  files_.fails = [](const std::string& what) { return what == "remove out:/run/step-10/manifest.json"; };
  EXPECT_THAT(remote_->Prune(told_, &files_), testing::IsEmpty()) << "nothing is gone";
  EXPECT_TRUE(HasStep(10));
  EXPECT_THAT(remote_->Prune(told_, &files_), testing::IsEmpty());
  files_.fails = nullptr;
  EXPECT_THAT(remote_->Prune(told_, &files_), testing::ElementsAre(10));
  EXPECT_FALSE(HasStep(10));
  EXPECT_TRUE(HasStep(20));
}

TEST_F(RemoteCheckpointerTest, WhatWasNotKeptAsTheBestStaysUntilItIs) {
  Know();
  files_.fails = [](const std::string& what) { return absl::StartsWith(what, "copy "); };
  v1::MarkBest command;
  command.set_step(10);
  const auto mark = [&] {
    remote_->MarkBest(command, std::make_shared<const v1::AssignReplicas>(told_));
    Await();
  };
  mark();
  EXPECT_EQ(errors_, 1);
  EXPECT_THAT(remote_->Prune(told_, &files_), testing::IsEmpty()) << "it is held";
  EXPECT_TRUE(HasStep(10));
  files_.fails = nullptr;
  mark();
  EXPECT_EQ(best_, 1);
  EXPECT_TRUE(files_.files.contains("out:/run/best/manifest.json"));
  EXPECT_THAT(remote_->Prune(told_, &files_), testing::ElementsAre(10));
}

// The first are reported again; one that could not be reported yet is not forgotten for them.
TEST_F(RemoteCheckpointerTest, WhatWasSetAsideLastIsReportedWithTheFirstOnes) {
  Know();
  const auto mark_over = [&](uint64_t job) {
    CheckpointManifest other = *ParseManifest(files_.files["out:/run/step-10/manifest.json"]);
    other.job_id = job;
    for (const char* file : {kModelFile, kOptimizerFile})
      files_.files[absl::StrCat("out:/run/best/", file)] = files_.files[absl::StrCat("out:/run/step-10/", file)];
    files_.files["out:/run/best/manifest.json"] = EncodeManifest(other);
    v1::MarkBest command;
    command.set_step(10);
    remote_->MarkBest(command, std::make_shared<const v1::AssignReplicas>(told_));
    Await();
  };
  const size_t first = kSetAsideReportedMax;
  for (size_t i = 0; i < first; ++i) mark_over(100 + i);
  ASSERT_EQ(set_aside_.size(), first);
  files_.fails_with = absl::StatusCode::kCancelled;
  files_.fails = [](const std::string& what) { return what == "put out:/run/best/manifest.json"; };
  mark_over(200);
  ASSERT_EQ(set_aside_.size(), first) << "it was given up, and not reported";
  remote_->ReportAgain();
  ASSERT_EQ(set_aside_.size(), first + first + 1);
  EXPECT_THAT(set_aside_.back(), testing::HasSubstr("another job, 200"));
}

TEST_F(RemoteCheckpointerTest, WhatIsGivenUpIsNotReported) {
  Know();
  files_.fails_with = absl::StatusCode::kCancelled;
  files_.fails = [](const std::string& what) { return absl::StartsWith(what, "copy "); };
  v1::MarkBest command;
  command.set_step(10);
  remote_->MarkBest(command, std::make_shared<const v1::AssignReplicas>(told_));
  Await();
  EXPECT_EQ(best_ + errors_, 0) << "nobody waits for it";
  EXPECT_TRUE(HasStep(10));
  EXPECT_TRUE(std::any_of(files_.files.begin(), files_.files.end(), [](const auto& file) {
    return absl::StrContains(file.first, "best/writing-");
  })) << "by its mark the next writer finds what is left";
}

}  // namespace
}  // namespace cairn
