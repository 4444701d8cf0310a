// Goal: the shift of FLOAT16 gradients is that of the examples of one sum, whatever the strategy; averages lie where
// the model has them, and do not count when a gradient is checked for finite numbers.
#include "common/model/gradient_layout.h"

#include <gtest/gtest.h>

#include "common/model/loss_scale.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

const char kNormalized[] = R"(
  layers { input { shape: 20 } } layers { dense { units: 20 } } layers { batch_normalization {} } layers { dense { units: 3 } }
  layers { batch_normalization {} })";

int ShiftOf(v1::JobSpec spec) {
  *spec.mutable_model() = FromText<v1::Model>(kNormalized);
  return GradientLayoutOf(Graph::Build(spec.model()).value(), spec).shift;
}

TEST(GradientLayout, ShiftOfTheExamplesOfASum) {
  v1::JobSpec spec;
  spec.set_replicas(4);
  for (const auto& [batch, shift] :
       std::vector<std::pair<int, int>>{{1, 0}, {2, 1}, {3, 2}, {4, 2}, {5, 3}, {1800, 11}, {2048, 11}, {2049, 12}}) {
    spec.set_batch_size(batch);
    EXPECT_EQ(ShiftOf(spec), shift) << batch;
  }
  spec.set_batch_size(64);
  spec.set_accumulate_steps(3);
  EXPECT_EQ(ShiftOf(spec), 8);
  spec.set_strategy(v1::PARAMETER_SERVER);
  EXPECT_EQ(ShiftOf(spec), 6) << "a push of 48";
  spec.set_local_sync(2);
  EXPECT_EQ(ShiftOf(spec), 7);
  spec.set_local_sync(0);
  spec.set_staleness_bound(0);
  EXPECT_EQ(ShiftOf(spec), 8) << "synchronous";
}

TEST(GradientLayout, AveragesOfTheModel) {
  v1::JobSpec spec;
  *spec.mutable_model() = FromText<v1::Model>(kNormalized);
  spec.set_compute_dtype(v1::FLOAT16);
  const Graph graph = Graph::Build(spec.model()).value();
  const GradientLayout layout = GradientLayoutOf(graph, spec);
  std::vector<bool> average(static_cast<size_t>(graph.space_size()));
  for (const auto& [begin, end] : layout.averages) {
    EXPECT_EQ(begin % 16, 0);
    EXPECT_EQ(end % 16, 0);
    for (int64_t i = begin; i < end; ++i) average[static_cast<size_t>(i)] = true;
  }
  EXPECT_EQ(layout.averages.size(), 2u) << "mean and variance side by side are one";
  for (const Variable& v : graph.variables()) {
    for (int64_t i = v.offset; i < v.offset + v.size; ++i) {
      EXPECT_EQ(average[static_cast<size_t>(i)], v.kind == VariableKind::kMovingAverage) << v.name;
    }
  }
  // Each number on its own, in each partition.
  for (int64_t cut = 16; cut < graph.space_size(); cut += 48) {
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, cut}, {cut, graph.space_size()}}) {
      const std::vector<ClipScope> scopes = StepScopesOf(graph, spec, begin, end);
      ASSERT_EQ(scopes.size(), 1u);
      EXPECT_EQ(scopes[0].numbers, static_cast<uint64_t>(end - begin)) << "every partition takes part";
      for (const Variable& v : graph.variables()) {
        for (int64_t i = std::max(v.offset, begin); i < std::min(v.offset + v.size, end); ++i) {
          std::vector<float> gradient(static_cast<size_t>(end - begin));
          gradient[static_cast<size_t>(i - begin)] = INFINITY;
          const bool told = !MeasureNorm(scopes[0], gradient, 1).squares.finite();
          EXPECT_EQ(told, v.kind != VariableKind::kMovingAverage) << v.name << " " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace cairn
