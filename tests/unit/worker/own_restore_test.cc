// Goal: a job goes on from checkpoints of its own alone, and its model files are made of these. Another job with the
// same directory may have set this one's aside and put its own there.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/model/job_check.h"
#include "worker/checkpoint/checkpoint_restore.h"
#include "worker/checkpoint/checkpoint_writer.h"
#include "worker/reports/model_saver.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kJob[] = R"(
  name: "small"
  model {
    layers { input { shape: [4] } }
    layers { dense { units: 2 activation: SOFTMAX } }
  }
  data { path: "/data" }
  loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
  optimizer { sgd { } }
  batch_size: 8 epochs: 4 replicas: 1 seed: 3
)";
constexpr uint64_t kOwn = 7, kOther = 8;
constexpr int64_t kStepsPerEpoch = 10;

class OwnRestoreTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "cairn-own-restore-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(kJob, &spec_));
    spec_.mutable_checkpoints()->set_dir(dir_);
    const absl::StatusOr<CheckedJob> checked = CheckJob(spec_);
    ASSERT_TRUE(checked.ok()) << checked.status();
    spec_ = checked->spec;
  }
  void TearDown() override { fs::remove_all(dir_); }

  std::string Write(int64_t step, uint64_t job_id) {
    CheckpointContents c;
    c.graph = std::make_shared<const Graph>(*Graph::Build(spec_.model()));
    c.values = Buffer::Zeros(static_cast<size_t>(c.graph->space_size()) * sizeof(float));
    c.manifest.job_id = job_id;
    c.manifest.spec = spec_;
    c.manifest.step = step;
    c.manifest.steps_per_epoch = kStepsPerEpoch;
    c.manifest.partitions = {{0, static_cast<uint64_t>(c.graph->space_size()), static_cast<uint64_t>(step), {}}};
    const absl::StatusOr<std::string> path = WriteCheckpoint(dir_, c, 1000 + step);
    EXPECT_TRUE(path.ok()) << path.status();
    return path.ok() ? *path : "";
  }
  absl::StatusOr<RestoredState> Restore(const std::string& path, const std::vector<std::string>& fallbacks = {}) {
    return RestoreCheckpoint(spec_, path, fallbacks, kStepsPerEpoch, kOwn);
  }

  std::string dir_;
  v1::JobSpec spec_;
};

TEST_F(OwnRestoreTest, AnotherJobsIsPassedOver) {
  const std::string own = Write(10, kOwn), other = Write(20, kOther), best = dir_ + "/best";
  fs::copy(other, best, fs::copy_options::recursive);
  for (const std::string& path : {other, best}) {
    const absl::Status status = Restore(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(path), HasSubstr("of another job now, 8 (\"small\")")));
    const absl::StatusOr<RestoredState> before = Restore(path, {own});
    ASSERT_TRUE(before.ok()) << before.status();
    EXPECT_EQ(before->step, 10);
    EXPECT_THAT(before->skipped, ElementsAre(HasSubstr("of another job now, 8")));
  }
}

TEST_F(OwnRestoreTest, WhatAJobBeginsWithMayBeOfAny) {
  const std::string other = Write(20, kOther);
  for (const std::string& path : {dir_, other}) {
    spec_.set_resume_from(path);
    const absl::StatusOr<RestoredState> state = Restore(path);
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_EQ(state->step, 20);
  }
  spec_.clear_resume_from();
  spec_.mutable_checkpoints()->set_dir("/elsewhere");
  EXPECT_TRUE(Restore(other).ok());
}

TEST_F(OwnRestoreTest, AModelFileIsOfItsOwn) {
  Write(10, kOther);
  v1::SaveModel save;
  save.set_job_id(kOwn);
  save.set_step(10);
  save.set_path(dir_ + "/m.safetensors");
  *save.mutable_spec() = spec_;
  EXPECT_THAT(std::string(SaveModelFile(save).message()), HasSubstr("of another job now, 8"));
  EXPECT_FALSE(fs::exists(save.path()));
  save.set_job_id(kOther);
  const absl::Status status = SaveModelFile(save);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(fs::exists(save.path()));
}

}  // namespace
}  // namespace cairn
