// Goal: every torn, shortened or altered checkpoint is detected and named, and the one before it is used; one that does
// not fit a job is refused with the field, layer or variable; what another process writes, and what cannot be written,
// leaves nothing behind.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "absl/strings/str_cat.h"
#include "tests/unit/test_seed.h"
#include "tests/unit/worker/checkpoint_testing.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/checkpoint/checkpoint_restore.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

TEST_F(CheckpointTest, NewerFormatIsNamed) {
  CheckpointContents c = Contents(Spec(), 1);
  std::string text = EncodeManifest(c.manifest);
  text.replace(text.find("\"format_version\": 1"), 19, "\"format_version\": 9");
  const absl::Status status = ParseManifest(text).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("use a newer one"));
}

// Cuts off and alters each file at many places: the result is always an error that names the checkpoint.
TEST_F(CheckpointTest, EveryDamageIsSeen) {
  const v1::JobSpec spec = Spec();
  const std::string path = Write(Contents(spec, 12));
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937_64 random(seed);
  for (const char* name : {kManifestFile, kModelFile, kOptimizerFile}) {
    const std::string file = path + "/" + name, whole = Load(file);
    ASSERT_GT(whole.size(), 100u);
    const auto expect_refused = [&](const std::string& what) {
      const absl::Status status = ReadCheckpoint(path).status();
      ASSERT_FALSE(status.ok()) << name << ": " << what;
      EXPECT_THAT(status.message(), HasSubstr(path)) << what;
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << what << ": " << status;
    };
    for (size_t size : {size_t{0}, size_t{1}, size_t{7}, size_t{8}, whole.size() / 2, whole.size() - 1}) {
      Store(file, whole.substr(0, size));
      expect_refused(absl::StrCat("cut at ", size));
    }
    Store(file, whole + "x");
    expect_refused("longer");
    for (int i = 0; i < 60; ++i) {
      std::string altered = whole;
      const size_t at = random() % altered.size();
      const char bit = static_cast<char>(1 << random() % 8);
      altered[at] = static_cast<char>(altered[at] ^ bit);
      Store(file, altered);
      if (name == std::string(kManifestFile) &&
          ReadCheckpoint(path).status().code() == absl::StatusCode::kUnimplemented) {
        continue;  // the format's version itself
      }
      expect_refused(absl::StrCat("bit ", static_cast<int>(bit), " of byte ", at));
    }
    fs::remove(file);
    const absl::Status gone = ReadCheckpoint(path).status();
    EXPECT_FALSE(gone.ok()) << name;
    EXPECT_THAT(gone.message(), HasSubstr(name));
    Store(file, whole);
  }
  EXPECT_TRUE(ReadCheckpoint(path).ok());
}

TEST_F(CheckpointTest, TheOneBeforeATornOneIsUsed) {
  const v1::JobSpec spec = Spec();
  Write(Contents(spec, 10), 1000);
  Write(Contents(spec, 20), 2000);
  const std::string torn = Write(Contents(spec, 30), 3000);
  fs::resize_file(torn + "/" + kModelFile, 100);
  fs::create_directory(dir_ + "/step-40");  // no manifest at all
  const absl::StatusOr<RestoredState> state = RestoreCheckpoint(spec, dir_, {}, kStepsPerEpoch);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->step, 20);
  EXPECT_EQ(state->path, dir_ + "/step-20");
  EXPECT_THAT(state->skipped, testing::ElementsAre(HasSubstr("step-40"), HasSubstr("step-30")));

  // If it is requested by name it is an error, unless another one is named too.
  EXPECT_EQ(RestoreCheckpoint(spec, torn, {}, kStepsPerEpoch).status().code(), absl::StatusCode::kDataLoss);
  const absl::StatusOr<RestoredState> other = RestoreCheckpoint(spec, torn, {{dir_ + "/step-10"}}, kStepsPerEpoch);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->step, 10);

  const absl::Status nothing = RestoreCheckpoint(spec, dir_ + "/none", {}, 0).status();
  EXPECT_EQ(nothing.code(), absl::StatusCode::kNotFound);
  fs::create_directory(dir_ + "/empty");
  EXPECT_THAT(RestoreCheckpoint(spec, dir_ + "/empty", {}, 0).status().message(), HasSubstr("holds no checkpoint"));
}

