// Goal: a spectral normalization divides its kernel and turns its vector as keras.layers.SpectralNormalization does;
// kernel and vector lie in one partition; what would make it another one is refused by name.
#include "common/model/spectral.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/job_check.h"
#include "common/model/partition_cut.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using testing::HasSubstr;

Graph GraphOf(const std::string& layers) {
  return Graph::Build(FromText<v1::Model>(absl::StrCat("layers { input { shape: [6, 6, 3] } } ", layers))).value();
}

constexpr char kConv[] =
    "layers { name: 's' spectral_normalization { layer { name: 'c' conv2d { filters: 4 kernel_size: 2 } } "
    "power_iterations: 3 } } ";

TEST(Spectral, HasKerasVariables) {
  const Graph graph = GraphOf(kConv);
  ASSERT_EQ(graph.variables().size(), 3u);
  EXPECT_EQ(graph.variables()[0].name, "s/c/kernel");
  EXPECT_EQ(graph.variables()[1].name, "s/c/bias");
  EXPECT_EQ(graph.variables()[2].name, "s/vector_u");
  EXPECT_EQ(graph.variables()[2].shape, (Shape{1, 4}));
  EXPECT_EQ(graph.variables()[2].initializer.kind(), v1::Initializer::TRUNCATED_NORMAL);
  EXPECT_EQ(graph.trainable_parameters(), 2 * 2 * 3 * 4 + 4);
  EXPECT_EQ(graph.output().output, (Shape{5, 5, 4}));
}

// Written out again, with matrices of vectors.
TEST(Spectral, IsPowerIteration) {
  const Graph graph = GraphOf(kConv);
  std::vector<float> values(static_cast<size_t>(graph.space_size()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i) * 1.7f);
  const std::vector<float> before = values;
  const std::vector<SpectralRange> ranges = SpectralRangesOf(graph, 0, graph.space_size());
  ASSERT_EQ(ranges.size(), 1u);
  EXPECT_EQ(ranges[0].rows, 12);
  EXPECT_EQ(ranges[0].columns, 4);
  NormalizeKernels(ranges, absl::MakeSpan(values));
  const int64_t u_at = graph.variables()[2].offset;
  std::vector<double> u(before.begin() + u_at, before.begin() + u_at + 4), v(12);
  const auto w = [&](int64_t r, int64_t c) { return double{before[static_cast<size_t>(r * 4 + c)]}; };
  double sigma = 0;
  for (int i = 0; i < 3; ++i) {
    double length = 0;
    for (int64_t r = 0; r < 12; ++r) {
      v[r] = 0;
      for (int64_t c = 0; c < 4; ++c) v[r] += w(r, c) * u[c];
      length += v[r] * v[r];
    }
    for (double& number : v) number /= std::sqrt(length);
    length = 0;
    for (int64_t c = 0; c < 4; ++c) {
      u[c] = 0;
      for (int64_t r = 0; r < 12; ++r) u[c] += w(r, c) * v[r];
      length += u[c] * u[c];
    }
    for (double& number : u) number /= std::sqrt(length);
  }
  for (int64_t r = 0; r < 12; ++r) {
    for (int64_t c = 0; c < 4; ++c) sigma += v[r] * w(r, c) * u[c];
  }
  for (int64_t i = 0; i < 48; ++i) EXPECT_NEAR(values[i], before[i] / sigma, 1e-6) << i;
  for (int64_t c = 0; c < 4; ++c) EXPECT_NEAR(values[u_at + c], u[c], 1e-6) << c;
  for (size_t i = 48; i < values.size(); ++i) {
    if (static_cast<int64_t>(i) < u_at || static_cast<int64_t>(i) >= u_at + 4) {
      EXPECT_EQ(values[i], before[i]) << i;
    }
  }
}

// Again and again, the largest singular value becomes 1, whatever the kernel was; zeros stay zeros.
TEST(Spectral, ConvergesToOne) {
  const Graph graph =
      GraphOf("layers { flatten {} } layers { spectral_normalization { layer { dense { units: 2 } } } }");
  std::vector<float> values(static_cast<size_t>(graph.space_size()), 0.0f);
  const std::vector<SpectralRange> ranges = SpectralRangesOf(graph, 0, graph.space_size());
  const int64_t u_at = ranges[0].vector;
  values[static_cast<size_t>(u_at)] = 0.01f;
  values[static_cast<size_t>(u_at) + 1] = -0.02f;
  const std::vector<float> zeros = values;
  NormalizeKernels(ranges, absl::MakeSpan(values));
  EXPECT_EQ(values, zeros);
  values[0] = 3;  // singular values 3 and 0.5
  values[3] = 0.5f;
  for (int i = 0; i < 20; ++i) NormalizeKernels(ranges, absl::MakeSpan(values));
  EXPECT_NEAR(std::abs(values[0]), 1, 1e-5);
  EXPECT_NEAR(std::abs(values[3]), 0.5 / 3, 1e-5);
  EXPECT_NEAR(std::abs(values[static_cast<size_t>(u_at)]), 1, 1e-5);
}

