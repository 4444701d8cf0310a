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
#include "tests/unit/backend/wide_feature_cases.h"
#include "worker/backend/onednn/onednn_backend.h"
#include "worker/backend/reference/reference_backend.h"

namespace cairn {
namespace {

std::string Image(const std::string& shape, const std::string& layers) {
  return "layers { input { shape: " + shape + " } } " + layers +
         " layers { flatten {} } layers { dense { units: 4 activation: SOFTMAX } }";
}

// Beside LayerCases: wide enough for blocks of 16 channels, whole and not.
std::vector<LayerCase> WideCases() {
  const std::string conv16 = "layers { conv2d { filters: 16 kernel_size: 3 padding: SAME activation: RELU } } ";
  const std::string conv32 = "layers { conv2d { filters: 32 kernel_size: 3 padding: SAME activation: RELU } } ";
  const std::string conv20 = "layers { conv2d { filters: 20 kernel_size: 3 padding: SAME activation: RELU } } ";
  const std::string norm_relu = "layers { batch_normalization {} } layers { activation { activation: RELU } } ";
  std::vector<LayerCase> cases = {
      {"FashionCnn",
       Image("[14, 14, 1]", "layers { rescaling { scale: 0.5 } } " + conv32 +
                                "layers { max_pooling2d {} } layers { conv2d { filters: 64 kernel_size: 3 "
                                "padding: SAME activation: RELU } } layers { max_pooling2d {} }")},
      {"ColourCnn", Image("[9, 11, 3]", conv32 + "layers { max_pooling2d { pool_size: 3 strides: 2 padding: SAME } } " +
                                            conv20 + "layers { average_pooling2d { padding: SAME } }")},
      {"StridedWide", Image("[11, 8, 16]", conv16 + "layers { conv2d { filters: 48 kernel_size: [3, 2] strides: [2, 3] "
                                                    "padding: SAME activation: TANH } }")},
      {"DilatedWide",
       Image("[11, 9, 16]", conv16 + "layers { conv2d { filters: 17 kernel_size: 3 dilation_rate: [2, 3] } }")},
      {"KernelAsLargeAsImage", Image("[7, 7, 3]", conv16 + "layers { conv2d { filters: 16 kernel_size: 7 } }")},
      {"BigKernelSame",
       Image("[4, 5, 3]", conv16 + "layers { conv2d { filters: 16 kernel_size: 5 padding: SAME strides: 2 } }")},
      {"Pointwise", Image("[6, 5, 24]",
                          "layers { conv2d { filters: 40 kernel_size: 1 activation: LEAKY_RELU } } "
                          "layers { conv2d { filters: 8 kernel_size: 1 strides: 2 } }")},
      {"ActivationsWide",
       Image("[6, 6, 3]",
             "layers { conv2d { filters: 20 kernel_size: 3 } } layers { activation { activation: SIGMOID } } "
             "layers { conv2d { filters: 24 kernel_size: 3 activation: SIGMOID } } layers { dropout { rate: "
             "0.3 } } layers { activation { activation: TANH } }")},
      {"PooledSigmoid", Image("[8, 8, 3]",
                              "layers { conv2d { filters: 20 kernel_size: 3 activation: SIGMOID } } "
                              "layers { max_pooling2d { pool_size: 3 strides: 1 } }")},
      {"PooledLeakyRelu", Image("[8, 8, 3]",
                                "layers { conv2d { filters: 20 kernel_size: 3 activation: LEAKY_RELU } } "
                                "layers { max_pooling2d {} } layers { dropout { rate: 0.5 } }")},
      {"DropoutWide", Image("[8, 8, 3]", conv20 + "layers { dropout { rate: 0.25 } } layers { flatten {} } "
                                                  "layers { dropout { rate: 0.5 } }")},
      {"DenseOnFlattenedPadding",
       Image("[6, 6, 3]", conv20 + "layers { flatten {} } layers { dense { units: 24 activation: RELU } }")},
      {"NormOfFlattened", Image("[4, 4, 3]", conv20 + "layers { flatten {} } layers { batch_normalization {} }")},
      {"NormWide", Image("[6, 6, 3]", conv20 + norm_relu + conv32 + norm_relu)},
      {"NormFirst", Image("[6, 6, 3]", "layers { batch_normalization {} } " + conv16)},
      {"NormShared",
       Image("[6, 6, 3]", conv16 + "layers { name: 'n' batch_normalization {} } layers { name: 'r' "
                                   "activation { activation: RELU } } layers { name: 'c' conv2d { filters: "
                                   "16 kernel_size: 3 padding: SAME } } layers { inputs: ['c', 'n'] add {} }")},
      {"GlobalWide", Image("[7, 5, 3]", conv20 + "layers { global_average_pooling2d {} }")},
      {"GlobalBlocks", Image("[7, 5, 3]", conv32 + "layers { global_average_pooling2d {} }")},
      {"DepthwiseWide", Image("[9, 9, 32]",
                              "layers { conv2d { filters: 32 kernel_size: 1 } } layers { depthwise_conv2d { "
                              "kernel_size: 3 padding: SAME activation: RELU } }")},
      {"DepthwiseStride", Image("[9, 9, 3]", conv20 +
                                                 "layers { zero_padding2d { padding: [0, 1, 0, 1] } } layers { "
                                                 "depthwise_conv2d { kernel_size: 3 strides: 2 use_bias: false } }" +
                                                 norm_relu)},
      {"DepthwiseMultiplierWide",
       Image("[7, 7, 16]", conv16 + "layers { depthwise_conv2d { kernel_size: 3 depth_multiplier: 3 } }")},
      {"ZeroPaddingAlone", Image("[5, 5, 3]", conv16 + "layers { zero_padding2d { padding: [1, 0, 0, 2] } } "
                                                       "layers { max_pooling2d {} }")},
      {"SoftmaxWide", Image("[4, 4, 3]", "layers { conv2d { filters: 20 kernel_size: 3 activation: SOFTMAX } }")},
      {"RescalingInside", Image("[6, 6, 3]", conv20 + "layers { rescaling { scale: 2.0 offset: -1.0 } } " + conv16)},
      {"RescalingShared", Image("[6, 6, 3]",
                                "layers { name: 's' rescaling { scale: 2.0 offset: -1.0 } } layers { name: 'a' "
                                "conv2d { filters: 3 kernel_size: 3 padding: SAME } } layers { inputs: ['s', "
                                "'a', 'input_layer'] add {} }")},
      {"ConcatenateBlocks",
       Image("[6, 6, 3]",
             "layers { name: 'a' conv2d { filters: 16 kernel_size: 3 padding: SAME } } layers { name: 'b' conv2d "
             "{ filters: 32 kernel_size: 3 padding: SAME } } layers { inputs: ['a', 'b', 'a'] concatenate {} "
             "} " +
                 conv16)},
      {"ConcatenateUneven",
       Image("[6, 6, 3]",
             "layers { name: 'a' conv2d { filters: 16 kernel_size: 3 padding: SAME } } layers { name: 'b' conv2d "
             "{ filters: 20 kernel_size: 3 padding: SAME } } layers { inputs: ['a', 'b'] concatenate {} } " +
                 conv16)},
      {"ResidualBlocks",
       Image("[8, 8, 3]",
             "layers { name: 'stem' conv2d { filters: 16 kernel_size: 3 padding: SAME use_bias: false } } "
             "layers { batch_normalization {} } layers { name: 'x' activation { activation: RELU } } "
             "layers { conv2d { filters: 16 kernel_size: 3 padding: SAME use_bias: false } } " +
                 norm_relu +
                 "layers { conv2d { filters: 16 kernel_size: 3 padding: SAME use_bias: false } } "
                 "layers { name: 'y' batch_normalization {} } layers { name: 'sum' inputs: ['x', 'y'] add {} } "
                 "layers { name: 'z' activation { activation: RELU } } "
                 "layers { name: 'short' inputs: 'z' conv2d { filters: 32 kernel_size: 1 strides: 2 } } "
                 "layers { inputs: 'z' conv2d { filters: 32 kernel_size: 3 strides: 2 padding: SAME } } "
                 "layers { name: 'w' batch_normalization {} } layers { inputs: ['w', 'short'] add {} } "
                 "layers { activation { activation: RELU } } layers { global_average_pooling2d {} }")},
      {"Inception",
       Image("[8, 8, 3]", conv16 + "layers { name: 'i' max_pooling2d {} } "
                                   "layers { name: 'a' conv2d { filters: 16 kernel_size: 1 activation: RELU } } "
                                   "layers { name: 'b' inputs: 'i' conv2d { filters: 16 kernel_size: 3 padding: SAME "
                                   "activation: RELU } } layers { name: 'c' inputs: 'i' max_pooling2d { pool_size: 3 "
                                   "strides: 1 padding: SAME } } layers { inputs: ['a', 'b', 'c'] concatenate {} }")},
      {"AddOfTwoActivations", Image("[8, 8, 3]",
                                    "layers { name: 'i' conv2d { filters: 16 kernel_size: 1 } } "
                                    "layers { name: 'a' conv2d { filters: 16 kernel_size: 1 activation: TANH } } "
                                    "layers { name: 'b' inputs: 'i' conv2d { filters: 16 kernel_size: 3 padding: SAME "
                                    "activation: SIGMOID } } layers { inputs: ['a', 'b'] add {} }")},
      {"ImageOutput",
       "layers { input { shape: [5, 5, 3] } } " + conv20 + "layers { conv2d { filters: 2 kernel_size: 3 } }",
       "kind: MEAN_SQUARED_ERROR"},
      {"ImageSigmoid",
       "layers { input { shape: [5, 5, 3] } } layers { conv2d { filters: 20 kernel_size: 3 activation: SIGMOID } }",
       "kind: BINARY_CROSSENTROPY"},
      {"Lines",
       "layers { input { shape: [7, 5] } } layers { dense { units: 9 activation: RELU } } layers { flatten {} } "
       "layers { dense { units: 4 activation: SOFTMAX } }"},
      {"Mlp",
       "layers { input { shape: 100 } } layers { rescaling { scale: 0.1 } } layers { dense { units: 33 activation: "
       "RELU } } layers { dropout { rate: 0.5 } } layers { dense { units: 20 activation: TANH } } layers { dense { "
       "units: 20 activation: SIGMOID } } layers { dense { units: 4 activation: SOFTMAX } }"},
      {"OneUnit", "layers { input { shape: 3 } } layers { dense { units: 1 activation: SIGMOID } }",
       "kind: BINARY_CROSSENTROPY"},
  };
  return cases;
}

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
