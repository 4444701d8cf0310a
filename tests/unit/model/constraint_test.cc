// Goal: constraints are Keras' formulas, written out here in float64 over every axis; which variables have them; what
// is refused; and a cut of the parameter space leaves variables with a norm whole.
#include "common/model/constraint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "common/base/limits.h"
#include "common/model/activity.h"
#include "common/model/job_check.h"
#include "common/model/partition_cut.h"
#include "common/model/penalty.h"
#include "common/model/step_plan.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<Graph> Built(const std::string& text) { return Graph::Build(FromText<v1::Model>(text)); }

// A Dense, or a Conv2D, with the constraint of its kernel.
std::string Dense(const std::string& constraint) {
  return "layers { input { shape: 6 } } layers { dense { units: 5 kernel_constraint { " + constraint + " } } }";
}
std::string Conv(const std::string& constraint) {
  return "layers { input { shape: [8, 8, 2] } } layers { conv2d { filters: 3 kernel_size: [2, 3] kernel_constraint { " +
         constraint + " } } }";
}

std::vector<float> Values(int64_t n) {
  std::mt19937 random(11);
  std::uniform_real_distribution<float> uniform(-2, 2);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = uniform(random);
  return values;
}

// The norm of each number of a variable: over all numbers that differ from it along the axes alone.
std::vector<double> NormsOf(const Variable& v, const std::vector<int>& axes, const std::vector<float>& values) {
  std::map<std::vector<int64_t>, double> squares;
  std::vector<std::vector<int64_t>> keys;
  for (int64_t i = 0; i < v.size; ++i) {
    std::vector<int64_t> place(v.shape.size());
    int64_t rest = i;
    for (size_t d = v.shape.size(); d-- > 0; rest /= v.shape[d]) place[d] = rest % v.shape[d];
    for (const int axis : axes) place[static_cast<size_t>(axis)] = 0;
    const double w = values[static_cast<size_t>(v.offset + i)];
    squares[place] += w * w;
    keys.push_back(place);
  }
  std::vector<double> norms;
  for (const auto& key : keys) norms.push_back(std::sqrt(squares[key]));
  return norms;
}

void Compare(const std::string& model, const std::vector<int>& axes, double (*expected)(double w, double norm)) {
  const absl::StatusOr<Graph> graph = Built(model);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const std::vector<float> before = Values(graph->space_size());
  std::vector<float> after = before;
  ApplyConstraints(ConstraintRangesOf(*graph, 0, graph->space_size()), absl::MakeSpan(after));
  const Variable& kernel = graph->variables()[0];
  const std::vector<double> norms = NormsOf(kernel, axes, before);
  for (int64_t i = 0; i < kernel.size; ++i) {
    const auto at = static_cast<size_t>(kernel.offset + i);
    EXPECT_NEAR(after[at], expected(before[at], norms[static_cast<size_t>(i)]), 1e-6) << model << " " << i;
  }
  for (auto at = static_cast<size_t>(kernel.offset + kernel.size); at < before.size(); ++at) {
    EXPECT_EQ(after[at], before[at]) << "the bias has none";
  }
}

TEST(Constraint, AreKerasFormulas) {
  Compare(Dense("kind: NON_NEG"), {}, [](double w, double) { return std::max(w, 0.0); });
  Compare(Dense("kind: MAX_NORM"), {0}, [](double w, double n) { return w * std::min(n, 2.0) / (1e-7 + n); });
  Compare(Dense("kind: MAX_NORM max_value: 1.5 axis: 1"), {1},
          [](double w, double n) { return w * std::min(n, 1.5) / (1e-7 + n); });
  Compare(Dense("kind: UNIT_NORM axis: -1"), {1}, [](double w, double n) { return w / (1e-7 + n); });
  Compare(Dense("kind: UNIT_NORM axis: [0, 1]"), {0, 1}, [](double w, double n) { return w / (1e-7 + n); });
  Compare(Dense("kind: MIN_MAX_NORM min_value: 0.5 max_value: 3 rate: 0.25"), {0},
          [](double w, double n) { return w * (0.25 * std::clamp(n, 0.5, 3.0) + 0.75 * n) / (1e-7 + n); });
  Compare(Conv("kind: MAX_NORM max_value: 1 axis: [0, 1, 2]"), {0, 1, 2},
          [](double w, double n) { return w * std::min(n, 1.0) / (1e-7 + n); });
  Compare(Conv("kind: UNIT_NORM axis: [2, 0]"), {0, 2}, [](double w, double n) { return w / (1e-7 + n); });
  Compare(Conv("kind: MIN_MAX_NORM min_value: 5 max_value: 6 axis: 3"), {3},
          [](double w, double n) { return w * std::clamp(n, 5.0, 6.0) / (1e-7 + n); });
}

