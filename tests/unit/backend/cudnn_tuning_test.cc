// Goal: the fastest candidate is chosen, measured once for a device and a shape and found again by the next process; if
// the file is damaged, the choice is measured; in a deterministic job neither the file nor the times are used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <thread>

#include "common/base/log.h"
#include "tests/unit/backend/cudnn_host_machine.h"
#include "tests/unit/backend/layer_cases.h"
#include "worker/backend/cudnn/gpu_backend.h"
#include "worker/backend/cudnn/tuning.h"

namespace cairn::cudnn {
namespace {

using Names = std::vector<std::string>;

class TuningTest : public testing::Test {
 protected:
  TuningTest()
      : folder_(testing::TempDir() + "/tuning-" + testing::UnitTest::GetInstance()->current_test_info()->name()) {
    EXPECT_TRUE(InitLog({.program = "test"}).ok());  // to stderr
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~TuningTest() override { std::filesystem::remove_all(folder_); }
  std::string Path() const { return folder_ + "/deep/tuning.txt"; }
  std::string Text() const {
    std::ifstream file(Path());
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  void Write(const std::string& text) const {
    std::filesystem::create_directories(folder_ + "/deep");
    std::ofstream(Path(), std::ios::binary) << text;
  }
  // A new process: reads the file. Counts its measurements.
  size_t Choose(const std::string& what, const Names& names, const std::vector<double>& times,
                const std::string& device = "H100") {
    TuningFile file(Path());
    Tuner tuner(file, device);
    return tuner.Choose(what, names, [&](size_t i) -> absl::StatusOr<double> {
      ++measured_;
      if (times[i] < 0) return absl::UnimplementedError("not this one");
      return times[i];
    });
  }

  const std::string folder_;
  int measured_ = 0;
};

TEST_F(TuningTest, TheFastestOnceForADeviceAndAShape) {
  EXPECT_EQ(Choose("conv 3x3", {"a", "b", "c"}, {3, 1, 2}), 1u);
  EXPECT_EQ(measured_, 3);
  EXPECT_EQ(Choose("conv 3x3", {"a", "b", "c"}, {1, 9, 9}), 1u) << "remembered";
  EXPECT_EQ(Choose("conv 3x3", {"b", "c"}, {9, 1}), 0u) << "by name";
  EXPECT_EQ(measured_, 3);
  EXPECT_EQ(Choose("conv 3x3", {"a", "c"}, {9, 1}), 1u) << "what the library no longer offers is measured anew";
  EXPECT_EQ(Choose("conv 5x5", {"a", "b"}, {1, 2}), 0u);
  EXPECT_EQ(Choose("conv 5x5", {"a", "b"}, {2, 1}, "A100"), 1u);
  EXPECT_EQ(measured_, 9);
  EXPECT_EQ(Choose("conv 7x7", {"a"}, {1}), 0u);
  EXPECT_EQ(measured_, 9) << "nothing to choose";
}

TEST_F(TuningTest, WhatCannotRunIsNotTaken) {
  EXPECT_EQ(Choose("x", {"a", "b", "c"}, {-1, 5, 4}), 2u);
  EXPECT_EQ(Choose("y", {"a", "b"}, {std::numeric_limits<double>::quiet_NaN(), 7}), 1u);
  EXPECT_EQ(Choose("z", {"a", "b"}, {-1, -1}), 0u) << "the heuristics' first";
  measured_ = 0;
  EXPECT_EQ(Choose("z", {"a", "b"}, {2, 1}), 1u);
  EXPECT_EQ(measured_, 2) << "that nothing ran is not remembered";
}

TEST_F(TuningTest, WhateverIsWrongWithTheFileItIsMeasured) {
  EXPECT_EQ(Choose("x", {"a", "b"}, {2, 1}), 1u);
  const std::string good = Text();
  EXPECT_THAT(good, testing::StartsWith("cairn cudnn tuning 1\n"));
  EXPECT_THAT(good, testing::EndsWith("\nH100: x\tb\t1.0\n"));
  std::map<std::string, std::string> files = {
      {"empty", ""},
      {"foreign", "{\"a\": 1}"},
      {"a later version", "cairn cudnn tuning 2" + good.substr(good.find('\n'))},
      {"no checksum", "cairn cudnn tuning 1\n"},
      {"one byte is another", good},
      {"longer", good + "H100: x\ta\t0.1\n"},
      {"zeros", std::string(4096, '\0')}};
  files["one byte is another"].replace(good.size() - 6, 1, "a");
  for (size_t bytes = 1; bytes < good.size(); bytes += 5)
    files[absl::StrCat("torn at ", bytes)] = good.substr(0, bytes);
  for (const auto& [what, text] : files) {
    SCOPED_TRACE(what);
    Write(text);
    measured_ = 0;
    testing::internal::CaptureStderr();
    EXPECT_EQ(Choose("x", {"a", "b"}, {1, 2}), 0u);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(measured_, 2);
    EXPECT_THAT(said, testing::HasSubstr(Path()));
    EXPECT_THAT(said, testing::HasSubstr("; it is ignored, and what is measured now replaces it"));
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
    EXPECT_THAT(Text(), testing::EndsWith("\nH100: x\ta\t1.0\n"));
  }
}

TEST_F(TuningTest, AFolderInItsPlaceIsNoFile) {
  std::filesystem::create_directories(Path());
  testing::internal::CaptureStderr();
  EXPECT_EQ(Choose("x", {"a", "b"}, {2, 1}), 1u);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, testing::HasSubstr("is not a regular file"));
  EXPECT_THAT(said, testing::HasSubstr("what is measured is not kept"));
  EXPECT_FALSE(std::filesystem::exists(Path() + "." + std::to_string(getpid()) + ".partial"));
}

TEST_F(TuningTest, SeveralWorkersShareTheFile) {
  TuningFile first(Path()), second(Path());
  first.Put("x", "a", 1);
  second.Put("y", "b", 1);
  first.Put("z", "c", 1);
  TuningFile third(Path());
  EXPECT_EQ(third.Find("x"), "a");
  EXPECT_EQ(third.Find("y"), "b");
  EXPECT_EQ(third.Find("z"), "c");
  EXPECT_EQ(third.Find("w"), std::nullopt);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_ + "/deep"), {}), 1);
  TuningFile nowhere("");
  nowhere.Put("x", "a", 1);
  EXPECT_EQ(nowhere.Find("x"), "a");
}

