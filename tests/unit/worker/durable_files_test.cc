// Goal: a file that was written survives a loss of power as soon as its writer returns; before that it is absent, as it
// was, or complete. Every kind of file that a job writes, the power cut at every call in turn.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/formats/model_file.h"
#include "common/model/graph.h"
#include "common/model/job_check.h"
#include "google/protobuf/text_format.h"
#include "tests/unit/storage/faulty_files.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/checkpoint/checkpoint_writer.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

constexpr char kJob[] = R"(
  name: "small"
  model { layers { input { shape: [6] } } layers { dense { units: 4 activation: SOFTMAX } } }
  data { path: "/data" }
  loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
  optimizer { sgd { momentum: 0.9 } }
  batch_size: 8 epochs: 4 replicas: 2
)";

std::string Load(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class DurableFilesTest : public testing::Test {
 protected:
  DurableFilesTest() {
    base_ = testing::TempDir() + "/durableXXXXXX";
    EXPECT_NE(mkdtemp(base_.data()), nullptr);
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kJob, &spec_));
    spec_ = CheckJob(spec_)->spec;
    graph_ = std::make_shared<const Graph>(*Graph::Build(spec_.model()));
    values_ = Buffer::Zeros(static_cast<size_t>(graph_->space_size()) * sizeof(float));
  }
  ~DurableFilesTest() override {
    files_.Stop();
    fs::remove_all(base_);
  }

  // Writes with the power cut at each call in turn, until it is not cut any more. `check` looks at a folder with what
  // the disk holds; `written`: the writer has returned OK.
  void CutAtEveryCall(const std::function<absl::Status(const std::string& disk)>& write,
                      const std::function<void(const std::string& left, bool written)>& check) {
    for (uint64_t call = 0;; ++call) {
      SCOPED_TRACE(absl::StrCat("call ", call));
      files_.Stop();
      for (const auto& entry : fs::directory_iterator(base_)) fs::remove_all(entry.path());
      const std::string disk = base_ + "/disk";
      fs::create_directory(disk);
      files_.Watch(disk);
      files_.CutPower(call);
      const absl::Status status = write(disk);
      const bool whole = files_.calls() <= call;
      files_.CutPower();
      files_.Stop();
      files_.RestoreTo(base_ + "/left", 0, 1);
      check(base_ + "/left", status.ok());
      if (HasFailure()) return;
      if (whole) {
        EXPECT_TRUE(status.ok()) << status;
        EXPECT_GT(call, 3u);
        return;
      }
    }
  }

  FaultyFiles& files_ = FaultyFiles::Instance();
  std::string base_;
  v1::JobSpec spec_;
  std::shared_ptr<const Graph> graph_;
  Buffer values_;
};

TEST_F(DurableFilesTest, ModelFiles) {
  for (const std::string name : {"m.keras", "m.onnx", "m.weights.h5", "m.safetensors"}) {
    SCOPED_TRACE(name);
    const std::string whole = base_ + "-" + name;
    ASSERT_TRUE(WriteModelFile(whole, {"small", 1, nullptr}, *graph_, values_.floats()).ok());
    const auto bytes = fs::file_size(whole);
    fs::remove(whole);
    CutAtEveryCall(
        [&](const std::string& disk) -> absl::Status {
          CAIRN_RETURN_IF_ERROR(MakeFolders(disk + "/a/b"));
          return WriteModelFile(disk + "/a/b/" + name, {"small", 1, nullptr}, *graph_, values_.floats());
        },
        [&](const std::string& left, bool written) {
          const std::string path = left + "/a/b/" + name;
          ASSERT_TRUE(fs::exists(path) || !written);
          if (fs::exists(path)) {
            EXPECT_EQ(fs::file_size(path), bytes);
          }
        });
  }
}

TEST_F(DurableFilesTest, CheckpointsInAFolderThatIsNew) {
  const auto write = [&](const std::string& disk, int64_t step) {
    CheckpointContents contents;
    contents.graph = graph_;
    contents.values = values_;
    contents.slots = {values_};
    contents.manifest.job_id = 7;
    contents.manifest.spec = spec_;
    contents.manifest.synchronous = true;
    contents.manifest.step = step;
    contents.manifest.steps_per_epoch = 10;
    contents.manifest.total_steps = 40;
    contents.manifest.train_examples = 80;
    contents.manifest.partitions = {{0, static_cast<uint64_t>(graph_->space_size()), static_cast<uint64_t>(step), {}}};
    return WriteCheckpoint(disk + "/runs/small", contents, 1000).status();
  };
  absl::Status first;
  CutAtEveryCall(
      [&](const std::string& disk) {
        first = write(disk, 10);
        return first.ok() ? write(disk, 20) : first;
      },
      [&](const std::string& left, bool written) {
        for (const int step : {10, 20}) {
          const std::string path = absl::StrCat(left, "/runs/small/step-", step);
          ASSERT_TRUE(fs::exists(path) || !(step == 10 ? first.ok() : written)) << path;
          if (fs::exists(path)) {
            EXPECT_TRUE(ReadCheckpoint(path).ok()) << ReadCheckpoint(path).status();
          }
        }
      });
}

// What was there before stays until the new one is complete.
TEST_F(DurableFilesTest, AReplacedFileIsTheOldOneOrTheNewOne) {
  const auto write = [](const std::string& path, const std::string& text) {
    return WriteFileWhole(path, [&](const std::string& beside) {
      std::ofstream out(beside, std::ios::binary);
      out << text;
      out.close();
      return out ? absl::OkStatus() : absl::UnavailableError("no");
    });
  };
  absl::Status first;
  CutAtEveryCall(
      [&](const std::string& disk) {
        first = write(disk + "/f.txt", "old");
        return first.ok() ? write(disk + "/f.txt", "new") : first;
      },
      [&](const std::string& left, bool written) {
        const std::string text = Load(left + "/f.txt");
        EXPECT_TRUE(written      ? text == "new"
                    : first.ok() ? text == "old" || text == "new"
                                 : text.empty() || text == "old")
            << text;
      });
}

}  // namespace
}  // namespace cairn