// Keras 2's loops for one plane: pads of the numbers behind the centre around the one before it.
TEST(Constraint, RadialIsConstantAlongSquares) {
  for (const int side : {2, 3, 4, 5}) {
    const absl::StatusOr<Graph> graph = Built(
        "layers { input { shape: [8, 8, 2] } } layers { conv2d { filters: 3 kernel_size: " + std::to_string(side) +
        " kernel_constraint { kind: RADIAL } } }");
    ASSERT_TRUE(graph.ok()) << graph.status();
    std::vector<float> values = Values(graph->space_size());
    const std::vector<float> before = values;
    ApplyConstraints(ConstraintRangesOf(*graph, 0, graph->space_size()), absl::MakeSpan(values));
    const auto at = [&](int y, int x, int plane) { return static_cast<size_t>((y * side + x) * 6 + plane); };
    for (int plane = 0; plane < 6; ++plane) {
      const int start = side / 2;
      std::vector<std::vector<float>> square = {{before[at(start - 1, start - 1, plane)]}};
      if (side % 2 == 0) square.assign(2, std::vector<float>(2, square[0][0]));
      for (int i = side % 2 == 0 ? 1 : 0; i < start; ++i) {
        const float pad = before[at(start + i, start + i, plane)];
        std::vector<std::vector<float>> larger(square.size() + 2, std::vector<float>(square.size() + 2, pad));
        for (size_t y = 0; y < square.size(); ++y)
          std::copy(square[y].begin(), square[y].end(), larger[y + 1].begin() + 1);
        square = larger;
      }
      ASSERT_EQ(square.size(), static_cast<size_t>(side));
      for (int y = 0; y < side; ++y) {
        for (int x = 0; x < side; ++x)
          EXPECT_EQ(values[at(y, x, plane)], square[static_cast<size_t>(y)][static_cast<size_t>(x)]);
      }
    }
  }
}

TEST(Constraint, OfNothingAndOfNaN) {
  const absl::StatusOr<Graph> graph = Built(Dense("kind: MAX_NORM"));
  ASSERT_TRUE(graph.ok()) << graph.status();
  const std::vector<ConstraintRange> ranges = ConstraintRangesOf(*graph, 0, graph->space_size());
  std::vector<float> values(static_cast<size_t>(graph->space_size()), 0.0f);
  values[1] = NAN;
  ApplyConstraints(ranges, absl::MakeSpan(values));
  EXPECT_EQ(values[0], 0) << "a norm of 0 divides by epsilon";
  EXPECT_TRUE(std::isnan(values[1]));
  EXPECT_TRUE(std::isnan(values[1 + 5])) << "of the same column";
}

