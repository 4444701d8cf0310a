// Goal: a model of several outputs trains the weighted sum of their losses: the loss and each output's own loss and
// metrics are those of its formula; the gradient is that of finite differences of the loss in float64, and oneDNN's is
// the reference's; an output without a loss gets none; predictions are all outputs as the model gives them.
#include "worker/backend/outputs_loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/unit/backend/outputs_subject.h"
#include "worker/backend/onednn/onednn_backend.h"
#include "worker/backend/reference/reference_net.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

class OutputsLossTest : public testing::TestWithParam<bool> {};

TEST_P(OutputsLossTest, TheGradientIsThatOfFiniteDifferences) {
  const OutputsSubject s = SubjectOf(kOutputsJob);
  const Batch batch = SomeBatch(GetParam());
  ReferenceNet net(s.graph, {}, s.options.metrics, {}, s.outputs);
  const std::vector<float> start = CaseValues(*s.graph, 2);
  std::vector<double> values(start.begin(), start.end()), gradients(values.size());
  const StepInfo info;
  const absl::StatusOr<BatchSums> sums = net.TrainStep(batch, info, values, absl::MakeSpan(gradients));
  ASSERT_TRUE(sums.ok()) << sums.status();
  const auto loss_at = [&](int64_t i, double shift) {
    std::vector<double> shifted = values;
    shifted[i] += shift;
    return net.TrainStep(batch, info, shifted, {}).value().loss;
  };
  double largest = 0;
  for (const Variable& v : s.graph->variables()) {
    for (int64_t i = v.offset; i < v.offset + v.size; ++i) {
      const double expected = (loss_at(i, 1e-5) - loss_at(i, -1e-5)) / 2e-5;
      EXPECT_NEAR(gradients[i], expected, 1e-8 + 1e-6 * std::abs(expected)) << v.name << "[" << i - v.offset << "]";
      largest = std::max(largest, std::abs(expected));
    }
  }
  EXPECT_GT(largest, 1e-2);

  const std::unique_ptr<Program> program = MakeOnednnBackend()->Compile(s.graph, s.options).value();
  std::vector<float> own(start.size());
  const absl::StatusOr<BatchSums> of_onednn = program->TrainStep(batch, info, start, absl::MakeSpan(own), {});
  ASSERT_TRUE(of_onednn.ok()) << of_onednn.status();
  for (size_t i = 0; i < own.size(); ++i) EXPECT_NEAR(own[i], gradients[i], 1e-5 + 1e-4 * std::abs(gradients[i])) << i;
  EXPECT_NEAR(of_onednn->loss, sums->loss, 1e-4);
  ASSERT_EQ(of_onednn->metrics.size(), sums->metrics.size());
  for (size_t i = 0; i < sums->metrics.size(); ++i) EXPECT_NEAR(of_onednn->metrics[i], sums->metrics[i], 1e-4) << i;
}

// Each example's figures, computed here from the predictions.
TEST_P(OutputsLossTest, LossesAndMetricsAreThoseOfTheirFormulas) {
  const OutputsSubject s = SubjectOf(kOutputsJob);
  const Batch batch = SomeBatch(GetParam());
  const std::vector<float> values = CaseValues(*s.graph, 2);
  const std::unique_ptr<Program> program = MakeOnednnBackend()->Compile(s.graph, s.options).value();
  const Buffer predicted = program->Predict(batch, values).value();
  const absl::Span<const float> p = predicted.floats(), y = batch.labels.floats();
  const size_t joined = 2 + 3 + 4 + 10;  // d: 4 + 6
  ASSERT_EQ(p.size(), 5 * joined);
  double a = 0, b = 0, c = 0, error = 0, right = 0;
  for (size_t e = 0; e < 5; ++e) {
    const absl::Span<const float> own = p.subspan(e * joined, joined), t = y.subspan(e * 7, 7);
    const double weight = GetParam() ? y[35 + e] : 1;
    a += weight * (std::pow(own[0] - t[0], 2) + std::pow(own[1] - t[1], 2)) / 2;
    error += (std::abs(own[0] - t[0]) + std::abs(own[1] - t[1])) / 2;
    EXPECT_NEAR(own[2] + own[3] + own[4], 1, 1e-6) << "probabilities";
    b -= weight * std::log(own[2 + static_cast<size_t>(t[2])]);
    right += std::max_element(own.begin() + 2, own.begin() + 5) - own.begin() - 2 == t[2] ? 1 : 0;
    for (size_t i = 0; i < 4; ++i) {
      const double q = own[5 + i];
      c -= weight * (t[3 + i] * std::log(q) + (1 - t[3 + i]) * std::log(1 - q)) / 4;
      EXPECT_EQ(own[9 + i], own[5 + i]) << "d begins with c";
    }
  }
  const BatchSums sums = program->Evaluate(batch, values).value();
  EXPECT_NEAR(sums.loss, 3 * a + b + 0.5 * c, 1e-4);
  ASSERT_EQ(sums.metrics.size(), 5u);
  const double wanted[] = {a, b, c, error, right};
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(sums.metrics[i], wanted[i], 1e-4) << i;
  const auto names = [&] {
    std::vector<std::string> all;
    for (int i = 0; i < FigureCount(s.spec); ++i) all.push_back(MetricName(s.spec, i));
    return all;
  };
  EXPECT_THAT(names(), testing::ElementsAre("a_loss", "b_loss", "c_loss", "a_mean_absolute_error", "b_accuracy"));
}

