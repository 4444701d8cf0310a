// Goal: on a GPU every layer, option and loss computes what the reference computes in float64, as exactly as the
// precision asked for allows, overwrites all of what it is given, and computes the same bits again. Without a device
// every test is skipped with the reason. Sums of replicas on the devices have the bits of those on the host.
//
// OneStep is small on purpose: compute-sanitizer runs it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <tuple>

#include "common/base/log.h"
#include "common/model/gradient_layout.h"
#include "common/tensor/dtype.h"
#include "tests/unit/backend/beside_reference.h"
#include "tests/unit/backend/cudnn_lacks.h"
#include "worker/node/backend_select.h"

namespace cairn {
namespace {

// One backend for the process, so that devices are opened once. CAIRN_LOG_LEVEL=debug shows which engines and
// algorithms were chosen.
const absl::StatusOr<std::unique_ptr<Backend>>& Gpu() {
  static const auto* backend = [] {
    const char* level = std::getenv("CAIRN_LOG_LEVEL");
    InitLog({.program = "gpu_backend", .level = level != nullptr ? level : "info"}).IgnoreError();
    return new absl::StatusOr<std::unique_ptr<Backend>>(SelectBackend("gpu"));
  }();
  return *backend;
}

struct PrecisionCase {
  const char* name;
  v1::DataType compute;
  bool tf32;
  double tolerance;
};
constexpr PrecisionCase kPrecisions[] = {{"Strict", v1::FLOAT32, false, 1e-5},
                                         {"Tf32", v1::FLOAT32, true, 2e-3},
                                         {"Bfloat16", v1::BFLOAT16, false, 2e-2},
                                         {"Float16", v1::FLOAT16, false, 1e-2}};

class GpuTest : public testing::TestWithParam<std::tuple<LayerCase, PrecisionCase>> {
 protected:
  void SetUp() override {
    if (!Gpu().ok()) GTEST_SKIP() << Gpu().status().message();
    const auto& [layer, precision] = GetParam();
    beside_ = std::make_unique<BesideReference>(layer, 64, precision.compute, precision.tf32);
    const auto compile = [](std::shared_ptr<const Graph> graph, const ProgramOptions& options) {
      return (*Gpu())->Compile(std::move(graph), options);
    };
    const auto program = compile(beside_->graph(), beside_->options());
    if (!program.ok() && IsCudnnLack(program.status())) GTEST_SKIP() << program.status().message();
    beside_->Make(compile);
  }
  // Gradients pass through several layers and back: three times the tolerance of one pass. Terms of 16 bits cancel less
  // exactly.
  static Tolerance Of(double t) { return {.forward = t, .loss = t, .gradient = 3 * t, .share = t < 5e-3 ? 0.05 : 0.1}; }

