// Goal: a partition's configuration says which rule updates each of its numbers, wherever the space is cut, and starts
// from the values that the initializer gives for the whole space.
#include "server/core/partition_config.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "common/base/limits.h"
#include "common/model/initializer.h"
#include "server/core/dense_partition.h"

namespace cairn {
namespace {

v1::JobSpec Spec(const std::string& more) {
  v1::JobSpec spec;
  constexpr char kBase[] =
      "model {"
      "  layers { input { shape: [7] } } layers { dense { units: 5 } } layers { batch_normalization {} }"
      "  layers { trainable: false dense { units: 3 } } layers { trainable: false batch_normalization {} }"
      "  layers { dense { units: 3 } } }"
      "optimizer { sgd { momentum: 0.5 } } replicas: 3 seed: 9 ";
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kBase + more, &spec));
  return spec;
}

std::shared_ptr<const Graph> GraphOf(const v1::JobSpec& spec) {
  auto graph = Graph::Build(spec.model());
  EXPECT_TRUE(graph.ok()) << graph.status();
  return std::make_shared<const Graph>(*std::move(graph));
}

v1::PartitionRange Range(uint64_t begin, uint64_t end) {
  v1::PartitionRange r;
  r.set_partition(4);
  r.set_begin(begin);
  r.set_end(end);
  return r;
}

TEST(PartitionConfigTest, SegmentsAndInitialValuesAgreeForEveryCut) {
  const v1::JobSpec spec = Spec("");
  const auto graph = GraphOf(spec);
  const int64_t space = graph->space_size();
  std::vector<float> whole(space);
  InitializeRange(*graph, spec.seed(), 0, absl::MakeSpan(whole));
  for (int64_t begin = 0; begin < space; begin += kSpaceAlignment) {
    for (int64_t end = begin + kSpaceAlignment; end <= space; end += kSpaceAlignment) {
      const auto config = MakePartitionConfig(spec, graph, Range(begin, end), JobId(1), Generation(2));
      ASSERT_TRUE(config.ok()) << config.status();
      std::vector<int> kind(end - begin, 0);  // 0 padding, 1 trainable, 2 moving average, 3 frozen
      for (const Segment& s : DenseKind::Of(*config).segments) {
        for (int64_t i = s.begin; i < s.end; ++i) kind[i] = s.frozen ? 3 : s.moving_average ? 2 : 1;
        EXPECT_EQ(s.momentum, s.moving_average ? 0.99f : 0.0f);
      }
      std::vector<int> expected(end - begin, 0);
      for (const Variable& v : graph->variables()) {
        for (int64_t i = std::max(begin, v.offset); i < std::min(end, v.offset + v.size); ++i) {
          expected[i - begin] = static_cast<int>(v.kind) + 1;
        }
      }
      EXPECT_EQ(kind, expected);
      const PartitionState state = PartitionState::Initial(*config);
      EXPECT_EQ(std::vector<float>(DenseContents::Of(state).values().floats().begin(),
                                   DenseContents::Of(state).values().floats().end()),
                std::vector<float>(whole.begin() + begin, whole.begin() + end));
      EXPECT_EQ(DenseContents::Of(state).slots().size(), 1u);
      EXPECT_EQ(state.sequences.size(), 3u);
    }
  }
}

TEST(PartitionConfigTest, TheStrategyDecidesTheMode) {
  const auto mode = [](const std::string& more) {
    const v1::JobSpec spec = Spec(more);
    const auto c = MakePartitionConfig(spec, GraphOf(spec), Range(0, 16), JobId(1), Generation(2));
    EXPECT_TRUE(c.ok()) << c.status();
    return std::pair(c->mode, c->staleness_bound);
  };
  EXPECT_EQ(mode(""), std::pair(UpdateMode::kSynchronous, uint64_t{0}));
  EXPECT_EQ(mode("strategy: MIRRORED"), std::pair(UpdateMode::kSynchronous, uint64_t{0}));
  EXPECT_EQ(mode("strategy: PARAMETER_SERVER"), std::pair(UpdateMode::kAsynchronous, uint64_t{0}));
  EXPECT_EQ(mode("strategy: PARAMETER_SERVER staleness_bound: 0"), std::pair(UpdateMode::kSynchronous, uint64_t{0}));
  EXPECT_EQ(mode("strategy: PARAMETER_SERVER staleness_bound: 4"),
            std::pair(UpdateMode::kBoundedStaleness, uint64_t{4}));
}

TEST(PartitionConfigTest, WhatDoesNotFitIsRefused) {
  const v1::JobSpec spec = Spec("");
  const auto graph = GraphOf(spec);
  const auto code = [&](const v1::JobSpec& s, const v1::PartitionRange& r) {
    return MakePartitionConfig(s, graph, r, JobId(1), Generation(2)).status().code();
  };
  const uint64_t space = graph->space_size();
  for (const auto& [begin, end] : std::vector<std::pair<uint64_t, uint64_t>>{
           {0, 0}, {16, 0}, {1, 16}, {0, 15}, {0, space + 16}, {space, space + 16}, {0, ~uint64_t{15}}}) {
    EXPECT_EQ(code(spec, Range(begin, end)), absl::StatusCode::kInvalidArgument) << begin << " " << end;
  }
  v1::JobSpec bad = spec;
  bad.set_replicas(0);
  EXPECT_EQ(code(bad, Range(0, 16)), absl::StatusCode::kInvalidArgument);
  bad = spec;
  bad.clear_optimizer();
  EXPECT_EQ(code(bad, Range(0, 16)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(spec, Range(0, space)), absl::StatusCode::kOk);
}

}  // namespace
}  // namespace cairn
