// Goal: layers are fused as said: the steps of a plan, line by line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/backend/cudnn_lowering_testing.h"

namespace cairn::cudnn {
namespace {

TEST(CudnnStepsTest, AResidualBlockIsTheseSteps) {
  const auto graph =
      CaseGraph({"block",
                 "layers { input { shape: [4, 4, 2] } } layers { name: 'x' conv2d { filters: 2 kernel_size: 1 } } "
                 "layers { name: 'c' conv2d { filters: 2 kernel_size: 3 padding: SAME use_bias: false } } "
                 "layers { name: 'n' batch_normalization {} } layers { name: 's' inputs: ['x', 'n'] add {} } "
                 "layers { activation { activation: RELU } } layers { global_average_pooling2d {} } "
                 "layers { name: 'd' dense { units: 2 activation: SOFTMAX } }"});
  const auto plan = Lower(*graph, OptionsOf(*graph, "kind: SPARSE_CATEGORICAL_CROSSENTROPY", 2, Mode::kTrain));
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(plan->Text(), R"(%0 = product 32x2x2 bias f32 of inputs, x/kernel, x/bias
%1 = transpose of c/kernel
%2 = convolution 2x4x4x2 3x3 pad 1x1 -> 4x4x2 of %0, %1
%3, %4, d n/moving_mean, d n/moving_variance = statistics 32x2 of %2
%5, %6 = normalize add relu of %2, %3, %4, n/gamma, n/beta, %0
%7 = global average 2x16x2 of %5
%8 = product 2x2x2 bias f32 of %7, d/kernel, d/bias
%9, %10 = loss of %8, labels
results = sums of %9
d d/bias = column sums 2x2 of %10
d d/kernel = product 2x2x2 ta f32 of %7, %10
%11 = product 2x2x2 tb f32 of %10, d/kernel
%12 = global average backward of %11
d n/gamma, d n/beta = normalize sums relu of %2, %3, %4, n/gamma, n/beta, %6, %12
%13, %14 = normalize backward relu of %2, %3, %4, n/gamma, n/beta, %6, %12, d n/gamma, d n/beta
%15 = convolution backward filter 2x4x4x2 3x3 pad 1x1 -> 4x4x2 of %0, %13
d c/kernel = transpose of %15
%16 = convolution backward data 2x4x4x2 3x3 pad 1x1 -> 4x4x2 of %13, %1
%14 = add f32 f32 of %16, %14
d x/bias = column sums 32x2 of %14
d x/kernel = product 2x2x32 ta f32 of inputs, %14
from 0: values [0, 176)
after 20: gradients [0, 176)
arena 2560
)");
}

// The strides are applied once for both paths, biases are the batch normalizations', which are one launch each way.
TEST(CudnnStepsTest, AProjectedBlockIsTheseSteps) {
  const auto graph = CaseGraph(
      {"block",
       "layers { input { shape: [4, 4, 8] } } layers { name: 'x' conv2d { filters: 8 kernel_size: 3 padding: SAME } } "
       "layers { name: 'a' conv2d { filters: 16 kernel_size: 1 strides: 2 } } layers { name: 'an' batch_normalization "
       "{} } "
       "layers { name: 'b' inputs: 'x' conv2d { filters: 16 kernel_size: 1 strides: 2 } } "
       "layers { name: 'bn' batch_normalization {} } layers { inputs: ['an', 'bn'] add {} } "
       "layers { activation { activation: RELU } } layers { global_average_pooling2d {} } "
       "layers { name: 'd' dense { units: 2 activation: SOFTMAX } }"});
  const auto plan = Lower(*graph, OptionsOf(*graph, "kind: SPARSE_CATEGORICAL_CROSSENTROPY", 2, Mode::kTrain));
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(plan->Text(), R"(%0 = transpose of x/kernel
%1 = convolution 2x4x4x8 3x3 pad 1x1 -> 4x4x8 bias of inputs, %0, x/bias
%2 = pick 2x4x4x8 1x1/2x2 -> 2x2x8 of %1
%3 = product 8x16x8 f32 of %2, a/kernel
%4, %5, d an/moving_mean, d an/moving_variance = statistics 8x16 of %3, a/bias
%6 = product 8x16x8 f32 of %2, b/kernel
%7, %8, d bn/moving_mean, d bn/moving_variance = statistics 8x16 of %6, b/bias
%9, %10 = normalize both relu of %6, %7, %8, bn/gamma, bn/beta, %3, %4, %5, an/gamma, an/beta
%11 = global average 2x4x16 of %9
%12 = product 2x2x16 bias f32 of %11, d/kernel, d/bias
%13, %14 = loss of %12, labels
results = sums of %13
d d/bias = column sums 2x2 of %14
d d/kernel = product 16x2x2 ta f32 of %11, %14
%15 = product 2x16x2 tb f32 of %14, d/kernel
%16 = global average backward of %15
d bn/gamma, d bn/beta, d an/gamma, d an/beta = normalize sums both relu of %6, %7, %8, bn/gamma, bn/beta, %10, %16, %3, %4, %5, an/gamma, an/beta
%17, %18 = normalize backward both relu of %6, %7, %8, bn/gamma, bn/beta, %10, %16, %3, %4, %5, an/gamma, an/beta, d bn/gamma, d bn/beta, d an/gamma, d an/beta
d b/kernel = product 8x16x8 ta f32 of %2, %17
%19 = product 8x8x16 tb f32 of %17, b/kernel
d a/kernel = product 8x16x8 ta f32 of %2, %18
%19 = product 8x8x16 tb add f32 of %18, a/kernel, %19
%20 = pick backward 2x4x4x8 1x1/2x2 -> 2x2x8 of %19
d x/bias = column sums 32x8 of %20
%21 = convolution backward filter 2x4x4x8 3x3 pad 1x1 -> 4x4x8 of inputs, %20
d x/kernel = transpose of %21
from 0: values [0, 1056)
after 25: gradients [0, 1056)
arena 4096
)");
}

TEST(CudnnStepsTest, BiasAndReluGoIntoTheConvolutionWhereTheMachineCan) {
  const auto graph = CaseGraph(
      {"conv",
       "layers { input { shape: [4, 4, 2] } } layers { name: 'c' conv2d { filters: 2 kernel_size: 3 activation: "
       "RELU } } layers { flatten {} } layers { name: 'd' dense { units: 2 activation: SOFTMAX } }"});
  const auto forward = [&](int64_t examples) {
    const auto plan =
        Lower(*graph, OptionsOf(*graph, "kind: SPARSE_CATEGORICAL_CROSSENTROPY", examples, Mode::kPredict));
    return plan == nullptr ? "" : plan->Text();
  };
  EXPECT_THAT(forward(2), testing::HasSubstr(
                              "%1 = convolution 2x4x4x2 3x3 -> 2x2x2 bias relu of inputs, %0, c/bias\n%2 = product"));
  EXPECT_THAT(forward(1), testing::HasSubstr(
                              "%1 = convolution 1x4x4x2 3x3 -> 2x2x2 of inputs, %0\n%1 = bias RELU of %1, c/bias\n"));
}

TEST(CudnnStepsTest, BytesBecomeNumbersInTheFirstLaunch) {
  const auto first = [](const std::string& rescaling, DType type) {
    const auto graph =
        CaseGraph({"bytes", "layers { input { shape: [4, 4, 2] } } " + rescaling +
                                " layers { flatten {} } layers { dense { units: 2 activation: SOFTMAX } }"});
    LoweringOptions options = OptionsOf(*graph, "kind: SPARSE_CATEGORICAL_CROSSENTROPY", 2, Mode::kTrain, type);
    options.inputs = Element::kByte;
    const auto plan = Lower(*graph, options);
    if (plan == nullptr) return std::string();
    EXPECT_EQ(plan->steps().front().bytes_read, 64);
    EXPECT_EQ(plan->steps().front().bytes_written, 64 * SizeOf(type));
    int64_t readers = 0;
    for (const Plan::Step& step : plan->steps()) {
      for (const Ref& ref : step.reads) readers += ref.place == Ref::kInputs ? 1 : 0;
    }
    EXPECT_EQ(readers, 1);
    return plan->steps().front().text;
  };
  EXPECT_EQ(first("", DType::kFloat32), "%0 = copy u8 f32 * 1 + 0 of inputs");
  EXPECT_EQ(first("layers { rescaling { scale: 0.25 offset: -1 } }", DType::kBFloat16),
            "%0 = copy u8 bf16 * 0.25 + -1 of inputs");
}

}  // namespace
}  // namespace cairn::cudnn