INSTANTIATE_TEST_SUITE_P(Weights, OutputsLossTest, testing::Bool());

TEST(OutputsLoss, WhatOnlyAnOutputWithoutALossReadsHasNoGradient) {
  const OutputsSubject s = SubjectOf(R"(
    model { layers { name: "x" input { shape: 4 } } layers { name: "a" inputs: "x" dense { units: 1 } }
            layers { name: "b" inputs: "x" dense { units: 2 activation: SOFTMAX } } outputs: ["b", "a"] }
    data { path: "/d" targets { output: "a" columns: "y" } }
    outputs { output: "a" loss { kind: MEAN_SQUARED_ERROR } } optimizer { sgd {} })");
  Batch batch = SomeBatch(false);
  batch.label_size = 1;
  batch.labels = batch.labels.Slice(0, 5 * sizeof(float));
  const std::unique_ptr<Program> program = MakeOnednnBackend()->Compile(s.graph, s.options).value();
  const std::vector<float> values = CaseValues(*s.graph, 2);
  std::vector<float> gradients(values.size(), NAN);
  ASSERT_TRUE(program->TrainStep(batch, {}, values, absl::MakeSpan(gradients), {}).ok());
  for (const Variable& v : s.graph->variables()) {
    const auto begin = gradients.begin() + v.offset, end = begin + v.size;
    const bool zero = std::all_of(begin, end, [](float g) { return g == 0; });
    EXPECT_EQ(zero, v.name[0] == 'b') << v.name;
  }
}

// Penalties of probabilities and of numbers are in the loss of all backends, in training and in evaluation, and are
// those of Keras' formula; the gradient is the loss's.
TEST(OutputsLoss, PenaltiesOfOutputsAreInTheLoss) {
  const OutputsSubject s = SubjectOf(R"(
    model { layers { name: "x" input { shape: 4 } }
            layers { name: "a" inputs: "x" dense { units: 2 activity_regularizer { l1: 0.5 } } }
            layers { name: "b" inputs: "x" dense { units: 3 activation: SOFTMAX activity_regularizer { l2: 2 } } }
            layers { name: "c" inputs: "a" dense { units: 1 activation: SIGMOID activity_regularizer { l1: 3 } } }
            outputs: ["c", "a", "b"] }
    data { path: "/d" targets { output: "a" columns: ["p", "q"] } targets { output: "b" columns: "k" }
           targets { output: "c" columns: "l" } }
    outputs { output: "a" loss { kind: MEAN_SQUARED_ERROR } }
    outputs { output: "b" loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY } }
    outputs { output: "c" loss { kind: BINARY_CROSSENTROPY } weight: 0.25 } optimizer { sgd {} })");
  Batch batch = SomeBatch(false);
  batch.label_size = 4;
  std::vector<float> y;
  for (int e = 0; e < 5; ++e) y.insert(y.end(), {static_cast<float>(e % 2), 0.4f, -1, static_cast<float>(e % 3)});
  batch.labels = Buffer::CopyOf(y.data(), y.size() * sizeof(float));
  const std::vector<float> start = CaseValues(*s.graph, 2);
  const std::unique_ptr<Program> program = MakeOnednnBackend()->Compile(s.graph, s.options).value();
  const Buffer predicted = program->Predict(batch, start).value();
  double losses = 0, penalty = 0;
  for (size_t e = 0; e < 5; ++e) {
    const absl::Span<const float> p = predicted.floats().subspan(e * 6, 6),
                                  t = absl::MakeConstSpan(y).subspan(e * 4, 4);
    losses -= 0.25 * (t[0] * std::log(p[0]) + (1 - t[0]) * std::log(1 - p[0]));
    losses += (std::pow(p[1] - t[1], 2) + std::pow(p[2] - t[2], 2)) / 2 - std::log(p[3 + static_cast<size_t>(t[3])]);
    penalty += 3 * std::abs(p[0]) + 0.5 * (std::abs(p[1]) + std::abs(p[2]));
    penalty += 2 * (std::pow(p[3], 2) + std::pow(p[4], 2) + std::pow(p[5], 2));
  }
  EXPECT_GT(penalty, 1);
  ReferenceNet net(s.graph, {}, s.options.metrics, {}, s.outputs);
  std::vector<double> values(start.begin(), start.end()), gradients(values.size());
  std::vector<float> own(start.size());
  const StepInfo info;
  EXPECT_NEAR(program->Evaluate(batch, start).value().loss, losses + penalty, 1e-4);
  EXPECT_NEAR(net.Evaluate(batch, values).value().loss, losses + penalty, 1e-4);
  EXPECT_NEAR(program->TrainStep(batch, info, start, absl::MakeSpan(own), {}).value().loss, losses + penalty, 1e-4);
  EXPECT_NEAR(net.TrainStep(batch, info, values, absl::MakeSpan(gradients)).value().loss, losses + penalty, 1e-4);
  const auto loss_at = [&](int64_t i, double shift) {
    std::vector<double> shifted = values;
    shifted[i] += shift;
    return net.Evaluate(batch, shifted).value().loss;
  };
  for (const Variable& v : s.graph->variables()) {
    for (int64_t i = v.offset; i < v.offset + v.size; ++i) {
      const double expected = (loss_at(i, 1e-5) - loss_at(i, -1e-5)) / 2e-5;
      EXPECT_NEAR(gradients[i], expected, 1e-7 + 1e-6 * std::abs(expected)) << v.name << "[" << i - v.offset << "]";
      EXPECT_NEAR(own[i], gradients[i], 1e-5 + 1e-4 * std::abs(gradients[i])) << v.name;
    }
  }
}