TEST(Constraint, EveryLayersFieldsReachTheirVariables) {
  const absl::StatusOr<Graph> graph = Built(R"(
    layers { input { shape: [8, 8, 4] } }
    layers { conv2d { filters: 4 kernel_size: 3 kernel_constraint { kind: NON_NEG } bias_constraint { kind: NON_NEG } } }
    layers { depthwise_conv2d { kernel_size: 3 depthwise_constraint { kind: NON_NEG } } }
    layers { separable_conv2d { filters: 4 kernel_size: 3 depthwise_constraint { kind: NON_NEG } pointwise_constraint { kind: NON_NEG } bias_constraint { kind: NON_NEG } } }
    layers { conv2d_transpose { filters: 4 kernel_size: 2 bias_constraint { kind: NON_NEG } } }
    layers { batch_normalization { gamma_constraint { kind: NON_NEG } } }
    layers { layer_normalization { beta_constraint { kind: NON_NEG } } }
    layers { prelu { alpha_constraint { kind: NON_NEG } } }
    layers { reshape { target_shape: [-1, 4] } }
    layers { einsum_dense { equation: 'abc,cd->abd' output_shape: [-1, 4] bias_axes: 'd' kernel_constraint { kind: NON_NEG } } }
    layers { time_distributed { layer { name: "d" dense { units: 3 kernel_constraint { kind: NON_NEG } } } } }
    layers { bidirectional { layer { lstm { units: 2 return_sequences: true recurrent_constraint { kind: NON_NEG } } } backward_layer { lstm { units: 2 go_backwards: true return_sequences: true bias_constraint { kind: NON_NEG } } } } }
    layers { gru { units: 2 kernel_constraint { kind: NON_NEG } } }
    layers { name: "off" trainable: false dense { units: 2 kernel_constraint { kind: NON_NEG } } })");
  ASSERT_TRUE(graph.ok()) << graph.status();
  std::string seen;
  for (const ConstraintRange& range : ConstraintRangesOf(*graph, 0, graph->space_size())) {
    for (const Variable& v : graph->variables()) {
      if (v.offset != range.begin) continue;
      seen += v.name + "\n";
      EXPECT_EQ(range.end - range.begin, v.size);
    }
  }
  EXPECT_EQ(seen,
            "conv2d/kernel\nconv2d/bias\ndepthwise_conv2d/kernel\nseparable_conv2d/depthwise_kernel\n"
            "separable_conv2d/bias\nseparable_conv2d/pointwise_kernel\nconv2d_transpose/bias\n"
            "batch_normalization/gamma\nlayer_normalization/beta\np_re_lu/alpha\neinsum_dense/kernel\n"
            "time_distributed/d/kernel\nbidirectional/forward_lstm/lstm_cell/recurrent_kernel\n"
            "bidirectional/backward_lstm/lstm_cell/bias\ngru/gru_cell/kernel\n")
      << "frozen ones keep their values";
}

TEST(Constraint, WhatIsRefused) {
  const std::pair<std::string, std::string> cases[] = {
      {Dense(""), "layer \"dense\": kernel_constraint.kind 0 is not known; use MAX_NORM"},
      {Dense("kind: RADIAL"), "kernel_constraint.kind RADIAL is for kernels [side, side, inputs, outputs] of a side"},
      {Dense("kind: RADIAL axis: 0"), "kernel_constraint.axis is only for kind MAX_NORM"},
      {Dense("kind: NON_NEG axis: 0"), "kernel_constraint.axis is only for kind MAX_NORM, UNIT_NORM or MIN_MAX_NORM"},
      {Dense("kind: UNIT_NORM max_value: 2"), "kernel_constraint.max_value is only for kind MAX_NORM or MIN_MAX_NORM"},
      {Dense("kind: MAX_NORM min_value: 2"), "kernel_constraint.min_value is only for kind MIN_MAX_NORM"},
      {Dense("kind: MAX_NORM rate: 0.5"), "kernel_constraint.rate is only for kind MIN_MAX_NORM"},
      {Dense("kind: MAX_NORM max_value: -1"), "kernel_constraint.max_value -1 is not a number from 0"},
      {Dense("kind: MAX_NORM max_value: nan"), "kernel_constraint.max_value nan is not a number from 0"},
      {Dense("kind: MIN_MAX_NORM min_value: 2"), "kernel_constraint.min_value 2 is above max_value 1"},
      {Dense("kind: MIN_MAX_NORM rate: 1.5"), "kernel_constraint.rate 1.5 is outside [0, 1]"},
      {Dense("kind: MAX_NORM axis: 2"),
       "kernel_constraint.axis 2 is not an axis of dense/kernel [6,5]; use one within"},
      {Dense("kind: MAX_NORM axis: -3"), "kernel_constraint.axis -3 is not an axis"},
      {Dense("kind: MAX_NORM axis: [0, -2]"), "kernel_constraint.axis 0 twice"},
      {"layers { input { shape: 6 } } layers { dense { units: 5 use_bias: false bias_constraint { kind: NON_NEG } } }",
       "bias_constraint: the layer has no such variable"},
      {"layers { input { shape: [4, 6] } } layers { time_distributed { layer { dense { units: 5 kernel_constraint { "
       "kind: "
       "MAX_NORM axis: 7 } } } } }",
       "layer.kernel_constraint.axis 7 is not an axis"},
      {"layers { input { shape: [4, 6] } } layers { dense { units: 1 kernel_regularizer { orthogonal_factor: 0.1 "
       "orthogonal_columns: true } } }",
       "kernel_regularizer.orthogonal_factor: dense/kernel [6,1] has one column"},
      {"layers { input { shape: 6 } } layers { dense { units: 5 kernel_regularizer { orthogonal_factor: 0.1 l2: 1 } } "
       "}",
       "kernel_regularizer: orthogonal_factor does not go with l1 and l2"},
      {"layers { input { shape: 6 } } layers { dense { units: 5 bias_regularizer { orthogonal_factor: 0.1 } } }",
       "bias_regularizer.orthogonal_factor: dense/bias [5] is not a matrix"},
      {"layers { input { shape: 6 } } layers { dense { units: 5 kernel_regularizer { orthogonal_factor: -1 } } }",
       "kernel_regularizer.orthogonal_factor -1 is not a number above 0"},
      {"layers { input { shape: 8192 } } layers { dense { units: 64 kernel_regularizer { orthogonal_factor: 1 } } }",
       "is too large"},
      {"layers { input { shape: 6 } } layers { dense { units: 5 activity_regularizer { orthogonal_factor: 0.1 } } }",
       "activity_regularizer.orthogonal_factor is for matrices"},
      {"layers { input { shape: 6 } } layers { dense { units: 5 activity_regularizer { l1: -1 } } }",
       "activity_regularizer.l1 -1 is not a number from 0"},
      {"layers { input { shape: 6 } } layers { dense { units: 5 activity_regularizer {} } }",
       "activity_regularizer: neither l1 nor l2 is above 0"},
      {"layers { input { shape: [4, 6] } } layers { time_distributed { layer { dense { units: 5 activity_regularizer { "
       "l2: 1 } } } } }",
       "layer: its activity_regularizer is not supported there"},
      {"layers { input { shape: 6 } } layers { activity_regularization { l2: nan } }", "l2 nan is not a number from 0"},
  };
  for (const auto& [model, error] : cases) {
    const absl::StatusOr<Graph> graph = Built(model);
    ASSERT_FALSE(graph.ok()) << model;
    EXPECT_THAT(std::string(graph.status().message()), HasSubstr(error)) << model;
  }
}

