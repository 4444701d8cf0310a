// Goal: where a job cannot write is found before it begins, and where it can nothing is left behind. As root too: so by
// a file in the way and by
// /proc, where nobody makes files.
#include "worker/checkpoint/path_probe.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/model/written_paths.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class PathProbe : public testing::Test {
 protected:
  PathProbe() {
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    std::ofstream(dir_ / "file") << "as it was";
  }
  ~PathProbe() override { fs::remove_all(dir_); }
  std::vector<std::string> Left() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(dir_)) names.push_back(entry.path().filename());
    return names;
  }
  const fs::path dir_ = fs::path(testing::TempDir()) / "path_probe_test";
};

TEST_F(PathProbe, WhatCanBeWrittenLeavesNoTrace) {
  EXPECT_TRUE(TryToWrite({"checkpoints.dir", dir_, true}).ok());
  EXPECT_TRUE(TryToWrite({"checkpoints.dir", dir_ / "a" / "b" / "c", true}).ok());
  EXPECT_TRUE(TryToWrite({"checkpoints.dir", dir_ / "a" / "", true}).ok());
  EXPECT_TRUE(TryToWrite({"filename", dir_ / "log.csv", false}).ok());
  EXPECT_TRUE(TryToWrite({"filename", dir_ / "a" / "log.csv", false}).ok());
  EXPECT_TRUE(TryToWrite({"filename", dir_ / "file", false}).ok());
  EXPECT_THAT(Left(), ElementsAre("file"));
  std::string text;
  std::getline(std::ifstream(dir_ / "file"), text);
  EXPECT_EQ(text, "as it was");
}

TEST_F(PathProbe, WhatCannotBeWrittenIsNamed) {
  const fs::path in_the_way = dir_ / "file" / "a";
  for (const bool directory : {true, false}) {
    const absl::Status status = TryToWrite({"callbacks[0].x", in_the_way, directory});
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << "another worker may be able to";
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("callbacks[0].x: \"" + in_the_way.string() + "\" cannot be written: "),
                      HasSubstr("Not a directory"), HasSubstr("that the workers can write")));
  }
  EXPECT_FALSE(TryToWrite({"checkpoints.dir", dir_ / "file", true}).ok()) << "a file, not a directory";
  EXPECT_FALSE(TryToWrite({"filename", dir_, false}).ok()) << "a directory, not a file";
  EXPECT_THAT(std::string(TryToWrite({"filename", "/dev/null", false}).message()),
              HasSubstr("\"/dev/null\" cannot be written: /dev/null: is not a regular file"))
      << "the writer takes no other";
  EXPECT_FALSE(TryToWrite({"checkpoints.dir", "/proc/run", true}).ok());
  EXPECT_FALSE(TryToWrite({"filename", "/proc/log.csv", false}).ok());
  EXPECT_THAT(Left(), ElementsAre("file"));
}

TEST(WrittenPaths, AreAllThatAJobWritesEachOnce) {
  v1::JobSpec spec;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(
    data { cache_dir: "/cache" }
    checkpoints { dir: "/backup" }
    callbacks { backup_and_restore { backup_dir: "/backup" } }
    callbacks { model_checkpoint { filepath: "/models/{epoch:02d}/m-{val_loss}.keras" } }
    callbacks { model_checkpoint { filepath: "best.keras" } }
    callbacks { model_checkpoint { filepath: "{epoch}.keras" } }
    callbacks { csv_logger { filename: "/logs/run.csv" } }
    callbacks { tensorboard { log_dir: "/logs/board" } }
    callbacks { terminate_on_nan {} })",
                                                            &spec));
  std::vector<std::string> all;
  for (const WrittenPath& w : WrittenPaths(spec)) all.push_back(w.field + (w.directory ? " dir " : " file ") + w.path);
  EXPECT_THAT(all, ElementsAre("data.cache_dir dir /cache", "callbacks[0].backup_and_restore.backup_dir dir /backup",
                               "callbacks[1].model_checkpoint.filepath dir /models/",
                               "callbacks[2].model_checkpoint.filepath file best.keras",
                               "callbacks[3].model_checkpoint.filepath dir .",
                               "callbacks[4].csv_logger.filename file /logs/run.csv",
                               "callbacks[5].tensorboard.log_dir dir /logs/board"));
  EXPECT_TRUE(WrittenPaths(v1::JobSpec()).empty());
}

}  // namespace
}  // namespace cairn
