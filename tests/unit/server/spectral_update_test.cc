// Goal: an update of a kernel with spectral normalization begins at the kernel that the workers computed with, and its
// vector is kept; the penalty's gradient is that of this kernel; the values before the update stay as they were; two
// ps make the same of the same gradients.
#include <gtest/gtest.h>

#include "server/core/partition_config.h"
#include "tests/unit/model/model_text.h"
#include "tests/unit/server/server_test_util.h"

namespace cairn {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'000'000);

// A kernel [8, 2], a vector of 2, and 6 numbers of another variable; the values are 0, 0.25, 0.5, ...
PartitionConfig Config() {
  PartitionConfig config = TestConfig(UpdateMode::kSynchronous, 1);
  DenseConfig& dense = Dense(config);
  dense.segments = {{.begin = 0, .end = 16}, {.begin = 16, .end = 18, .frozen = true}, {.begin = 18, .end = 24}};
  dense.spectral = {{.kernel = 0, .vector = 16, .rows = 8, .columns = 2, .power_iterations = 2}};
  return config;
}

std::vector<float> ValuesOf(const PartitionCore& core) {
  const absl::Span<const float> values = Dense(core.state()).values().floats();
  return {values.begin(), values.end()};
}

TEST(SpectralUpdate, BeginsAtTheDividedKernel) {
  const PartitionConfig config = Config();
  PartitionCore core(config, PartitionState::Initial(config));
  for (uint64_t sequence = 1; sequence <= 4; ++sequence) {
    std::vector<float> expected = ValuesOf(core);
    const std::vector<float> before = expected;
    NormalizeKernels(Dense(config).spectral, absl::MakeSpan(expected));
    ASSERT_NE(expected, before);
    core.Step(FrameEvent{11, PushFrame(config, 0, 1, sequence, 8)}, kNow);
    core.Step(PersistedEvent{sequence}, kNow);
    for (int i = 0; i < 24; ++i) expected[i] -= i == 16 || i == 17 ? 0 : 0.5f * 2;  // the rate, and 8 over 4 examples
    EXPECT_EQ(ValuesOf(core), expected) << sequence;
    const absl::Span<const float> previous = Dense(core.state()).previous().floats();
    EXPECT_EQ(std::vector<float>(previous.begin(), previous.end()), before) << sequence;
  }
}

TEST(SpectralUpdate, ThePenaltyIsThatOfTheDividedKernel) {
  PartitionConfig config = Config();
  PenaltyRange penalty;
  penalty.begin = 0;
  penalty.end = 16;
  penalty.l2 = 0.5;
  Dense(config).penalties = {penalty};
  PartitionCore core(config, PartitionState::Initial(config));
  std::vector<float> expected = ValuesOf(core);
  NormalizeKernels(Dense(config).spectral, absl::MakeSpan(expected));
  core.Step(FrameEvent{11, PushFrame(config, 0, 1, 1, 0)}, kNow);
  core.Step(PersistedEvent{1}, kNow);
  const std::vector<float> values = ValuesOf(core);
  for (int i = 0; i < 16; ++i) EXPECT_NEAR(values[i], expected[i] - 0.5f * expected[i], 1e-6) << i;
}

// The partition of a model has what its layers say.
TEST(SpectralUpdate, IsInThePartitionOfAModel) {
  v1::JobSpec spec = FromText<v1::JobSpec>(
      "model { layers { input { shape: 4 } } layers { spectral_normalization { layer { dense { units: 3 } } "
      "power_iterations: 2 } } layers { dense { units: 2 } } } optimizer { sgd {} } loss { kind: MEAN_SQUARED_ERROR } "
      "replicas: 1");
  const auto graph = std::make_shared<const Graph>(Graph::Build(spec.model()).value());
  v1::PartitionRange range;
  range.set_end(static_cast<uint64_t>(graph->space_size()));
  const auto config = MakePartitionConfig(spec, graph, range, JobId(1), Generation(2));
  ASSERT_TRUE(config.ok()) << config.status();
  const std::vector<SpectralRange>& ranges = Dense(*config).spectral;
  ASSERT_EQ(ranges.size(), 1u);
  EXPECT_EQ(ranges[0].rows, 4);
  EXPECT_EQ(ranges[0].columns, 3);
  EXPECT_EQ(ranges[0].power_iterations, 2);
}

}  // namespace
}  // namespace cairn