// Two numbers and a class with a row an example, and a map of two rows.
TEST(OutputsLoss, RowsHaveWeightsWhereExamplesHaveSomeOrAClassIsIgnored) {
  OutputsSubject s = SubjectOf(kOutputsJob);
  const auto weights_of = [&](const Batch& batch) {
    return OutputsLoss(s.outputs).RowWeightsOf(batch.examples, batch.labels.floats(), batch.label_size);
  };
  EXPECT_TRUE(weights_of(SomeBatch(false)).empty());
  std::vector<float> want;
  for (const int rows : {1, 1, 2}) {
    for (int i = 0; i < 5 * rows; ++i) want.push_back(0.5f * static_cast<float>(i / rows) / static_cast<float>(rows));
  }
  EXPECT_EQ(weights_of(SomeBatch(true)), want);
  for (JoinedOutput& output : s.outputs) {
    if (output.name == "b") output.with.mutable_loss()->set_ignore_class(1);
  }
  want.assign(20, 0.5f);
  for (size_t e = 0; e < 5; ++e) {
    want[e] = 1;
    want[5 + e] = e % 3 == 1 ? 0 : 1;
  }
  EXPECT_EQ(weights_of(SomeBatch(false)), want);
}

// An output whose targets are all of the data's is checked where they are.
TEST(OutputsLoss, BadLabelsOfTheOnlyTrainedOutputAreRefused) {
  const OutputsSubject s = SubjectOf(R"(
    model { layers { name: "x" input { shape: 4 } } layers { name: "a" inputs: "x" dense { units: 1 } }
            layers { name: "b" inputs: "x" dense { units: 3 activation: SOFTMAX } } outputs: ["b", "a"] }
    data { path: "/d" targets { output: "b" columns: "k" } }
    outputs { output: "b" loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY } } optimizer { sgd {} })");
  for (const bool weights : {false, true}) {
    Batch batch = OutputsBatch(weights, [](int e) { return std::vector<float>{static_cast<float>(e % 3)}; });
    const OutputsLoss loss(s.outputs);
    const auto checked = [&] { return loss.CheckLabels(batch.examples, batch.labels.floats(), batch.label_size); };
    EXPECT_TRUE(checked().ok()) << checked();
    batch.labels.mutable_floats()[4] = 3;
    EXPECT_THAT(std::string(checked().message()), HasSubstr("output \"b\": label 3 of example 4"));
  }
}

TEST(OutputsLoss, BadLabelsAreRefusedByTheirOutput) {
  const OutputsSubject s = SubjectOf(kOutputsJob);
  const std::unique_ptr<Program> program = MakeOnednnBackend()->Compile(s.graph, s.options).value();
  const std::vector<float> values = CaseValues(*s.graph, 2);
  std::vector<float> gradients(values.size());
  Batch batch = SomeBatch(false);
  batch.labels.mutable_floats()[2] = 3;
  EXPECT_THAT(std::string(program->TrainStep(batch, {}, values, absl::MakeSpan(gradients), {}).status().message()),
              HasSubstr("output \"b\": label 3 of example 0"));
  batch.label_size = 6;
  EXPECT_THAT(std::string(program->Evaluate(batch, values).status().message()), HasSubstr("7"));
}

}  // namespace
}  // namespace cairn