  std::unique_ptr<BesideReference> beside_;
};

TEST_P(GpuTest, AsTheReference) {
  const Tolerance tolerance = Of(std::get<1>(GetParam()).tolerance);
  for (int64_t examples : {64, 7, 1}) {
    SCOPED_TRACE(testing::Message() << examples << " examples");
    beside_->Training(examples, tolerance);
    beside_->Inference(examples, tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, GpuTest,
                         testing::Combine(testing::ValuesIn(AllCases()), testing::ValuesIn(kPrecisions)),
                         [](const auto& info) {
                           return std::string(std::get<1>(info.param).name) + "_" + std::get<0>(info.param).name;
                         });

// Three replicas, each on a thread of its own: on three GPUs if there are so many, otherwise they share one or two.
class Joined : public testing::TestWithParam<PrecisionCase> {};

TEST_P(Joined, AsTheSumOnTheHost) {
  if (!Gpu().ok()) GTEST_SKIP() << Gpu().status().message();
  constexpr size_t kReplicas = 3;
  Backend& gpu = **Gpu();
  const BesideReference beside({"joined",
                                "layers { input { shape: [12, 12, 3] } } layers { conv2d { filters: 8 kernel_size: 3 } "
                                "} layers { batch_normalization {} } "
                                "layers { activation { activation: RELU } } layers { flatten {} } layers { dense { "
                                "units: 300 activation: RELU } } "
                                "layers { dense { units: 5 activation: SOFTMAX } }"},
                               16, GetParam().compute, GetParam().tf32);
  const std::shared_ptr<const Graph>& graph = beside.graph();
  const auto space = static_cast<size_t>(graph->space_size());
  const auto on_threads = [](const std::function<void(uint32_t)>& task) {
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < kReplicas; ++i) threads.emplace_back(task, i);
    for (std::thread& thread : threads) thread.join();
  };
  const auto batch = [&](uint32_t i) { return CaseBatch(*graph, beside.options().loss, i == 2 ? 7 : 16, i + 1); };
  const auto info = [&](uint32_t i) {
    return StepInfo{
        .seed = 11, .step = 5, .replica = i, .loss_scale = GetParam().compute == v1::FLOAT16 ? 64.0f : 1.0f};
  };
  std::vector<std::unique_ptr<Program>> programs(kReplicas);
  std::vector<std::vector<float>> gradients(kReplicas, std::vector<float>(space));
  on_threads([&](uint32_t i) {  // what a thread compiles is on one device
    auto program = gpu.Compile(graph, beside.options());
    ASSERT_TRUE(program.ok()) << program.status();
    programs[i] = *std::move(program);
    const auto sums = programs[i]->TrainStep(batch(i), info(i), beside.values(), absl::MakeSpan(gradients[i]), nullptr);
    ASSERT_TRUE(sums.ok()) << sums.status();
  });
  if (HasFatalFailure()) return;
  v1::JobSpec spec;
  spec.set_batch_size(39);
  const GradientLayout layout = GradientLayoutOf(*graph, spec);
  for (const v1::DataType type : {v1::FLOAT32, v1::BFLOAT16, v1::FLOAT16}) {
    std::vector<std::vector<float>> parts = gradients;
    std::vector<GradientSum> leaves;
    for (std::vector<float>& part : parts) leaves.push_back({absl::MakeSpan(part), 1});
    std::vector<uint8_t> expected(space * SizeOf(type));
    const GradientRounding rounding = {type, 0, 0, 0, &layout};
    PackRounded(rounding, {0, kReplicas}, SumSubtree({0, kReplicas}, leaves, rounding).gradient,
                absl::MakeSpan(expected));
    for (int step = 0; step < 4; ++step) {  // recorded from the second on
      JoinOptions options;
      options.node = {0, kReplicas};
      options.leaves.assign(kReplicas, true);
      for (int64_t end = 16 * 1024; end < graph->space_size(); end += 16 * 1024) options.ends.push_back(end);
      options.ends.push_back(graph->space_size());
      options.type = type;
      options.layout = layout;
      options.into = Buffer::Zeros(expected.size());
      options.ready = [](uint32_t) {};
      const auto join = gpu.Join(graph, options);
      ASSERT_TRUE(join.ok()) << join.status();
      on_threads([&](uint32_t i) {
        const auto sums = programs[i]->TrainJoined(batch(i), info(i), beside.values(), *join, i, nullptr);
        ASSERT_TRUE(sums.ok()) << sums.status();
      });
      EXPECT_EQ(std::memcmp(options.into.data(), expected.data(), expected.size()), 0)
          << v1::DataType_Name(type) << ", step " << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sums, Joined, testing::ValuesIn(kPrecisions),
                         [](const auto& info) { return info.param.name; });

class OneStep : public GpuTest {};
TEST_P(OneStep, OfASmallCnn) { beside_->Training(3, Of(std::get<1>(GetParam()).tolerance)); }
INSTANTIATE_TEST_SUITE_P(
    Sanitized, OneStep,
    testing::Combine(
        testing::Values(LayerCase{
            "SmallCnn",
            "layers { input { shape: [12, 12, 3] } } layers { conv2d { filters: 8 kernel_size: 3 padding: SAME "
            "use_bias: false } } "
            "layers { batch_normalization {} } layers { activation { activation: RELU } } layers { max_pooling2d {} } "
            "layers { depthwise_conv2d { kernel_size: 3 activation: GELU } } layers { dropout { rate: 0.3 } } "
            "layers { global_average_pooling2d {} } layers { dense { units: 5 activation: SOFTMAX } }"}),
        testing::ValuesIn(kPrecisions)),
    [](const auto& info) { return std::get<1>(info.param).name; });

}  // namespace
}  // namespace cairn
