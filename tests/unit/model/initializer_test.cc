// Goal: initial values have the distribution that keras.initializers documents (bounds, mean, variance), and are one
// function of (seed, place) however a range is cut.
#include "common/model/initializer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "absl/strings/match.h"
#include "common/base/random.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

Graph BuildText(const std::string& text) { return Graph::Build(FromText<v1::Model>(text)).value(); }

std::vector<float> All(const Graph& graph, uint64_t seed) {
  std::vector<float> values(graph.space_size());
  InitializeRange(graph, seed, 0, absl::MakeSpan(values));
  return values;
}

struct Moments {
  double mean = 0, stddev = 0, largest = 0;
};

Moments MomentsOf(absl::Span<const float> values) {
  Moments m;
  for (float v : values) m.mean += v / static_cast<double>(values.size());
  for (float v : values) {
    m.stddev += (v - m.mean) * (v - m.mean) / static_cast<double>(values.size());
    m.largest = std::max(m.largest, std::abs(static_cast<double>(v)));
  }
  m.stddev = std::sqrt(m.stddev);
  return m;
}

struct Law {
  std::string text;  // of the initializer
  double stddev;
  double bound;  // no number is farther from the mean; some come near it
  double mean = 0;
};

TEST(Initializer, LawsOfKeras) {
  constexpr double kIn = 300, kOut = 500;  // 150,000 draws
  const double cut =
      2 / 0.87962566103423978;  // a truncated normal ends at two of its own stddevs before the correction
  const std::vector<Law> laws = {
      {"kind: GLOROT_UNIFORM", std::sqrt(2 / (kIn + kOut)), std::sqrt(6 / (kIn + kOut))},
      {"kind: GLOROT_NORMAL", std::sqrt(2 / (kIn + kOut)), cut * std::sqrt(2 / (kIn + kOut))},
      {"kind: HE_UNIFORM", std::sqrt(2 / kIn), std::sqrt(6 / kIn)},
      {"kind: HE_NORMAL", std::sqrt(2 / kIn), cut * std::sqrt(2 / kIn)},
      {"kind: LECUN_UNIFORM", std::sqrt(1 / kIn), std::sqrt(3 / kIn)},
      {"kind: LECUN_NORMAL", std::sqrt(1 / kIn), cut * std::sqrt(1 / kIn)},
      {"kind: RANDOM_UNIFORM", 0.1 / std::sqrt(12.0), 0.05},
      {"kind: RANDOM_UNIFORM minval: -1 maxval: 3", 4 / std::sqrt(12.0), 2, 1},
      {"kind: RANDOM_UNIFORM minval: 0.5 maxval: 0.75", 0.25 / std::sqrt(12.0), 0.125, 0.625},
      {"kind: RANDOM_NORMAL", 0.05, 0.05 * 6},
      {"kind: RANDOM_NORMAL mean: -2 stddev: 0.5", 0.5, 0.5 * 6, -2},
      {"kind: TRUNCATED_NORMAL", 0.05 * 0.87962566103423978, 0.1},
      {"kind: TRUNCATED_NORMAL mean: 3 stddev: 2", 2 * 0.87962566103423978, 4, 3},
      {"kind: VARIANCE_SCALING", std::sqrt(1 / kIn), cut * std::sqrt(1 / kIn)},
      {"kind: VARIANCE_SCALING scale: 0.1 mode: FAN_OUT", std::sqrt(0.1 / kOut), cut * std::sqrt(0.1 / kOut)},
      {"kind: VARIANCE_SCALING scale: 3 mode: FAN_AVG distribution: DISTRIBUTION_UNIFORM", std::sqrt(6 / (kIn + kOut)),
       std::sqrt(18 / (kIn + kOut))},
      {"kind: VARIANCE_SCALING scale: 2 distribution: DISTRIBUTION_UNTRUNCATED_NORMAL", std::sqrt(2 / kIn),
       6 * std::sqrt(2 / kIn)},
  };
  for (const Law& law : laws) {
    SCOPED_TRACE(law.text);
    const bool open = absl::StrContains(law.text, "RANDOM_NORMAL") || absl::StrContains(law.text, "UNTRUNCATED");
    const Graph graph = BuildText(
        "layers { input { shape: 300 } } layers { dense { units: 500 use_bias: false "
        "kernel_initializer { " +
        law.text + " } } }");
    std::vector<float> values = All(graph, 7);
    values.resize(150000);
    for (float& v : values) v -= static_cast<float>(law.mean);
    const Moments m = MomentsOf(values);
    EXPECT_NEAR(m.mean, 0, 5 * law.stddev / std::sqrt(150000.0));
    EXPECT_NEAR(m.stddev / law.stddev, 1, 0.01);
    EXPECT_LE(m.largest, law.bound * (1 + 1e-6));
    EXPECT_GT(m.largest, law.bound * (open ? 0.6 : 0.98));
  }
}

