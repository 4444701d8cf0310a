// Goal: on a GPU every layer, option and loss computes what the reference computes in float64, as exactly as the
// precision asked for allows, overwrites all of what it is given, and computes the same bits again. Without a device
// every test is skipped with the reason.
//
// OneStep is small on purpose: compute-sanitizer runs it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/unit/backend/frozen_cases.h"
#include "tests/unit/backend/layer_cases.h"
#include "tests/unit/backend/wide_cases.h"
#include "tests/unit/backend/wide_feature_cases.h"
#include "worker/backend/reference/reference_backend.h"
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
    {"Strict", v1::FLOAT32, false, 1e-5}, {"Tf32", v1::FLOAT32, true, 2e-3}, {"Bfloat16", v1::BFLOAT16, false, 2e-2}};

std::vector<LayerCase> AllCases() {
  std::vector<LayerCase> cases = LayerCases();
  for (const LayerCase& c : WideCases()) cases.push_back(c);
  for (const LayerCase& c : WideFeatureCases()) cases.push_back(c);
  for (const LayerCase& c : FrozenCases()) cases.push_back(c);
  return cases;
}

double Norm(absl::Span<const float> x) {
  double sum = 0;
  for (float v : x) sum += double{v} * v;
  return std::sqrt(sum);
}
double Distance(absl::Span<const float> x, absl::Span<const float> y) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += (double{x[i]} - y[i]) * (double{x[i]} - y[i]);
  return std::sqrt(sum);  // NaN where x holds one
}

class GpuTest : public testing::TestWithParam<std::tuple<LayerCase, PrecisionCase>> {
 protected:
  void SetUp() override {
    if (!Gpu().ok()) GTEST_SKIP() << Gpu().status().message();
    Prepare(std::get<0>(GetParam()), std::get<1>(GetParam()));
  }

  void Prepare(const LayerCase& layer, const PrecisionCase& precision) {
    graph_ = CaseGraph(layer);
    options_.batch_max = 64;
    options_.loss = FromText<v1::Loss>(layer.loss);
    options_.metrics = {FromText<v1::Metric>("kind: ACCURACY"), FromText<v1::Metric>("kind: MEAN_ABSOLUTE_ERROR")};
    reference_ = MakeReferenceBackend()->Compile(graph_, options_).value();
    options_.compute = precision.compute;
    options_.allow_tf32 = precision.tf32;
    auto program = (*Gpu())->Compile(graph_, options_);
    ASSERT_TRUE(program.ok()) << program.status();
    program_ = *std::move(program);
    values_ = CaseValues(*graph_, 5);
    for (const Variable& v : graph_->variables()) {
      if (v.fan_in < 8) continue;  // kernels as an initializer would have them, so that wide layers do not saturate
      for (int64_t i = v.offset; i < v.offset + v.size; ++i)
        values_[i] *= 3.0f / std::sqrt(static_cast<float>(v.fan_in));
    }
  }

  // Gradients pass through several layers and back: three times the tolerance of one pass.
  void CompareTraining(int64_t examples, double tolerance) {
    const Batch batch = CaseBatch(*graph_, options_.loss, examples, 7);
    const StepInfo info{.seed = 11, .step = 5, .replica = 3};
    std::vector<float> expected(graph_->space_size()),
        actual(graph_->space_size(), std::numeric_limits<float>::quiet_NaN());
    const auto reference = reference_->TrainStep(batch, info, values_, absl::MakeSpan(expected), nullptr);
    ASSERT_TRUE(reference.ok()) << reference.status();
    std::vector<int> announced(graph_->space_size() / 16, 0);
    const auto sums =
        program_->TrainStep(batch, info, values_, absl::MakeSpan(actual), [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i)
            EXPECT_FALSE(std::isnan(actual[i])) << "announced before it was written: " << i;
          for (int64_t i = begin / 16; i < end / 16; ++i) ++announced[i];
        });
    ASSERT_TRUE(sums.ok()) << sums.status();
    EXPECT_EQ(std::count(announced.begin(), announced.end(), 1), static_cast<int64_t>(announced.size()));
    EXPECT_NEAR(sums->loss, reference->loss, tolerance * std::abs(reference->loss) + 1e-6);
    const double all = Norm(expected);
    for (const Variable& v : graph_->variables()) {
      const auto a = absl::MakeSpan(actual).subspan(v.offset, v.size),
                 e = absl::MakeSpan(expected).subspan(v.offset, v.size);
      // A gradient that cancels out (a bias before a normalization) is as exact as its terms.
      EXPECT_LE(Distance(a, e), 3 * tolerance * std::max(Norm(e), 0.05 * all)) << v.name << ", norm " << Norm(e);
    }
    for (int again = 0; again < 2; ++again) {  // the second time it is the captured graph
      std::vector<float> repeated(graph_->space_size(), 1.0f);
      ASSERT_TRUE(program_->TrainStep(batch, info, values_, absl::MakeSpan(repeated), nullptr).ok());
      EXPECT_EQ(std::memcmp(repeated.data(), actual.data(), actual.size() * sizeof(float)), 0)
          << "other bits the next time";
    }
  }

  void CompareInference(int64_t examples, double tolerance) {
    const Batch batch = CaseBatch(*graph_, options_.loss, examples, 9);
    const auto expected = reference_->Predict(batch, values_), actual = program_->Predict(batch, values_);
    ASSERT_TRUE(expected.ok() && actual.ok()) << expected.status() << actual.status();
    ASSERT_EQ(actual->size(), expected->size());
    EXPECT_LE(Distance(actual->floats(), expected->floats()), tolerance * Norm(expected->floats()));
    const auto reference = reference_->Evaluate(batch, values_), sums = program_->Evaluate(batch, values_);
    ASSERT_TRUE(reference.ok() && sums.ok()) << reference.status() << sums.status();
    EXPECT_NEAR(sums->loss, reference->loss, tolerance * std::abs(reference->loss) + 1e-6);
  }

  std::shared_ptr<const Graph> graph_;
  ProgramOptions options_;
  std::unique_ptr<Program> reference_, program_;
  std::vector<float> values_;
};

TEST_P(GpuTest, AsTheReference) {
  const double tolerance = std::get<1>(GetParam()).tolerance;
  for (int64_t examples : {64, 7, 1}) {
    SCOPED_TRACE(testing::Message() << examples << " examples");
    CompareTraining(examples, tolerance);
    CompareInference(examples, tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, GpuTest,
                         testing::Combine(testing::ValuesIn(AllCases()), testing::ValuesIn(kPrecisions)),
                         [](const auto& info) {
                           return std::string(std::get<1>(info.param).name) + "_" + std::get<0>(info.param).name;
                         });

class OneStep : public GpuTest {};
TEST_P(OneStep, OfASmallCnn) { CompareTraining(3, std::get<1>(GetParam()).tolerance); }
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
