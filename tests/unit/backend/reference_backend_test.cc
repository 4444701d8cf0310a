// Goal: the reference keeps the promises of backend.h: gradients are sums and announced once, the same bits whatever
// was computed before, bad batches are refused.
#include "worker/backend/reference/reference_backend.h"

#include <gtest/gtest.h>

#include "common/base/limits.h"
#include "tests/unit/backend/layer_cases.h"

namespace cairn {
namespace {

const LayerCase& CaseOf(const std::string& name) {
  static const std::vector<LayerCase> cases = LayerCases();
  for (const LayerCase& c : cases) {
    if (c.name == name) return c;
  }
  CAIRN_CHECK(false, "no such case");
  return cases[0];
}

class ReferenceBackendTest : public testing::Test {
 protected:
  void Compile(const std::string& name, int64_t batch_max = 8) {
    graph_ = CaseGraph(CaseOf(name));
    options_.batch_max = batch_max;
    options_.loss = FromText<v1::Loss>(CaseOf(name).loss);
    options_.metrics = {FromText<v1::Metric>("kind: ACCURACY")};
    program_ = MakeReferenceBackend()->Compile(graph_, options_).value();
    values_ = CaseValues(*graph_, 3);
  }
  std::vector<float> Gradients(const Batch& batch) {
    std::vector<float> gradients(graph_->space_size(), -1.0f);
    EXPECT_TRUE(program_->TrainStep(batch, {}, values_, absl::MakeSpan(gradients), nullptr).ok());
    return gradients;
  }

  std::shared_ptr<const Graph> graph_;
  ProgramOptions options_;
  std::unique_ptr<Program> program_;
  std::vector<float> values_;
};

TEST_F(ReferenceBackendTest, GradientsAreAnnouncedOnceFromTheEnd) {
  Compile("SmallCnn");
  const Batch batch = CaseBatch(*graph_, options_.loss, 4, 1);
  std::vector<float> gradients(graph_->space_size());
  int64_t expected_end = graph_->space_size();
  ASSERT_TRUE(program_
                  ->TrainStep(batch, {}, values_, absl::MakeSpan(gradients),
                              [&](int64_t begin, int64_t end) {
                                EXPECT_EQ(end, expected_end);
                                EXPECT_LT(begin, end);
                                EXPECT_EQ(begin % kSpaceAlignment, 0);
                                expected_end = begin;
                              })
                  .ok());
  EXPECT_EQ(expected_end, 0);
}

// Without layers that mix examples, a batch's gradient is the sum of its examples' gradients.
TEST_F(ReferenceBackendTest, GradientsAreSums) {
  Compile("PoolingBranches");
  const Batch batch = CaseBatch(*graph_, options_.loss, 3, 1);
  const std::vector<float> whole = Gradients(batch);
  std::vector<double> sum(whole.size(), 0.0);
  const size_t example_bytes = batch.inputs.size() / 3;
  for (int e = 0; e < 3; ++e) {
    Batch one = batch;
    one.examples = 1;
    one.inputs = batch.inputs.Slice(e * example_bytes, example_bytes);
    one.labels = batch.labels.Slice(e * sizeof(float), sizeof(float));
    const std::vector<float> part = Gradients(one);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  for (size_t i = 0; i < sum.size(); ++i) EXPECT_NEAR(whole[i], sum[i], 1e-5);
}

TEST_F(ReferenceBackendTest, TheSameBitsWhateverWasComputedBefore) {
  Compile("Residual");
  const Batch batch = CaseBatch(*graph_, options_.loss, 3, 1);
  const std::vector<float> first = Gradients(batch);
  Gradients(CaseBatch(*graph_, options_.loss, 7, 2));
  ASSERT_TRUE(program_->Evaluate(CaseBatch(*graph_, options_.loss, 5, 3), values_).ok());
  EXPECT_EQ(Gradients(batch), first);
}

TEST_F(ReferenceBackendTest, PredictionsAndSums) {
  Compile("SmallCnn");
  const Batch batch = CaseBatch(*graph_, options_.loss, 6, 1);
  const Buffer outputs = program_->Predict(batch, values_).value();
  const BatchSums sums = program_->Evaluate(batch, values_).value();
  ASSERT_EQ(outputs.floats().size(), 6u * 5);
  double loss = 0, right = 0;
  for (int e = 0; e < 6; ++e) {
    const absl::Span<const float> p = outputs.floats().subspan(e * 5, 5);
    const int label = static_cast<int>(batch.labels.floats()[e]);
    loss -= std::log(p[label]);
    right += std::max_element(p.begin(), p.end()) - p.begin() == label;
  }
  EXPECT_EQ(sums.examples, 6u);
  EXPECT_NEAR(sums.loss, loss, 1e-5);
  ASSERT_EQ(sums.metrics.size(), 1u);
  EXPECT_EQ(sums.metrics[0], right);
  EXPECT_GT(program_->memory_bytes(), 6u * 144 * 4);
}

TEST_F(ReferenceBackendTest, BadBatchesAreRefused) {
  Compile("SmallCnn", 4);
  std::vector<float> gradients(graph_->space_size());
  const auto code = [&](const Batch& batch) {
    return program_->TrainStep(batch, {}, values_, absl::MakeSpan(gradients), nullptr).status().code();
  };
  const Batch good = CaseBatch(*graph_, options_.loss, 4, 1);
  EXPECT_EQ(code(good), absl::StatusCode::kOk);
  EXPECT_EQ(code(CaseBatch(*graph_, options_.loss, 5, 1)), absl::StatusCode::kInvalidArgument);
  Batch bad = good;
  bad.examples = 0;
  EXPECT_EQ(code(bad), absl::StatusCode::kInvalidArgument);
  bad = good;
  bad.inputs = good.inputs.Slice(0, good.inputs.size() - 4);
  EXPECT_EQ(code(bad), absl::StatusCode::kInvalidArgument);
  bad = good;
  bad.labels = good.labels.Slice(0, good.labels.size() - 4);
  EXPECT_EQ(code(bad), absl::StatusCode::kInvalidArgument);
  bad = CaseBatch(*graph_, options_.loss, 4, 1);
  bad.labels.mutable_floats()[2] = 5;
  EXPECT_EQ(code(bad), absl::StatusCode::kInvalidArgument);
  values_.pop_back();
  EXPECT_EQ(code(good), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cairn