// ---- the cut ----

TEST(Constraint, VariablesWithANormAreNotCut) {
  const absl::StatusOr<Graph> graph = Built(R"(
    layers { input { shape: 40 } }
    layers { name: "a" dense { units: 40 kernel_constraint { kind: NON_NEG } } }
    layers { name: "b" dense { units: 30 kernel_constraint { kind: MAX_NORM } bias_constraint { kind: UNIT_NORM } } }
    layers { name: "c" dense { units: 30 kernel_regularizer { orthogonal_factor: 0.1 } } })");
  ASSERT_TRUE(graph.ok()) << graph.status();
  for (const int64_t bytes : {64, 128, 1024, 4096, 1 << 20}) {
    const std::vector<v1::PartitionRange> ranges = CutPartitions(*graph, {}, bytes);
    uint64_t end = 0;
    for (size_t i = 0; i < ranges.size(); ++i) {
      EXPECT_EQ(ranges[i].partition(), i);
      EXPECT_EQ(ranges[i].begin(), end);
      EXPECT_EQ(ranges[i].end() % kSpaceAlignment, 0u);
      EXPECT_LE((ranges[i].end() - ranges[i].begin()) * 4, std::max<uint64_t>(bytes, 40 * 30 * 4));
      end = ranges[i].end();
      EXPECT_TRUE(CheckWholeVariables(*graph, {}, ranges[i].begin(), ranges[i].end()).ok());
    }
    EXPECT_EQ(end, static_cast<uint64_t>(graph->space_size()));
    for (const Variable& v : graph->variables()) {
      int parts = 0;
      for (const v1::PartitionRange& r : ranges) {
        parts += static_cast<int64_t>(r.begin())<v.offset + v.size&& static_cast<int64_t>(r.end())> v.offset;
      }
      const bool whole = v.name == "b/kernel" || v.name == "b/bias" || v.name == "c/kernel";
      if (whole) {
        EXPECT_EQ(parts, 1) << v.name << " " << bytes;
      } else if (bytes == 64) {
        EXPECT_EQ(parts, (v.size + 15) / 16) << v.name << ": it is cut as ever";
      }
    }
  }
  const absl::Status cut = CheckWholeVariables(*graph, {}, 1600 + 48, 1600 + 48 + 64);
  EXPECT_THAT(std::string(cut.message()), HasSubstr("cuts b/kernel [40,30], which must be whole"));
}

