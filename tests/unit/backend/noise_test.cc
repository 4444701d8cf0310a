// Goal: the numbers that layers draw have the mean and the deviation of their definition, depend on the layer's seed,
// and are shared along the axes that share them.
#include "worker/backend/noise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

constexpr StepInfo kInfo{.seed = 3, .step = 4, .replica = 5};
constexpr size_t kCount = 200000;

struct Drawn {
  std::vector<float> factors = std::vector<float>(kCount), offsets = std::vector<float>(kCount);
  explicit Drawn(const LayerNoise& noise) {
    FillNoise(kInfo, 7, noise, absl::MakeSpan(factors), absl::MakeSpan(offsets));
  }
};

double Mean(const std::vector<float>& x) {
  double sum = 0;
  for (const float v : x) sum += v;
  return sum / static_cast<double>(x.size());
}
double Deviation(const std::vector<float>& x) {
  const double mean = Mean(x);
  double sum = 0;
  for (const float v : x) sum += (v - mean) * (v - mean);
  return std::sqrt(sum / static_cast<double>(x.size()));
}

// The fourth central moment of normal numbers is 3 deviation^4, and neighbours are not correlated.
TEST(Noise, GaussianIsNormal) {
  const std::vector<float> z = Drawn({NoiseKind::kGaussianNoise, 0.5f, 0, {}}).offsets;
  EXPECT_NEAR(Mean(z), 0, 0.01);
  EXPECT_NEAR(Deviation(z), 0.5, 0.01);
  double fourth = 0, neighbours = 0;
  for (size_t i = 0; i < kCount; ++i) {
    fourth += std::pow(z[i] / 0.5, 4) / kCount;
    neighbours += z[i] * z[(i + 1) % kCount] / 0.25 / kCount;
  }
  EXPECT_NEAR(fourth, 3, 0.1);
  EXPECT_NEAR(neighbours, 0, 0.02);
}

TEST(Noise, GaussianDropoutMultipliesByItsDeviation) {
  const std::vector<float> factors = Drawn({NoiseKind::kGaussianDropout, 0.2f, 0, {}}).factors;
  EXPECT_NEAR(Mean(factors), 1, 0.01);
  EXPECT_NEAR(Deviation(factors), std::sqrt(0.2 / 0.8), 0.01);
}

// Numbers of mean 0 and variance 1 keep both (Klambauer et al. 2017).
TEST(Noise, AlphaDropoutKeepsMeanAndVariance) {
  const Drawn drawn({NoiseKind::kAlphaDropout, 0.3f, 0, {}});
  const std::vector<float> x = Drawn({NoiseKind::kGaussianNoise, 1.0f, 99, {}}).offsets;
  std::vector<float> y(kCount);
  int dropped = 0;
  for (size_t i = 0; i < kCount; ++i) {
    y[i] = x[i] * drawn.factors[i] + drawn.offsets[i];
    dropped += drawn.factors[i] == 0;
  }
  EXPECT_NEAR(dropped / static_cast<double>(kCount), 0.3, 0.01);
  EXPECT_NEAR(Mean(y), 0, 0.02);
  EXPECT_NEAR(Deviation(y), 1, 0.02);
}

TEST(Noise, DependsOnTheLayersSeed) {
  for (const NoiseKind kind :
       {NoiseKind::kDropout, NoiseKind::kAlphaDropout, NoiseKind::kGaussianNoise, NoiseKind::kGaussianDropout}) {
    const auto of = [&](uint64_t seed) {
      const Drawn drawn({kind, 0.5f, seed, {}});
      return std::pair(drawn.factors, drawn.offsets);
    };
    EXPECT_EQ(of(1), of(1));
    EXPECT_NE(of(0), of(1));
    EXPECT_NE(of(1), of(uint64_t{1} << 40));
  }
}

TEST(Noise, IsDrawnOnceForAxesThatShareIt) {
  const auto shape_of = [](const std::string& layer) {
    const auto graph =
        Graph::Build(FromText<v1::Model>("layers { input { shape: [4, 5, 6] } } layers { " + layer + " }"));
    EXPECT_TRUE(graph.ok()) << graph.status();
    const auto noise = NoiseOf(graph->output());
    return noise.has_value() ? noise->shape : Shape{};
  };
  EXPECT_EQ(shape_of("dropout { rate: 0.5 }"), (Shape{4, 5, 6}));
  EXPECT_EQ(shape_of("dropout { rate: 0.5 noise_shape: [1, -1, 6] }"), (Shape{1, 5, 6}));
  EXPECT_EQ(shape_of("spatial_dropout2d { rate: 0.5 }"), (Shape{1, 1, 6}));
  EXPECT_EQ(shape_of("dropout { rate: 0 }"), Shape{});
}

}  // namespace
}  // namespace cairn
