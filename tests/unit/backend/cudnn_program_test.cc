// Goal: a program of the cuDNN backend computes what the reference computes in float64, for every layer, option and loss, frozen
// layers too: lowering, order of steps, places in the arena, what is announced when. All but the GPU itself and NVIDIA's libraries:
// the kernels are their host build, products and convolutions are loops (cudnn_host_machine.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/unit/backend/cudnn_host_machine.h"
#include "tests/unit/backend/frozen_cases.h"
#include "tests/unit/backend/layer_cases.h"
#include "tests/unit/backend/wide_cases.h"
#include "tests/unit/backend/wide_feature_cases.h"
#include "worker/backend/cudnn/program.h"
#include "worker/backend/reference/reference_backend.h"

namespace cairn {
namespace {

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
  return std::sqrt(sum);
}

absl::StatusOr<std::unique_ptr<Program>> Compile(std::shared_ptr<const Graph> graph, const ProgramOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(const cudnn::Precision precision, cudnn::PrecisionOf(options));
  return cudnn::MakeProgram(std::move(graph), options, precision, std::make_unique<cudnn::HostMachine>(precision));
}

class CudnnProgramTest : public testing::TestWithParam<LayerCase> {
 protected:
  void SetUp() override {
    graph_ = CaseGraph(GetParam());
    options_.batch_max = 9;
    options_.loss = FromText<v1::Loss>(GetParam().loss);
    options_.metrics = {FromText<v1::Metric>("kind: ACCURACY"), FromText<v1::Metric>("kind: MEAN_ABSOLUTE_ERROR")};
    reference_ = MakeReferenceBackend()->Compile(graph_, options_).value();
    values_ = CaseValues(*graph_, 5);
    // Kernels as an initializer would have them, so that wide layers do not saturate.
    for (const Variable& v : graph_->variables()) {
      if (v.fan_in < 8) continue;
      for (int64_t i = v.offset; i < v.offset + v.size; ++i) values_[i] *= 3.0f / std::sqrt(float(v.fan_in));
    }
  }

  void Use(v1::DataType compute) {
    options_.compute = compute;
    auto program = Compile(graph_, options_);
    ASSERT_TRUE(program.ok()) << program.status();
    program_ = *std::move(program);
  }

  // tolerance: relative.
  void CompareTraining(int64_t examples, double tolerance) {
    const Batch batch = CaseBatch(*graph_, options_.loss, examples, 7);
    const StepInfo info{.seed = 11, .step = 5, .replica = 3};
    std::vector<float> expected(graph_->space_size()), actual(graph_->space_size());
    std::fill(actual.begin(), actual.end(), std::numeric_limits<float>::quiet_NaN());
    const auto reference = reference_->TrainStep(batch, info, values_, absl::MakeSpan(expected), nullptr);
    ASSERT_TRUE(reference.ok()) << reference.status();
    std::vector<int> announced(graph_->space_size() / 16, 0);
    const auto sums = program_->TrainStep(batch, info, values_, absl::MakeSpan(actual), [&](int64_t begin, int64_t end) {
      EXPECT_EQ(begin % 16, 0);
      EXPECT_EQ(end % 16, 0);
      for (int64_t i = begin; i < end; ++i) EXPECT_FALSE(std::isnan(actual[i])) << "announced before it was written: " << i;
      for (int64_t i = begin / 16; i < end / 16; ++i) ++announced[i];
    });
    ASSERT_TRUE(sums.ok()) << sums.status();
    ExpectSums(*reference, *sums, tolerance);
    EXPECT_EQ(std::count(announced.begin(), announced.end(), 1), static_cast<int64_t>(announced.size()));
    const double all = Norm(expected);
    int64_t end = 0;
    for (const Variable& v : graph_->variables()) {
      for (int64_t i = end; i < v.offset; ++i) EXPECT_EQ(actual[i], 0) << "padding before " << v.name;
      end = v.offset + v.size;
      const auto a = absl::MakeSpan(actual).subspan(v.offset, v.size);
      const auto e = absl::MakeSpan(expected).subspan(v.offset, v.size);
      // A gradient that cancels out (a bias before a normalization) is as exact as its terms.
      EXPECT_LE(Distance(a, e), tolerance * std::max(Norm(e), 0.05 * all)) << v.name << ", norm " << Norm(e);
    }
    for (int64_t i = end; i < graph_->space_size(); ++i) EXPECT_EQ(actual[i], 0) << "padding at the end";
    // The recorded step: the same bits.
    for (int again = 0; again < 2; ++again) {
      std::vector<float> repeated(graph_->space_size(), 1.0f);
      ASSERT_TRUE(program_->TrainStep(batch, info, values_, absl::MakeSpan(repeated), nullptr).ok());
      EXPECT_EQ(std::memcmp(repeated.data(), actual.data(), actual.size() * 4), 0);
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
    ExpectSums(*reference, *sums, tolerance);
  }

  static void ExpectSums(const BatchSums& expected, const BatchSums& actual, double tolerance) {
    EXPECT_EQ(actual.examples, expected.examples);
    EXPECT_NEAR(actual.loss, expected.loss, tolerance * std::abs(expected.loss) + 1e-6);
    ASSERT_EQ(actual.metrics.size(), expected.metrics.size());
    if (tolerance > 1e-3) return;  // an accuracy may jump
    for (size_t m = 0; m < actual.metrics.size(); ++m) {
      EXPECT_NEAR(actual.metrics[m], expected.metrics[m], 1e-4 * std::abs(expected.metrics[m]) + 1e-6);
    }
  }

  std::shared_ptr<const Graph> graph_;
  ProgramOptions options_;
  std::unique_ptr<Program> reference_, program_;
  std::vector<float> values_;
};

TEST_P(CudnnProgramTest, Float32AsTheReference) {
  Use(v1::FLOAT32);
  if (HasFatalFailure()) return;
  for (int64_t examples : {9, 1}) {
    SCOPED_TRACE(testing::Message() << examples << " examples");
    CompareTraining(examples, 3e-5);
    CompareInference(examples, 1e-5);
  }
}

// Coarse: what is compared is that nothing reads a number of another type. A gradient's error is measured by the whole space.
TEST_P(CudnnProgramTest, BFloat16NearTheReference) {
  Use(v1::BFLOAT16);
  if (HasFatalFailure()) return;
  const Batch batch = CaseBatch(*graph_, options_.loss, 9, 7);
  const StepInfo info{.seed = 11, .step = 5, .replica = 3};
  std::vector<float> expected(graph_->space_size()), actual(graph_->space_size(), std::numeric_limits<float>::quiet_NaN());
  const auto reference = reference_->TrainStep(batch, info, values_, absl::MakeSpan(expected), nullptr);
  const auto sums = program_->TrainStep(batch, info, values_, absl::MakeSpan(actual), nullptr);
  ASSERT_TRUE(reference.ok() && sums.ok()) << reference.status() << sums.status();
  EXPECT_NEAR(sums->loss, reference->loss, 5e-2 * std::abs(reference->loss) + 1e-2);
  EXPECT_LE(Distance(actual, expected), 15e-2 * Norm(expected));
}

INSTANTIATE_TEST_SUITE_P(Cases, CudnnProgramTest, testing::ValuesIn(AllCases()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cairn