TEST_F(CheckpointTest, NewestIsByTheTimeOfWriting) {
  const v1::JobSpec spec = Spec();
  EXPECT_EQ(NewestWrittenUnixMs(dir_), 0);
  Write(Contents(spec, 30), 1000);  // of an earlier run in the same directory
  Write(Contents(spec, 10), 2000);
  EXPECT_EQ(RestoreCheckpoint(spec, dir_, {}, kStepsPerEpoch)->step, 10);
  EXPECT_EQ(NewestWrittenUnixMs(dir_), 2000);
}

TEST_F(CheckpointTest, WhatDoesNotFitIsNamed) {
  Write(Contents(Spec(), 12));
  const auto error = [&](const std::string& changes, int64_t per_epoch = kStepsPerEpoch) {
    return std::string(RestoreCheckpoint(Spec(changes), dir_, {}, per_epoch).status().message());
  };
  EXPECT_THAT(error("batch_size: 16"), HasSubstr("batch_size: 16, but 8 in"));
  EXPECT_THAT(error("optimizer { adam {} }"), HasSubstr("optimizer: it keeps [momentum, velocity]"));
  EXPECT_THAT(error("optimizer { sgd { momentum: 0.9 } }"), HasSubstr("optimizer:"));
  EXPECT_THAT(error("strategy: PARAMETER_SERVER"), HasSubstr("strategy:"));
  EXPECT_THAT(error("epochs: 1"), HasSubstr("raise epochs"));
  EXPECT_THAT(error("", 11), HasSubstr("steps_per_epoch: 11, but 10"));
  const std::string wider = error(R"(model {
    layers { input { shape: [6, 6, 1] } }
    layers { conv2d { filters: 3 kernel_size: 3 } }
    layers { batch_normalization { } }
    layers { flatten { } }
    layers { dense { units: 5 activation: SOFTMAX } } })");
  EXPECT_THAT(wider, HasSubstr("variable \"dense/kernel\": shape [48,4]"));
  EXPECT_THAT(wider, HasSubstr("initial_weights"));
  EXPECT_THAT(error(R"(model {
    layers { input { shape: [6, 6, 1] } }
    layers { conv2d { filters: 3 kernel_size: 3 activation: RELU } }
    layers { batch_normalization { } }
    layers { flatten { } }
    layers { dense { units: 4 activation: SOFTMAX } } })"),
              HasSubstr("layer \"conv2d\""));
  // Another number of replicas, other hyper-parameters and more epochs are accepted.
  EXPECT_EQ(error("replicas: 4 epochs: 9 optimizer { adam { amsgrad: true beta_1: 0.8 } learning_rate: 0.1 }"), "");
}

TEST_F(CheckpointTest, WhatAnotherProcessWritesIsLeftAlone) {
  const std::string other = dir_ + "/.partial-small-7-step-3-1-1", dead = dir_ + "/.partial-small-7-step-4-1-1",
                    best = dir_ + "/.partial-,removed-best-1-1";
  for (const std::string& path : {other, dead, best}) fs::create_directories(path);
  const int locks[] = {::open(other.c_str(), O_RDONLY | O_DIRECTORY), ::open(best.c_str(), O_RDONLY | O_DIRECTORY)};
  for (int fd : locks) ASSERT_EQ(::flock(fd, LOCK_EX | LOCK_NB), 0);
  Write(Contents(Spec(), 10));
  EXPECT_THAT(Names(), testing::ElementsAre(".partial-,removed-best-1-1", ".partial-small-7-step-3-1-1", "step-10"));
  for (int fd : locks) ::close(fd);  // as the end of the process does
  Write(Contents(Spec(), 20));
  EXPECT_THAT(Names(), testing::ElementsAre("step-10", "step-20"));
}

TEST_F(CheckpointTest, WhatCannotBeWrittenIsNamedAndLeavesNothing) {
  Store(dir_ + "/file", "x");
  const absl::Status status = WriteCheckpoint(dir_ + "/file", Contents(Spec(), 1), 1).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr(dir_ + "/file"));
  EXPECT_THAT(Names(), testing::ElementsAre("file"));
}

}  // namespace
}  // namespace cairn
