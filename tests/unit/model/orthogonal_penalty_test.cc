// Goal: the orthogonal regularizer's penalty is Keras' formula, written out here, and its gradient the finite
// difference of it; both for rows and for columns.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "common/model/penalty.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

Graph Built(bool columns) {
  return Graph::Build(
             FromText<v1::Model>("layers { input { shape: 4 } } layers { dense { units: 5 kernel_regularizer { "
                                 "orthogonal_factor: 0.5 orthogonal_columns: " +
                                 std::string(columns ? "true" : "false") + " } bias_regularizer { l2: 0.25 } } }"))
      .value();
}

// Of a matrix of 4 rows and 5 columns.
double Expected(const std::vector<double>& w, bool columns) {
  const int vectors = columns ? 5 : 4, size = columns ? 4 : 5;
  const auto at = [&](int i, int k) { return columns ? w[k * 5 + i] : w[i * 5 + k]; };
  double sum = 0;
  for (int i = 0; i < vectors; ++i) {
    for (int j = 0; j < vectors; ++j) {
      double dot = 0, a = 0, b = 0;
      for (int k = 0; k < size; ++k) {
        dot += at(i, k) * at(j, k);
        a += at(i, k) * at(i, k);
        b += at(j, k) * at(j, k);
      }
      if (i != j) sum += std::fabs(dot / std::sqrt(a) / std::sqrt(b));
    }
  }
  return 0.5 * 0.5 * sum / (vectors * (vectors - 1.0) / 2.0);
}

class OrthogonalPenalty : public testing::TestWithParam<bool> {};

TEST_P(OrthogonalPenalty, IsKerasFormulaWithItsGradient) {
  const Graph graph = Built(GetParam());
  std::mt19937 random(3);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(static_cast<size_t>(graph.space_size()), 0.0f);
  std::vector<double> w;
  for (int i = 0; i < 20; ++i) w.push_back(values[i] = uniform(random));
  const std::vector<PenaltyRange> ranges = PenaltyRangesOf(graph, 0, graph.space_size());
  ASSERT_EQ(ranges.size(), 2u) << "kernel and bias";
  EXPECT_NEAR(PenaltyOf(ranges[0], values), Expected(w, GetParam()), 1e-12);
  std::vector<float> gradient(values.size(), 1.0f);
  AddPenaltyGradient(ranges, 12, values, absl::MakeSpan(gradient));
  for (int i = 0; i < 20; ++i) {
    std::vector<double> up = w, down = w;
    up[i] += 1e-6;
    down[i] -= 1e-6;
    const double slope = (Expected(up, GetParam()) - Expected(down, GetParam())) / 2e-6;
    EXPECT_NEAR(gradient[i], 1 + 12 * slope, 1e-5) << i;
  }
}

TEST_P(OrthogonalPenalty, ARowOfZerosIsNoFault) {
  const Graph graph = Built(GetParam());
  std::vector<float> values(static_cast<size_t>(graph.space_size()), 0.0f), gradient = values;
  const std::vector<PenaltyRange> ranges = PenaltyRangesOf(graph, 0, graph.space_size());
  EXPECT_EQ(PenaltyOf(ranges[0], values), 0);
  AddPenaltyGradient(ranges, 1, values, absl::MakeSpan(gradient));
  for (const float g : gradient) EXPECT_EQ(g, 0);
}

INSTANTIATE_TEST_SUITE_P(RowsAndColumns, OrthogonalPenalty, testing::Bool());

}  // namespace
}  // namespace cairn