// Lamb updates every trainable variable as a whole, Muon its matrices.
TEST(Constraint, VariablesThatAnOptimizerUpdatesAsAWholeAreNotCut) {
  const absl::StatusOr<Graph> graph = Built(R"(
    layers { input { shape: 40 } }
    layers { name: "a" dense { units: 40 } }
    layers { name: "b" trainable: false dense { units: 40 } }
    layers { name: "c" batch_normalization {} }
    layers { name: "d" dense { units: 40 } })");
  ASSERT_TRUE(graph.ok()) << graph.status();
  v1::Optimizer lamb, muon;
  lamb.mutable_lamb();
  muon.mutable_muon()->add_exclude_layers("d/");
  for (const v1::Optimizer& optimizer : {lamb, muon}) {
    const std::vector<v1::PartitionRange> ranges = CutPartitions(*graph, optimizer, 64);
    for (const Variable& v : graph->variables()) {
      int parts = 0;
      for (const v1::PartitionRange& r : ranges) {
        parts += static_cast<int64_t>(r.begin())<v.offset + v.size&& static_cast<int64_t>(r.end())> v.offset;
      }
      const bool whole = optimizer.has_lamb() ? v.kind == VariableKind::kTrainable : v.name == "a/kernel";
      EXPECT_EQ(parts, whole ? 1 : (v.size + 15) / 16) << v.name;
    }
    for (const v1::PartitionRange& r : ranges) {
      EXPECT_TRUE(CheckWholeVariables(*graph, optimizer, r.begin(), r.end()).ok());
    }
    EXPECT_THAT(std::string(CheckWholeVariables(*graph, optimizer, 0, 64).message()), HasSubstr("cuts a/kernel"));
  }
}

TEST(Constraint, WithoutNormsTheCutIsAsEver) {
  const absl::StatusOr<Graph> graph = Built(Dense("kind: NON_NEG"));
  for (const int64_t bytes : {64, 128}) {
    const auto one = CutPartitions(*graph, {}, bytes), other = CutPartitions(graph->space_size(), bytes);
    ASSERT_EQ(one.size(), other.size());
    for (size_t i = 0; i < one.size(); ++i) EXPECT_EQ(one[i].SerializeAsString(), other[i].SerializeAsString());
  }
}

TEST(Constraint, ACutOfNonNegChangesNothing) {
  const absl::StatusOr<Graph> graph = Built(Dense("kind: NON_NEG"));
  std::vector<float> whole = Values(graph->space_size()), cut = whole;
  ApplyConstraints(ConstraintRangesOf(*graph, 0, graph->space_size()), absl::MakeSpan(whole));
  for (int64_t begin = 0; begin < graph->space_size(); begin += 16) {
    ApplyConstraints(ConstraintRangesOf(*graph, begin, begin + 16),
                     absl::MakeSpan(cut).subspan(static_cast<size_t>(begin), 16));
  }
  EXPECT_EQ(cut, whole);
}

TEST(Constraint, AVariableThatNoPartitionHoldsIsRefused) {
  const absl::StatusOr<Graph> graph =
      Built("layers { input { shape: 8192 } } layers { dense { units: 4096 kernel_constraint { kind: MAX_NORM } } }");
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_THAT(std::string(CheckWholeVariables(*graph, {}).message()),
              HasSubstr("dense/kernel [8192,4096] has a constraint with a norm"));
}

