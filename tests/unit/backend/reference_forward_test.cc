// Goal: the reference's forward pass is that of Keras' layer: outputs computed by hand.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/backend/layer_cases.h"
#include "worker/backend/reference/reference_net.h"

namespace cairn {
namespace {

Batch BatchOf(std::vector<float> inputs, int64_t examples = 1) {
  Batch batch;
  batch.examples = examples;
  batch.inputs = Buffer::CopyOf(inputs.data(), inputs.size() * sizeof(float));
  const std::vector<float> labels(examples, 0.0f);
  batch.labels = Buffer::CopyOf(labels.data(), labels.size() * sizeof(float));
  return batch;
}

// The output of one layer. variables: all of its variables, end to end.
std::vector<double> OutputOf(const std::string& shape, const std::string& layers, const std::vector<float>& inputs,
                             const std::vector<double>& variables = {}) {
  const LayerCase c{"", "layers { input { shape: " + shape + " } } " + layers};
  const std::shared_ptr<const Graph> graph = CaseGraph(c);
  std::vector<double> values(graph->space_size(), 0.0);
  size_t next = 0;
  for (const Variable& v : graph->variables()) {
    for (int64_t i = 0; i < v.size; ++i) values[v.offset + i] = variables.at(next++);
  }
  EXPECT_EQ(next, variables.size());
  ReferenceNet net(graph, FromText<v1::Loss>("kind: MEAN_SQUARED_ERROR"), {});
  const int64_t examples = static_cast<int64_t>(inputs.size()) / NumElements(graph->input_shape());
  return net.Predict(BatchOf(inputs, examples), values).value();
}

void ExpectNear(const std::vector<double>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-6) << i;
}

const std::vector<float> kNine = {1, 2, 3, 4, 5, 6, 7, 8, 9};  // [3, 3, 1]

TEST(ReferenceForward, Convolutions) {
  const std::vector<double> kernel = {1, 10, 100, 1000};  // [2, 2, 1, 1]
  std::vector<double> with_bias = kernel;
  with_bias.push_back(0.5);
  ExpectNear(OutputOf("[3, 3, 1]", "layers { conv2d { filters: 1 kernel_size: 2 } }", kNine, with_bias),
             {5421.5, 6532.5, 8754.5, 9865.5});
  // SAME with an even kernel: the pad is at the bottom and right.
  ExpectNear(OutputOf("[3, 3, 1]", "layers { conv2d { filters: 1 kernel_size: 2 padding: SAME use_bias: false } }",
                      kNine, kernel),
             {5421, 6532, 603, 8754, 9865, 906, 87, 98, 9});
  ExpectNear(OutputOf("[3, 3, 1]", "layers { conv2d { filters: 1 kernel_size: 2 dilation_rate: 2 use_bias: false } }",
                      kNine, kernel),
             {9731});
  ExpectNear(
      OutputOf("[3, 3, 1]", "layers { conv2d { filters: 1 kernel_size: 2 strides: 2 padding: SAME use_bias: false } }",
               kNine, kernel),
      {5421, 603, 87, 9});
  // Two channels in, two out: kernel [1, 1, in, out].
  ExpectNear(OutputOf("[1, 1, 2]", "layers { conv2d { filters: 2 kernel_size: 1 use_bias: false } }", {1, 2},
                      {1, 10, 100, 1000}),
             {201, 2010});
}

TEST(ReferenceForward, DepthwiseOutputsOfOneInputStandTogether) {
  ExpectNear(OutputOf("[1, 1, 2]", "layers { depthwise_conv2d { kernel_size: 1 depth_multiplier: 2 use_bias: false } }",
                      {1, 2}, {1, 10, 100, 1000}),
             {1, 10, 200, 2000});
}

TEST(ReferenceForward, Pooling) {
  ExpectNear(OutputOf("[3, 3, 1]", "layers { max_pooling2d { strides: 1 } }", kNine), {5, 6, 8, 9});
  ExpectNear(OutputOf("[3, 3, 1]", "layers { max_pooling2d { padding: SAME } }", {-1, -2, -3, -4, -5, -6, -7, -8, -9}),
             {-1, -3, -7, -9});  // a pad is never the largest
  ExpectNear(OutputOf("[3, 3, 1]", "layers { average_pooling2d { padding: SAME } }", kNine),
             {3, 4.5, 7.5, 9});  // nor counted
  ExpectNear(OutputOf("[2, 2, 2]", "layers { global_average_pooling2d {} }", {1, 10, 2, 20, 3, 30, 6, 60}), {3, 30});
}

TEST(ReferenceForward, Joins) {
  const std::string halves =
      "layers { name: 'a' rescaling { scale: 10 } } layers { name: 'b' inputs: 'input_layer' rescaling { "
      "scale: 1 offset: 100 } } ";
  ExpectNear(OutputOf("[1, 2, 2]", halves + "layers { inputs: ['a', 'b'] concatenate {} }", {1, 2, 3, 4}),
             {10, 20, 101, 102, 30, 40, 103, 104});
  ExpectNear(OutputOf("[1, 2, 2]", halves + "layers { inputs: ['a', 'b', 'input_layer'] add {} }", {1, 2, 3, 4}),
             {112, 124, 136, 148});
}

TEST(ReferenceForward, PaddingFlattenDense) {
  ExpectNear(OutputOf("[1, 2, 1]", "layers { zero_padding2d { padding: [1, 0, 2, 1] } }", {5, 6}),
             {0, 0, 0, 0, 0, 0, 0, 5, 6, 0});
  ExpectNear(OutputOf("[1, 2, 2]", "layers { flatten {} }", {1, 2, 3, 4}), {1, 2, 3, 4});
  ExpectNear(OutputOf("[2, 2]", "layers { dense { units: 1 } }", {1, 2, 3, 4}, {1, 10, 0.5}), {21.5, 43.5});
}

TEST(ReferenceForward, Activations) {
  const auto activated = [](const std::string& fields) {
    return OutputOf("3", "layers { activation { activation: " + fields + " } }", {-1, 0, 2});
  };
  ExpectNear(activated("RELU"), {0, 0, 2});
  ExpectNear(activated("LEAKY_RELU"), {-0.3, 0, 2});
  ExpectNear(activated("LEAKY_RELU negative_slope: 0.5"), {-0.5, 0, 2});
  ExpectNear(activated("TANH"), {std::tanh(-1.0), 0, std::tanh(2.0)});
  ExpectNear(activated("SIGMOID"), {1 / (1 + std::exp(1.0)), 0.5, 1 / (1 + std::exp(-2.0))});
  const double sum = std::exp(-1.0) + 1 + std::exp(2.0);
  ExpectNear(activated("SOFTMAX"), {std::exp(-1.0) / sum, 1 / sum, std::exp(2.0) / sum});
  ExpectNear(OutputOf("2", "layers { activation { activation: SOFTMAX } }", {1000, 1000}), {0.5, 0.5});  // no overflow
}

TEST(ReferenceForward, BatchNormalizationInferenceUsesTheMovingAverages) {
  // gamma, beta, mean, variance
  ExpectNear(OutputOf("2", "layers { batch_normalization { epsilon: 1 } }", {1, 2, 3, 4}, {2, 3, 10, 20, 1, 0, 3, 8}),
             {10, 22, 12, 24});
}

TEST(ReferenceForward, DropoutDoesNothingInInference) {
  ExpectNear(OutputOf("4", "layers { dropout { rate: 0.9 } }", {1, 2, 3, 4}), {1, 2, 3, 4});
}

TEST(ReferenceTraining, MovingAveragesGetExamplesTimesTheBatchStatistic) {
  const std::shared_ptr<const Graph> graph =
      CaseGraph({"", "layers { input { shape: [1, 2, 1] } } layers { batch_normalization {} } layers { flatten {} }"});
  std::vector<double> values(graph->space_size(), 1.0), gradients(graph->space_size());
  ReferenceNet net(graph, FromText<v1::Loss>("kind: MEAN_SQUARED_ERROR"), {});
  Batch batch = BatchOf({1, 3, 5, 7}, 2);
  const std::vector<float> labels(4, 0.0f);
  batch.labels = Buffer::CopyOf(labels.data(), 16);
  batch.label_size = 2;
  ASSERT_TRUE(net.TrainStep(batch, {}, values, absl::MakeSpan(gradients)).ok());
  const auto of = [&](int v) { return gradients[graph->variables()[v].offset]; };
  ASSERT_EQ(graph->variables()[2].name, "batch_normalization/moving_mean");
  EXPECT_DOUBLE_EQ(of(2), 2 * 4.0);
  EXPECT_DOUBLE_EQ(of(3), 2 * 5.0);  // biased: (9 + 1 + 1 + 9) / 4
}

TEST(ReferenceTraining, DropoutScalesWhatItKeeps) {
  const std::shared_ptr<const Graph> graph = CaseGraph({"",
                                                        "layers { input { shape: 1000 } } layers { dropout { rate: "
                                                        "0.75 } } layers { dense { units: 1 use_bias: false } }"});
  // The gradient of the sum of outputs with regard to the kernel is the input after dropout, summed over the batch.
  std::vector<double> values(graph->space_size(), 0.0), gradients(graph->space_size());
  ReferenceNet net(graph, FromText<v1::Loss>("kind: MEAN_SQUARED_ERROR"), {});
  Batch batch = BatchOf(std::vector<float>(1000, 1.0f));
  batch.labels.mutable_floats()[0] = -0.5f;  // d loss / d output = 2 (0 + 0.5) = 1
  ASSERT_TRUE(net.TrainStep(batch, {.seed = 1, .step = 2, .replica = 3}, values, absl::MakeSpan(gradients)).ok());
  int kept = 0;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE(gradients[i] == 0.0 || gradients[i] == 4.0) << gradients[i];
    kept += gradients[i] != 0;
  }
  EXPECT_NEAR(kept, 250, 60);
}

}  // namespace
}  // namespace cairn