// Where sigma is 0 or not finite, neither the kernel nor the vector changes.
TEST(Spectral, DividesByNoSigmaThatIsZeroOrNotFinite) {
  const std::vector<SpectralRange> ranges = {{.kernel = 0, .vector = 4, .rows = 2, .columns = 2}};
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<std::vector<float>> cases = {
      {1, 2, 3, 4, 0, 0},       // the vector is zeros
      {1, 0, 3, 0, 0, 1},       // rows orthogonal to the vector
      {1e-45f, 0, 0, 0, 1, 0},  // sigma is 0 as a float32
      {1, 2, 3, infinity, 0.6f, 0.8f},
  };
  for (const std::vector<float>& before : cases) {
    std::vector<float> values = before;
    NormalizeKernels(ranges, absl::MakeSpan(values));
    EXPECT_EQ(values, before);
  }
}

TEST(Spectral, KernelAndVectorLieTogether) {
  const Graph graph =
      GraphOf(absl::StrCat("layers { conv2d { filters: 30 kernel_size: 3 } } ",
                           "layers { spectral_normalization { layer { conv2d { filters: 40 "
                           "kernel_size: 2 } } } } layers { flatten {} } layers { dense { units: 3 } }"));
  const std::vector<SpectralRange> ranges = SpectralRangesOf(graph, 0, graph.space_size());
  ASSERT_EQ(ranges.size(), 1u);
  for (const char* optimizer : {"sgd {}", "lamb {}"}) {
    const v1::Optimizer rule = FromText<v1::Optimizer>(optimizer);
    int holding = 0;
    for (const v1::PartitionRange& p : CutPartitions(graph, rule, 1024)) {
      const int64_t begin = static_cast<int64_t>(p.begin()), end = static_cast<int64_t>(p.end());
      EXPECT_TRUE(CheckWholeVariables(graph, rule, begin, end).ok());
      const std::vector<SpectralRange> own = SpectralRangesOf(graph, begin, end);
      holding += static_cast<int>(own.size());
      if (!own.empty()) {
        EXPECT_EQ(own[0].kernel + begin, ranges[0].kernel);
      }
    }
    EXPECT_EQ(holding, 1) << optimizer;
    const absl::Status cut = CheckWholeVariables(graph, rule, 0, ranges[0].kernel + 16);
    EXPECT_THAT(std::string(cut.message()), HasSubstr("which must be whole")) << optimizer;
  }
}

TEST(Spectral, RefusesWhatItWouldNotBeTheSameWith) {
  const std::string job =
      "model { layers { input { shape: 4 } } layers { name: 's' spectral_normalization { layer { dense { units: 3 } } "
      "} "
      "} layers { dense { units: 2 activation: SOFTMAX } } } data { path: '/d' format: CSV } "
      "loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY } optimizer { sgd {} } batch_size: 8 ";
  const auto error = [&](const std::string& more) {
    return std::string(CheckJob(FromText<v1::JobSpec>(job + more)).status().message());
  };
  EXPECT_EQ(error(""), "");
  EXPECT_EQ(error("strategy: PARAMETER_SERVER staleness_bound: 0"), "");
  EXPECT_EQ(error("strategy: MIRRORED"), "");
  EXPECT_THAT(error("strategy: PARAMETER_SERVER"),
              HasSubstr("strategy: layer \"s\" has a spectral normalization, which "
                        "divides a kernel once a step"));
  EXPECT_THAT(error("strategy: CENTRAL_STORAGE"), HasSubstr("which needs a kernel before the layer's turn"));
  EXPECT_THAT(error("accumulate_steps: 2"), HasSubstr("accumulate_steps: layer \"s\" has a spectral normalization"));
  EXPECT_THAT(error("compute_dtype: FLOAT16"), HasSubstr("in steps that are left out, too; use FLOAT32 or BFLOAT16"));
  v1::JobSpec frozen = FromText<v1::JobSpec>(job);
  frozen.mutable_model()->mutable_layers(1)->set_trainable(false);
  EXPECT_THAT(std::string(CheckJob(frozen).status().message()), HasSubstr("call it with training: false"));
  frozen.mutable_model()->mutable_layers(1)->set_training(false);
  EXPECT_TRUE(CheckJob(frozen).ok()) << CheckJob(frozen).status();
}

TEST(Spectral, RefusesWhatItCannotWrap) {
  struct Case {
    const char *layers, *error;
  };
  for (const Case& c : std::vector<Case>{
           {"layers { spectral_normalization {} }", "it has neither a kernel nor embeddings"},
           {"layers { spectral_normalization { layer { flatten {} } } }", "it has neither a kernel nor embeddings"},
           {"layers { spectral_normalization { layer { dense { units: 2 } } power_iterations: 0 } }",
            "power_iterations 0 is not within 1 .. 100"},
           {"layers { spectral_normalization { layer { trainable: false dense { units: 2 } } } }",
            "give them to the spectral_normalization itself"},
           {"layers { spectral_normalization { layer { dense { units: 2 activity_regularizer { l1: 0.1 } } } } }",
            "its activity_regularizer is not supported there"},
           {"layers { spectral_normalization { layer { embedding { input_dim: 4 output_dim: 2 mask_zero: true } } } }",
            "mask_zero"},
           {"layers { name: 's' spectral_normalization { layer { dense { units: 3 } } } } layers { shares: 's' }",
            "whose kernel two calls would divide twice a step"},
       }) {
    const absl::StatusOr<Graph> graph =
        Graph::Build(FromText<v1::Model>(absl::StrCat("layers { input { shape: [5, 3] } } ", c.layers)));
    EXPECT_THAT(graph.ok() ? "accepted" : std::string(graph.status().message()), HasSubstr(c.error)) << c.layers;
  }
}

}  // namespace
}  // namespace cairn
