// Goal: whatever is wrong with a GPU's plugin, "auto" computes on the CPU and says why, "gpu" is an error that says
// what to do, and no library crashes the worker. The plugins have a few lines each (fake_plugin.cc); the real one is
// opened if it was built.
#include "worker/node/backend_select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/unit/backend/layer_cases.h"
#include "worker/backend/plugin.h"
#include "worker/backend/reference/reference_backend.h"

namespace cairn {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

std::string Message(const std::string& file, int device = 0) {
  return std::string(LoadPlugin({"/nonexistent", FAKE_PLUGINS}, file, {.device = device}).status().message());
}

TEST(LoadPluginTest, SaysWhatIsWrongWithTheFile) {
  EXPECT_THAT(Message("libnone.so"), HasSubstr("no libnone.so in /nonexistent, "));
  EXPECT_THAT(Message("libfake_empty.so"), HasSubstr("has no cairn_backend_plugin"));
  EXPECT_THAT(Message("libfake_other.so"), HasSubstr("is of another build (of another tree, this worker: "));
  EXPECT_EQ(LoadPlugin({FAKE_PLUGINS}, "libfake_good.so", {.device = 3}).status(),
            absl::UnavailableError("libfake_good.so: device 3 is not plugged in"));
  EXPECT_THAT(std::string(LoadPlugin({FAKE_PLUGINS}, "libfake_good.so", {}, "libno-driver.so").status().message()),
              HasSubstr("libfake_good.so: no driver on this machine (libno-driver.so: "));
  const std::string text = testing::TempDir() + "/libtext.so";
  std::ofstream(text) << "no library";
  const absl::Status status = LoadPlugin({testing::TempDir()}, "libtext.so", {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("could not be loaded: "));
  std::filesystem::remove(text);
}

TEST(LoadPluginTest, TheFirstFolderThatHasTheFileCounts) {
  const std::string folder = testing::TempDir() + "/first";
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(std::string(FAKE_PLUGINS) + "/libfake_empty.so", folder + "/libfake_good.so",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(std::string(LoadPlugin({folder, FAKE_PLUGINS}, "libfake_good.so", {}).status().message()),
              HasSubstr("is not a plugin of Cairn"));
  std::filesystem::remove_all(folder);
}

TEST(PluginFoldersTest, TheNamedOnesThenTheProgramsOwn) {
  setenv("CAIRN_PLUGINS", "/a::/b", 1);
  const std::vector<std::string> folders = PluginFolders();
  unsetenv("CAIRN_PLUGINS");
  ASSERT_EQ(folders.size(), 4u);
  EXPECT_EQ(folders[0], "/a");
  EXPECT_EQ(folders[1], "/b");
  EXPECT_EQ(std::filesystem::path(folders[3]).filename(), "lib");
}

// A whole backend across the boundary: the plugin, with the program's symbols, computes what the reference computes.
TEST(LoadPluginTest, ABackendOfAPluginTrains) {
  const auto backend = LoadPlugin({HOST_GPU}, "libcairn_cudnn.so", {});
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_EQ((*backend)->name(), "cudnn");
  EXPECT_EQ((*backend)->slots_default(), 1);
  const LayerCase c{"cnn", Between("layers { batch_normalization {} } layers { activation { activation: RELU } } "
                                   "layers { dropout { rate: 0.5 } }")};
  const auto graph = CaseGraph(c);
  ProgramOptions options;
  options.batch_max = 5;
  options.loss = FromText<v1::Loss>(c.loss);
  const auto program = (*backend)->Compile(graph, options), reference = MakeReferenceBackend()->Compile(graph, options);
  ASSERT_TRUE(program.ok() && reference.ok()) << program.status();
  const Batch batch = CaseBatch(*graph, options.loss, 5, 7);
  const std::vector<float> values = CaseValues(*graph, 5);
  std::vector<float> actual(graph->space_size()), expected(graph->space_size());
  const StepInfo info{.seed = 1, .step = 2, .replica = 3};
  const auto sums = (*program)->TrainStep(batch, info, values, absl::MakeSpan(actual), nullptr);
  ASSERT_TRUE(sums.ok()) << sums.status();
  EXPECT_NEAR(sums->loss, (*reference)->TrainStep(batch, info, values, absl::MakeSpan(expected), nullptr)->loss, 1e-4);
  EXPECT_THAT(actual, testing::Pointwise(testing::FloatNear(1e-4f), expected));
  // An error that was made in the plugin.
  Batch short_batch = batch;
  short_batch.labels = Buffer::Zeros(4);
  EXPECT_EQ((*program)->TrainStep(short_batch, info, values, absl::MakeSpan(actual), nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
  options.compute = static_cast<v1::DataType>(77);
  EXPECT_THAT(std::string((*backend)->Compile(graph, options).status().message()),
              HasSubstr("compute_dtype: 77 is not computed on a GPU"));
}

// Even without a driver, when no worker would open it.
TEST(LoadPluginTest, TheBuiltPluginFindsAllItsSymbols) {
  if (!std::filesystem::exists(BUILT_PLUGINS "/libcairn_cudnn.so")) GTEST_SKIP() << "built without the CUDA toolkit";
  const absl::Status status = LoadPlugin({BUILT_PLUGINS}, "libcairn_cudnn.so", {}).status();
  if (status.ok()) return;
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), testing::Not(HasSubstr("could not be loaded"))) << status;
}

// Uses the build's own plugin if there is one: the test passes with and without a GPU.
TEST(SelectBackendTest, AutoFallsBackAndSaysWhyGpuIsAnError) {
  setenv("CAIRN_PLUGINS", BUILT_PLUGINS, 1);
  std::string fallback;
  const auto chosen = SelectBackend("auto", &fallback), gpu = SelectBackend("gpu");
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  if (gpu.ok()) {
    EXPECT_EQ((*chosen)->name(), (*gpu)->name());
    EXPECT_EQ((*gpu)->slots_default(), 1);
    EXPECT_EQ(fallback, "");
  } else {
    EXPECT_EQ((*chosen)->name(), "onednn");
    EXPECT_THAT(fallback,
                AnyOf(HasSubstr("no driver on this machine (libcuda.so.1"), HasSubstr("sees no GPU"),
                      HasSubstr("no libcairn_cudnn.so in"), HasSubstr("too old"), HasSubstr("could not be loaded")));
    EXPECT_EQ(gpu.status(), absl::UnavailableError("--device=gpu: " + fallback + "; use --device=cpu, or auto"));
  }
  unsetenv("CAIRN_PLUGINS");
}

}  // namespace
}  // namespace cairn
