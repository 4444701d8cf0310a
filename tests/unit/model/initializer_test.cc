// Goal: initial values have the law that keras.initializers documents (bounds, mean, variance), and are one function of
// (seed, place) however a range is cut.
#include "common/model/initializer.h"

#include <gtest/gtest.h>

#include <cmath>

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
  std::string kind;
  double stddev;
  double bound;  // no number is larger; some come near it
};

TEST(Initializer, LawsOfKeras) {
  constexpr double kIn = 300, kOut = 500;  // 150,000 draws
  const double cut =
      2 / 0.87962566103423978;  // a truncated normal ends at two of its own stddevs before the correction
  const std::vector<Law> laws = {
      {"GLOROT_UNIFORM", std::sqrt(2 / (kIn + kOut)), std::sqrt(6 / (kIn + kOut))},
      {"GLOROT_NORMAL", std::sqrt(2 / (kIn + kOut)), cut * std::sqrt(2 / (kIn + kOut))},
      {"HE_UNIFORM", std::sqrt(2 / kIn), std::sqrt(6 / kIn)},
      {"HE_NORMAL", std::sqrt(2 / kIn), cut * std::sqrt(2 / kIn)},
      {"LECUN_UNIFORM", std::sqrt(1 / kIn), std::sqrt(3 / kIn)},
      {"LECUN_NORMAL", std::sqrt(1 / kIn), cut * std::sqrt(1 / kIn)},
      {"RANDOM_UNIFORM", 0.1 / std::sqrt(12.0), 0.05},
      {"RANDOM_NORMAL", 0.05, 0.05 * 6},
      {"TRUNCATED_NORMAL", 0.05 * 0.87962566103423978, 0.1},
  };
  for (const Law& law : laws) {
    SCOPED_TRACE(law.kind);
    const Graph graph = BuildText(
        "layers { input { shape: 300 } } layers { dense { units: 500 use_bias: false "
        "kernel_initializer { kind: " +
        law.kind + " } } }");
    const std::vector<float> values = All(graph, 7);
    const Moments m = MomentsOf(absl::MakeSpan(values).first(150000));
    EXPECT_NEAR(m.mean, 0, 5 * law.stddev / std::sqrt(150000.0));
    EXPECT_NEAR(m.stddev / law.stddev, 1, 0.01);
    EXPECT_LE(m.largest, law.bound * (1 + 1e-6));
    EXPECT_GT(m.largest, law.bound * (law.kind == "RANDOM_NORMAL" ? 0.6 : 0.98));
  }
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
