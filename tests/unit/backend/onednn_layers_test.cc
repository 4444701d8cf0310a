// Goal: every layer, option and loss computes on oneDNN what the reference computes in float64: sums, gradients,
// predictions; in the shapes that take different paths there (channels that fill a vector and that do not, batches of
// 1, 7 and 64, windows that stick out), alone and in models where buffers are shared and layers fused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/unit/backend/frozen_cases.h"
#include "tests/unit/backend/wide_cases.h"
#include "tests/unit/backend/wide_feature_cases.h"
#include "worker/backend/onednn/onednn_backend.h"
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

class OnednnLayersTest : public testing::TestWithParam<LayerCase> {
 protected:
  void SetUp() override {
    graph_ = CaseGraph(GetParam());
    options_.batch_max = 64;
    options_.loss = FromText<v1::Loss>(GetParam().loss);
    options_.metrics = {FromText<v1::Metric>("kind: ACCURACY"), FromText<v1::Metric>("kind: MEAN_ABSOLUTE_ERROR")};
    reference_ = MakeReferenceBackend()->Compile(graph_, options_).value();
    auto program = MakeOnednnBackend()->Compile(graph_, options_);
    ASSERT_TRUE(program.ok()) << program.status();
    program_ = *std::move(program);
    values_ = CaseValues(*graph_, 5);
    // Kernels as an initializer would have them, so that wide layers do not saturate.
    for (const Variable& v : graph_->variables()) {
      if (v.fan_in < 8) continue;
      for (int64_t i = v.offset; i < v.offset + v.size; ++i) values_[i] *= 3.0f / std::sqrt(float(v.fan_in));
    }
  }

  void CompareTraining(int64_t examples) {
    const Batch batch = CaseBatch(*graph_, options_.loss, examples, 7);
    const StepInfo info{.seed = 11, .step = 5, .replica = 3};
    std::vector<float> expected(graph_->space_size()), actual(graph_->space_size());
    std::fill(actual.begin(), actual.end(), std::numeric_limits<float>::quiet_NaN());
    const auto reference = reference_->TrainStep(batch, info, values_, absl::MakeSpan(expected), nullptr);
    ASSERT_TRUE(reference.ok()) << reference.status();
    std::vector<int> announced(graph_->space_size() / 16, 0);
    const auto sums =
        program_->TrainStep(batch, info, values_, absl::MakeSpan(actual), [&](int64_t begin, int64_t end) {
          EXPECT_EQ(begin % 16, 0);
          EXPECT_EQ(end % 16, 0);
          for (int64_t i = begin; i < end; ++i)
            EXPECT_FALSE(std::isnan(actual[i])) << "announced before it was written";
          for (int64_t i = begin / 16; i < end / 16; ++i) ++announced[i];
        });
    ASSERT_TRUE(sums.ok()) << sums.status();
    ExpectSums(*reference, *sums);
    EXPECT_EQ(std::count(announced.begin(), announced.end(), 1), static_cast<int64_t>(announced.size()));
    const double all = Norm(expected);
    int64_t end = 0;
    for (const Variable& v : graph_->variables()) {
      for (int64_t i = end; i < v.offset; ++i) EXPECT_EQ(actual[i], 0) << "padding before " << v.name;
      end = v.offset + v.size;
      const auto a = absl::MakeSpan(actual).subspan(v.offset, v.size);
      const auto e = absl::MakeSpan(expected).subspan(v.offset, v.size);
      // A gradient that cancels out (a bias before a normalization) is as exact as its terms.
      EXPECT_LE(Distance(a, e), 3e-5 * std::max(Norm(e), 0.03 * all)) << v.name << ", norm " << Norm(e);
    }
    for (int64_t i = end; i < graph_->space_size(); ++i) EXPECT_EQ(actual[i], 0) << "padding at the end";
  }

  void CompareInference(int64_t examples) {
    const Batch batch = CaseBatch(*graph_, options_.loss, examples, 9);
    const auto expected = reference_->Predict(batch, values_), actual = program_->Predict(batch, values_);
    ASSERT_TRUE(expected.ok() && actual.ok()) << expected.status() << actual.status();
    ASSERT_EQ(actual->size(), expected->size());
    EXPECT_LE(Distance(actual->floats(), expected->floats()), 1e-5 * Norm(expected->floats()));
    const auto reference = reference_->Evaluate(batch, values_), sums = program_->Evaluate(batch, values_);
    ASSERT_TRUE(reference.ok() && sums.ok()) << reference.status() << sums.status();
    ExpectSums(*reference, *sums);
  }

  static void ExpectSums(const BatchSums& expected, const BatchSums& actual) {
    EXPECT_EQ(actual.examples, expected.examples);
    EXPECT_NEAR(actual.loss, expected.loss, 1e-5 * std::abs(expected.loss) + 1e-6);
    ASSERT_EQ(actual.metrics.size(), expected.metrics.size());
    for (size_t m = 0; m < actual.metrics.size(); ++m) {
      EXPECT_NEAR(actual.metrics[m], expected.metrics[m], 1e-4 * std::abs(expected.metrics[m]) + 1e-6);
    }
  }

  std::shared_ptr<const Graph> graph_;
  ProgramOptions options_;
  std::unique_ptr<Program> reference_, program_;
  std::vector<float> values_;
};

TEST_P(OnednnLayersTest, AsTheReference) {
  for (int64_t examples : {64, 7, 1}) {
    SCOPED_TRACE(testing::Message() << examples << " examples");
    CompareTraining(examples);
    CompareInference(examples);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, OnednnLayersTest, testing::ValuesIn(AllCases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cairn