// ---- a backend ----

constexpr char kModel[] =
    "layers { input { shape: [40] } } layers { dense { units: 30 activation: TANH } } layers { dense { units: 4 "
    "activation: SOFTMAX } }";

class GpuBackendTest : public TuningTest {
 protected:
  // The gradient of a step on a backend of `devices` devices, computed by a thread of its own; times: of the two ways
  // to compute a product.
  std::vector<float> Gradient(bool deterministic, bool autotune, const std::vector<double>& times, int devices = 1) {
    std::vector<DeviceInfo> infos;
    for (int i = 0; i < devices; ++i) infos.push_back({.index = i, .name = "fake", .fingerprint = "fake 1"});
    const auto backend =
        MakeGpuBackend(std::move(infos), {.autotune = autotune, .tuning_file = Path()},
                       [&](const DeviceInfo& device, const Precision& precision,
                           Tuner* tuner) -> absl::StatusOr<std::unique_ptr<Machine>> {
                         used_.push_back(device.index);
                         return std::make_unique<HostMachine>(precision, HostMachine::Copies::kEarly, tuner,
                                                              [&](size_t way) -> absl::StatusOr<double> {
                                                                ++measured_;
                                                                return times[way];
                                                              });
                       });
    const auto graph = CaseGraph({"dense", kModel});
    ProgramOptions options;
    options.batch_max = 5;
    options.deterministic = deterministic;
    options.loss = FromText<v1::Loss>("kind: SPARSE_CATEGORICAL_CROSSENTROPY");
    std::vector<float> gradient(graph->space_size());
    for (int i = 0; i < devices; ++i) {
      std::thread([&] {
        auto program = backend->Compile(graph, options);
        ASSERT_TRUE(program.ok()) << program.status();
        const std::vector<float> values = CaseValues(*graph, 5);
        ASSERT_TRUE(
            (*program)
                ->TrainStep(CaseBatch(*graph, options.loss, 5, 7), {}, values, absl::MakeSpan(gradient), nullptr)
                .ok());
      }).join();
    }
    return gradient;
  }

  std::vector<int> used_;
};

TEST_F(GpuBackendTest, InADeterministicJobTimesHaveNoSay) {
  testing::internal::CaptureStderr();
  const std::vector<float> plain = Gradient(true, false, {1, 2}), slow = Gradient(true, true, {1, 2}),
                           fast = Gradient(true, true, {2, 1});
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said,
              testing::HasSubstr(
                  "--cudnn-autotune: not in this job: deterministic jobs take the engines that the heuristics name"));
  EXPECT_EQ(plain, slow);
  EXPECT_EQ(plain, fast);
  EXPECT_EQ(measured_, 0);
  EXPECT_FALSE(std::filesystem::exists(Path()));
}

TEST_F(GpuBackendTest, InAnotherTheFastestIsTakenAndFoundAgain) {
  const std::vector<float> plain = Gradient(false, false, {2, 1});
  EXPECT_EQ(measured_, 0);
  const std::vector<float> tuned = Gradient(false, true, {2, 1});
  EXPECT_NE(plain, tuned) << "another way has other bits";
  EXPECT_GT(measured_, 0);
  measured_ = 0;
  EXPECT_EQ(Gradient(false, true, {1, 2}), tuned) << "by the file";
  EXPECT_EQ(measured_, 0);
  EXPECT_THAT(Text(), testing::HasSubstr("fake 1 driver 0: product 5x30x40"));
}

TEST_F(GpuBackendTest, ThreadsTakeTheDevicesInTurn) {
  const std::vector<float> one = Gradient(true, false, {1, 2}), four = Gradient(true, false, {1, 2}, 4);
  EXPECT_EQ(one, four);
  EXPECT_THAT(used_, testing::SizeIs(5));
  used_.erase(used_.begin());
  EXPECT_THAT(used_, testing::UnorderedElementsAre(0, 1, 2, 3));
}

}  // namespace
}  // namespace cairn::cudnn
