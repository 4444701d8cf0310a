// Goal: the reference's gradients are the derivatives of its own loss: for every layer, loss and parameter, against
// central finite differences in float64. Those of frozen layers are zero.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/backend/conv_lstm_cases.h"
#include "tests/unit/backend/frozen_cases.h"
#include "tests/unit/backend/recurrent_cases.h"
#include "worker/backend/reference/reference_net.h"

namespace cairn {
namespace {

constexpr double kStep = 1e-5;
constexpr double kRelativeError = 1e-6;
constexpr double kAbsoluteError = 1e-8;  // of sums near 10, of which differences of 1e-5 are taken

class GradientTest : public testing::TestWithParam<LayerCase> {};

TEST_P(GradientTest, MatchesFiniteDifferences) {
  const std::shared_ptr<const Graph> graph = CaseGraph(GetParam());
  const v1::Loss loss = FromText<v1::Loss>(GetParam().loss);
  const Batch batch = CaseBatch(*graph, loss, 3, 1);
  const StepInfo info = {.seed = 5, .step = 6, .replica = 7};
  ReferenceNet net(graph, loss, {});
  const std::vector<float> start = CaseValues(*graph, 2);
  std::vector<double> values(start.begin(), start.end());
  std::vector<double> gradients(values.size(), std::nan(""));
  ASSERT_TRUE(net.TrainStep(batch, info, values, absl::MakeSpan(gradients)).ok());

  const auto loss_at = [&](int64_t i, double shift) {
    std::vector<double> shifted = values;
    shifted[i] += shift;
    return net.TrainStep(batch, info, shifted, {}).value().loss;
  };
  double largest = 0;
  for (const Variable& v : graph->variables()) {
    if (v.kind == VariableKind::kFrozen) {
      for (int64_t i = v.offset; i < v.offset + v.size; ++i) ASSERT_EQ(gradients[i], 0.0) << v.name;
    }
    if (v.kind != VariableKind::kTrainable) continue;
    for (int64_t i = v.offset; i < v.offset + v.size; ++i) {
      const double expected = (loss_at(i, kStep) - loss_at(i, -kStep)) / (2 * kStep);
      EXPECT_NEAR(gradients[i], expected, kAbsoluteError + kRelativeError * std::abs(expected))
          << v.name << "[" << i - v.offset << "]";
      largest = std::max(largest, std::abs(expected));
    }
  }
  EXPECT_GT(largest, 1e-3) << "a check of nothing but zeros";
  // The space between variables is written too.
  std::vector<bool> inside(values.size(), false);
  for (const Variable& v : graph->variables()) std::fill_n(inside.begin() + v.offset, v.size, true);
  for (size_t i = 0; i < inside.size(); ++i) {
    if (!inside[i]) {
      EXPECT_EQ(gradients[i], 0.0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, GradientTest, testing::ValuesIn(LayerCases()),
                         [](const testing::TestParamInfo<LayerCase>& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Recurrent, GradientTest, testing::ValuesIn(RecurrentCases()),
                         [](const testing::TestParamInfo<LayerCase>& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Masks, GradientTest, testing::ValuesIn(MaskCases()),
                         [](const testing::TestParamInfo<LayerCase>& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(ConvLstm, GradientTest, testing::ValuesIn(ConvLstmCases()),
                         [](const testing::TestParamInfo<LayerCase>& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(ConvLstmMasks, GradientTest, testing::ValuesIn(ConvLstmMaskCases()),
                         [](const testing::TestParamInfo<LayerCase>& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Distributed, GradientTest, testing::ValuesIn(DistributedCases()),
                         [](const testing::TestParamInfo<LayerCase>& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(DistributedBatch, GradientTest, testing::ValuesIn(DistributedBatchCases()),
                         [](const testing::TestParamInfo<LayerCase>& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Frozen, GradientTest, testing::ValuesIn(FrozenCases()),
                         [](const testing::TestParamInfo<LayerCase>& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Inference, GradientTest, testing::ValuesIn(InferenceCases()),
                         [](const testing::TestParamInfo<LayerCase>& info) { return info.param.name; });

// If every layer is computed as in inference, a step of training has the loss of an evaluation.
TEST(Inference, HoldsInTraining) {
  const std::vector<LayerCase> cases = InferenceCases();
  ASSERT_GE(cases.size(), 5u);
  for (const LayerCase& c : cases) {
    SCOPED_TRACE(c.name);
    const std::shared_ptr<const Graph> graph = CaseGraph(c);
    const v1::Loss loss = FromText<v1::Loss>(c.loss);
    ReferenceNet net(graph, loss, {});
    const std::vector<float> start = CaseValues(*graph, 2);
    const std::vector<double> values(start.begin(), start.end());
    const Batch batch = CaseBatch(*graph, loss, 3, 1);
    EXPECT_EQ(net.TrainStep(batch, {}, values, {}).value().loss, net.Evaluate(batch, values).value().loss);
  }
}

// The first layer's gradients are not zero, which shows that the gradient passed through the layer of interest.
TEST(Gradient, ReachesTheFirstLayer) {
  for (const LayerCase& c : LayerCases()) {
    SCOPED_TRACE(c.name);
    const std::shared_ptr<const Graph> graph = CaseGraph(c);
    const v1::Loss loss = FromText<v1::Loss>(c.loss);
    ReferenceNet net(graph, loss, {});
    const std::vector<float> start = CaseValues(*graph, 2);
    const std::vector<double> values(start.begin(), start.end());
    std::vector<double> gradients(values.size());
    ASSERT_TRUE(net.TrainStep(CaseBatch(*graph, loss, 3, 1), {}, values, absl::MakeSpan(gradients)).ok());
    double largest = 0;
    const Variable& first = graph->variables()[0];
    for (int64_t i = 0; i < first.size; ++i) largest = std::max(largest, std::abs(gradients[first.offset + i]));
    EXPECT_GT(largest, 1e-4);
  }
}

}  // namespace
}  // namespace cairn