// A part of the space has the ranges that the whole has there, whatever is cut.
TEST(Constraint, APartHasTheRangesOfTheWhole) {
  const absl::StatusOr<Graph> graph = Built(R"(
    layers { input { shape: 9 } }
    layers { name: "a" dense { units: 9 kernel_constraint { kind: NON_NEG } kernel_regularizer { l2: 1 } } }
    layers { name: "b" shares: "a" }
    layers { name: "c" dense { units: 7 kernel_constraint { kind: MAX_NORM } bias_constraint { kind: NON_NEG } } }
    layers { name: "d" batch_normalization {} }
    layers { name: "e" dense { units: 5 kernel_regularizer { orthogonal_factor: 0.1 } bias_regularizer { l1: 1 } } })");
  ASSERT_TRUE(graph.ok()) << graph.status();
  const std::vector<ConstraintRange> all = ConstraintRangesOf(*graph, 0, graph->space_size());
  const std::vector<PenaltyRange> penalties = PenaltyRangesOf(*graph, 0, graph->space_size());
  EXPECT_EQ(all.size(), 3u);
  EXPECT_EQ(penalties.size(), 3u);
  for (int64_t begin = 0; begin < graph->space_size(); begin += 16) {
    for (int64_t end = begin + 16; end <= graph->space_size(); end += 16) {
      std::vector<std::pair<int64_t, int64_t>> expected, found;
      const auto expect = [&](int64_t from, int64_t to, bool whole) {
        const int64_t first = std::max(from, begin), last = std::min(to, end);
        if (first < last && (!whole || last - first == to - from)) expected.emplace_back(first - begin, last - begin);
      };
      for (const ConstraintRange& r : all) expect(r.begin, r.end, r.constraint.kind() != v1::Constraint::NON_NEG);
      for (const PenaltyRange& r : penalties) expect(r.begin, r.end, r.orthogonal != 0);
      for (const ConstraintRange& r : ConstraintRangesOf(*graph, begin, end)) found.emplace_back(r.begin, r.end);
      for (const PenaltyRange& r : PenaltyRangesOf(*graph, begin, end)) found.emplace_back(r.begin, r.end);
      EXPECT_EQ(found, expected) << begin << " .. " << end;
      const bool cuts = CheckWholeVariables(*graph, {}, begin, end).ok();
      const auto whole = [&](int64_t from, int64_t to) {
        return to <= begin || from >= end || (from >= begin && to <= end);
      };
      EXPECT_EQ(cuts, whole(all[1].begin, all[1].end) && whole(penalties[1].begin, penalties[1].end))
          << begin << " " << end;
    }
  }
}

// ---- penalties of activities ----

v1::Model Chain(int layers) {
  std::string text = "layers { input { shape: 1 } }";
  for (int i = 0; i < layers; ++i) text += "layers { dense { units: 1 activity_regularizer { l2: 1 } } }";
  return FromText<v1::Model>(text);
}

TEST(ActivityRegularizers, AreLayersOfADeepModel) {
  const int most = (kLayersMax - 1) / 2;
  const absl::StatusOr<Graph> deep = Graph::Build(Chain(most));
  ASSERT_TRUE(deep.ok()) << deep.status();
  const auto graph = std::make_shared<const Graph>(*deep);
  const std::shared_ptr<const Graph> with = WithActivityLayers(graph);
  ASSERT_EQ(with->nodes().size(), static_cast<size_t>(1 + 2 * most));
  EXPECT_EQ(with->space_size(), graph->space_size());
  for (const Node& node : with->nodes()) {
    EXPECT_TRUE(ActivityRegularizerOf(node).none()) << node.name << ": it would count twice";
  }
  EXPECT_EQ(with->output().kind, LayerKind::kActivityRegularization);
  EXPECT_EQ(WithActivityLayers(with), with);
  EXPECT_THAT(std::string(Graph::Build(Chain(most + 1)).status().message()),
              HasSubstr(absl::StrCat("model.layers: ", 3 + 2 * most, " layers, each activity_regularizer counted")));
}

TEST(ActivityRegularizers, OfSharedLayersAndOfOutputs) {
  const absl::StatusOr<Graph> given = Built(R"(
    layers { name: "x" input { shape: 3 } }
    layers { name: "a" dense { units: 3 activity_regularizer { l1: 1 } } }
    layers { name: "b" shares: "a" inputs: "a" }
    layers { name: "c" inputs: "a" dense { units: 2 } }
    outputs: ["b", "c", "a"])");
  ASSERT_TRUE(given.ok()) << given.status();
  const auto with = WithActivityLayers(std::make_shared<const Graph>(*given));
  ASSERT_EQ(with->outputs().size(), 3u);
  EXPECT_EQ(with->nodes()[with->outputs()[0]].name, "activity_regularizer_2");
  EXPECT_EQ(with->nodes()[with->outputs()[1]].name, "c");
  EXPECT_EQ(with->nodes()[with->outputs()[2]].name, "activity_regularizer_1");
  EXPECT_EQ(with->nodes()[with->nodes()[with->outputs()[0]].inputs[0]].name, "b");
}

}  // namespace
}  // namespace cairn