// Keras' other names are VarianceScaling with arguments: they give the same numbers.
TEST(Initializer, VarianceScalingIsWhatTheOthersAreMadeOf) {
  const auto values = [](const std::string& initializer) {
    return All(BuildText("layers { input { shape: [6, 6, 3] } } layers { conv2d { filters: 5 kernel_size: [3, 2] "
                         "kernel_initializer { " +
                         initializer + " } } }"),
               3);
  };
  const std::string scaling = "kind: VARIANCE_SCALING ", uniform = " distribution: DISTRIBUTION_UNIFORM";
  EXPECT_EQ(values(scaling + "mode: FAN_AVG" + uniform), values("kind: GLOROT_UNIFORM"));
  EXPECT_EQ(values(scaling + "mode: FAN_AVG"), values("kind: GLOROT_NORMAL"));
  EXPECT_EQ(values(scaling + "scale: 2" + uniform), values("kind: HE_UNIFORM"));
  EXPECT_EQ(values(scaling + "scale: 2 mode: FAN_IN"), values("kind: HE_NORMAL"));
  EXPECT_EQ(values(scaling + uniform), values("kind: LECUN_UNIFORM"));
  EXPECT_EQ(values("kind: VARIANCE_SCALING"), values("kind: LECUN_NORMAL"));
  EXPECT_NE(values(scaling + "mode: FAN_OUT"), values("kind: LECUN_NORMAL"));
  EXPECT_EQ(values("kind: RANDOM_UNIFORM minval: -0.05 maxval: 0.05"), values("kind: RANDOM_UNIFORM"));
}

// [minval, maxval), also where float32 has few numbers between the two.
TEST(Initializer, UniformNumbersAreWithinTheirBounds) {
  const Graph graph = BuildText(
      "layers { input { shape: 300 } } layers { dense { units: 500 use_bias: false "
      "kernel_initializer { kind: RANDOM_UNIFORM minval: 16777216 maxval: 16777220 } } }");
  std::map<float, int> counts;
  for (const float v : All(graph, 7)) counts[v] += v != 0;
  counts.erase(0.0f);
  ASSERT_EQ(counts.size(), 2u);
  EXPECT_EQ(counts.begin()->first, 16777216.0f);
  EXPECT_EQ(counts.rbegin()->first, 16777218.0f);
}

// The normal draws themselves, not only their variance: shares within one and two standard deviations.
TEST(Initializer, NormalHasTheShapeOfABell) {
  const Graph graph = BuildText(
      "layers { input { shape: 300 } } layers { dense { units: 500 use_bias: false "
      "kernel_initializer { kind: RANDOM_NORMAL } } }");
  const std::vector<float> values = All(graph, 8);
  double within_one = 0, within_two = 0;
  for (int i = 0; i < 150000; ++i) {
    within_one += std::abs(values[i]) < 0.05f;
    within_two += std::abs(values[i]) < 0.10f;
  }
  EXPECT_NEAR(within_one / 150000, 0.6827, 0.005);
  EXPECT_NEAR(within_two / 150000, 0.9545, 0.003);
}

TEST(Initializer, ConstantsAndTheGapsBetweenVariables) {
  const Graph graph = BuildText(R"(
    layers { input { shape: 3 } }
    layers { dense { units: 3 kernel_initializer { kind: ONES } bias_initializer { kind: CONSTANT value: 0.25 } } }
    layers { batch_normalization {} })");
  const std::vector<float> values = All(graph, 1);
  ASSERT_EQ(values.size(), 16u * 6);
  const auto expect = [&](int variable, int size, float value) {
    for (int i = 0; i < 16; ++i) EXPECT_EQ(values[variable * 16 + i], i < size ? value : 0.0f) << variable << " " << i;
  };
  expect(0, 9, 1.0f);
  expect(1, 3, 0.25f);
  expect(2, 3, 1.0f);  // gamma
  expect(3, 3, 0.0f);
  expect(4, 3, 0.0f);
  expect(5, 3, 1.0f);  // moving_variance
}

TEST(Initializer, TheSameNumbersHoweverTheRangeIsCut) {
  const Graph graph = BuildText(R"(
    layers { input { shape: [9, 9, 2] } }
    layers { conv2d { filters: 5 kernel_size: 3 kernel_initializer { kind: HE_NORMAL } } }
    layers { conv2d { filters: 3 kernel_size: 3 bias_initializer { kind: RANDOM_NORMAL } } }
    layers { flatten {} }
    layers { dense { units: 7 kernel_initializer { kind: TRUNCATED_NORMAL } } })");
  const std::vector<float> whole = All(graph, 42);
  for (uint32_t trial = 0; trial < 200; ++trial) {
    SCOPED_TRACE(trial);
    int64_t begin = 0;
    for (uint32_t cut = 0; begin < graph.space_size(); ++cut) {
      const uint32_t bits = Philox({trial, 5}, {cut, 0, 0, 0})[0];
      const int64_t size = std::min<int64_t>(1 + bits % 97, graph.space_size() - begin);
      std::vector<float> part(size, -1.0f);
      InitializeRange(graph, 42, begin, absl::MakeSpan(part));
      for (int64_t i = 0; i < size; ++i) ASSERT_EQ(part[i], whole[begin + i]) << begin + i;
      begin += size;
    }
  }
}

TEST(Initializer, SeedsAndVariablesDiffer) {
  const Graph graph = BuildText(R"(
    layers { input { shape: 16 } }
    layers { dense { units: 16 use_bias: false } }
    layers { dense { units: 16 use_bias: false } })");
  const std::vector<float> one = All(graph, 1), again = All(graph, 1), other = All(graph, 2);
  EXPECT_EQ(one, again);
  int same_seed = 0, same_variable = 0;
  for (int i = 0; i < 256; ++i) {
    same_seed += one[i] == other[i];
    same_variable += one[i] == one[256 + i];
  }
  EXPECT_LE(same_seed, 2);
  EXPECT_LE(same_variable, 2);
}

}  // namespace
}  // namespace cairn
