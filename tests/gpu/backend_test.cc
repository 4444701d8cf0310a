// Goal: on a GPU every layer, option and loss computes what the reference computes in float64, as exactly as the
// precision asked for allows, overwrites all of what it is given, and computes the same bits again. Without a device
// every test is skipped with the reason.
//
// OneStep is small on purpose: compute-sanitizer runs it.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>

#include "tests/unit/backend/beside_reference.h"
#include "worker/backend_select.h"

namespace cairn {
namespace {

// One for the process: what a device costs to open is paid once.
const absl::StatusOr<std::unique_ptr<Backend>>& Gpu() {
  static const auto* backend = new absl::StatusOr<std::unique_ptr<Backend>>(SelectBackend("gpu"));
  return *backend;
}

struct PrecisionCase {
  const char* name;
  v1::DataType compute;
  bool tf32;
  double tolerance;
};
constexpr PrecisionCase kPrecisions[] = {
    {"Strict", v1::FLOAT32, false, 1e-5}, {"Tf32", v1::FLOAT32, true, 2e-3}, {"Bfloat16", v1::BFLOAT16, false, 2e-2},
    {"Float16", v1::FLOAT16, false, 1e-2}};

class GpuTest : public testing::TestWithParam<std::tuple<LayerCase, PrecisionCase>> {
 protected:
  void SetUp() override {
    if (!Gpu().ok()) GTEST_SKIP() << Gpu().status().message();
    const auto& [layer, precision] = GetParam();
    beside_ = std::make_unique<BesideReference>(layer, 64, precision.compute, precision.tf32);
    beside_->Make([](std::shared_ptr<const Graph> graph, const ProgramOptions& options) { return (*Gpu())->Compile(std::move(graph), options); });
  }
  // Gradients pass through several layers and back: three times the tolerance of one pass.
  static Tolerance Of(double t) { return {.forward = t, .loss = t, .gradient = 3 * t}; }

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
