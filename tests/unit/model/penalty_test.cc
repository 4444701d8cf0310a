// Goal: which variables have a penalty, and its value and gradient, compared with sums written out by hand; frozen
// layers do not count.
#include "common/model/penalty.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

Graph Built(const std::string& text) {
  absl::StatusOr<Graph> graph = Graph::Build(FromText<v1::Model>(text));
  EXPECT_TRUE(graph.ok()) << graph.status();
  return graph.ok() ? *std::move(graph) : Graph();
}

const std::string kTwoDense = R"(
  layers { input { shape: 5 } }
  layers { dense { units: 7 kernel_regularizer { l1: 0.5 l2: 0.25 } bias_regularizer { l2: 0.125 } } }
  layers { dense { units: 3 kernel_regularizer { l1: 0.0625 } } })";

std::vector<float> Values(int64_t n) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(-2, 2);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = uniform(random);
  values[1] = 0;
  return values;
}

TEST(Penalty, EveryLayersRegularizersReachTheirVariables) {
  const Graph graph = Built(R"(
    layers { input { shape: [8, 8, 4] } }
    layers { conv2d { filters: 4 kernel_size: 3 kernel_regularizer { l2: 1 } bias_regularizer { l2: 2 } } }
    layers { depthwise_conv2d { kernel_size: 3 depthwise_regularizer { l2: 3 } bias_regularizer { l2: 4 } } }
    layers { separable_conv2d { filters: 4 kernel_size: 3 depthwise_regularizer { l2: 5 } pointwise_regularizer { l2: 6 } bias_regularizer { l2: 7 } } }
    layers { conv2d_transpose { filters: 4 kernel_size: 2 kernel_regularizer { l2: 8 } bias_regularizer { l2: 9 } } }
    layers { batch_normalization { gamma_regularizer { l2: 10 } beta_regularizer { l2: 11 } } }
    layers { layer_normalization { gamma_regularizer { l2: 12 } beta_regularizer { l2: 13 } } }
    layers { group_normalization { groups: 2 gamma_regularizer { l2: 14 } beta_regularizer { l2: 15 } } }
    layers { reshape { target_shape: [-1, 4] } }
    layers { name: "r" conv1d { filters: 4 kernel_size: 1 kernel_regularizer { l2: 16 } bias_regularizer { l2: 17 } } }
    layers { inputs: ["r", "r"] multi_head_attention { num_heads: 1 key_dim: 2 kernel_regularizer { l2: 18 } bias_regularizer { l2: 19 } } })");
  std::string seen;
  for (const Variable& v : graph.variables()) seen += v.name + " " + std::to_string(static_cast<int>(v.l2)) + "\n";
  EXPECT_EQ(seen,
            "conv2d/kernel 1\nconv2d/bias 2\ndepthwise_conv2d/kernel 3\ndepthwise_conv2d/bias 4\n"
            "separable_conv2d/depthwise_kernel 5\nseparable_conv2d/pointwise_kernel 6\nseparable_conv2d/bias 7\n"
            "conv2d_transpose/kernel 8\nconv2d_transpose/bias 9\n"
            "batch_normalization/gamma 10\nbatch_normalization/beta 11\nbatch_normalization/moving_mean "
            "0\nbatch_normalization/moving_variance 0\n"
            "layer_normalization/gamma 12\nlayer_normalization/beta 13\ngroup_normalization/gamma "
            "14\ngroup_normalization/beta 15\n"
            "r/kernel 16\nr/bias 17\n"
            "multi_head_attention/query/kernel 18\nmulti_head_attention/query/bias 19\n"
            "multi_head_attention/key/kernel 18\nmulti_head_attention/key/bias 19\n"
            "multi_head_attention/value/kernel 18\nmulti_head_attention/value/bias 19\n"
            "multi_head_attention/attention_output/kernel 18\nmulti_head_attention/attention_output/bias 19\n");
  const Graph words = Built(R"(layers { input { shape: 3 } }
                               layers { embedding { input_dim: 5 output_dim: 2 embeddings_regularizer { l1: 3 } } })");
  EXPECT_EQ(words.variables()[0].l1, 3);
}

TEST(Penalty, ValueAndGradientAreKerasFormulas) {
  const Graph graph = Built(kTwoDense);
  const std::vector<float> values = Values(graph.space_size());
  std::vector<float> gradient(values.size(), 1), expected(values.size(), 1);
  double penalty = 0;
  for (const Variable& v : graph.variables()) {
    for (int64_t i = v.offset; i < v.offset + v.size; ++i) {
      const double w = values[static_cast<size_t>(i)];
      penalty += v.l1 * std::fabs(w) + v.l2 * w * w;
      expected[static_cast<size_t>(i)] += static_cast<float>(12 * (v.l1 * (w > 0 ? 1 : w < 0 ? -1 : 0) + 2 * v.l2 * w));
    }
  }
  const std::vector<PenaltyRange> ranges = PenaltyRangesOf(graph, 0, graph.space_size());
  ASSERT_EQ(ranges.size(), 3u);
  double sum = 0;
  for (const PenaltyRange& range : ranges) sum += PenaltyOf(range, values);
  EXPECT_NEAR(sum, penalty, 1e-9);
  AddPenaltyGradient(ranges, 12, values, absl::MakeSpan(gradient));
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(gradient[i], expected[i], 1e-5) << i;
  EXPECT_EQ(gradient[1], 1) << "l1's gradient at 0 is 0";
}

TEST(Penalty, TheGradientsBitsDoNotDependOnTheCut) {
  const Graph graph = Built(kTwoDense);
  const std::vector<float> values = Values(graph.space_size());
  std::vector<float> whole(values.size(), 0.3f), cut = whole;
  AddPenaltyGradient(PenaltyRangesOf(graph, 0, graph.space_size()), 3, values, absl::MakeSpan(whole));
  for (int64_t begin = 0; begin < graph.space_size(); begin += 16) {
    AddPenaltyGradient(PenaltyRangesOf(graph, begin, begin + 16), 3,
                       absl::MakeSpan(values).subspan(static_cast<size_t>(begin), 16),
                       absl::MakeSpan(cut).subspan(static_cast<size_t>(begin), 16));
  }
  EXPECT_EQ(cut, whole);
}

TEST(Penalty, FrozenLayersCountForNothing) {
  const Graph graph = Built(kTwoDense + " trainable_layers: \"dense_1\"");
  const std::vector<PenaltyRange> ranges = PenaltyRangesOf(graph, 0, graph.space_size());
  ASSERT_EQ(ranges.size(), 1u);
  EXPECT_EQ(ranges[0].l1, 0.0625);
}

}  // namespace
}  // namespace cairn
