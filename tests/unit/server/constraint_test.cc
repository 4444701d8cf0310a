// Goal: constraints are applied to the values after an update, in every mode, and to nothing else: not to the first
// values, nor to the gradient that is logged. A range that cuts a variable with a norm is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "server/core/partition_config.h"
#include "tests/unit/model/model_text.h"
#include "tests/unit/server/server_test_util.h"

namespace cairn {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'000'000);

// A kernel [8, 2] with MAX_NORM 1 over its columns, then 8 numbers without; the values are 0, 0.25, 0.5, ...
PartitionConfig Config(UpdateMode mode) {
  PartitionConfig config = TestConfig(mode, 1);
  ConstraintRange range;
  range.end = 16;
  range.shape = {8, 2};
  range.constraint.set_kind(v1::Constraint::MAX_NORM);
  range.constraint.set_max_value(1);
  range.constraint.add_axis(0);
  Dense(config).constraints = {range};
  return config;
}

class ConstraintTest : public testing::TestWithParam<UpdateMode> {};

TEST_P(ConstraintTest, HoldsForTheValuesThatAnUpdateLeaves) {
  const PartitionConfig config = Config(GetParam());
  PartitionCore core(config, PartitionState::Initial(config));
  std::vector<float> w;
  for (const float v : Dense(core.state()).values().floats()) w.push_back(v);
  EXPECT_EQ(w[15], 15 * 0.25f) << "the first values stay as they were";
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) {
    const PartitionEffects effects = core.Step(FrameEvent{11, PushFrame(config, 0, 1, sequence, 8)}, kNow);
    ASSERT_EQ(effects.persists.size(), 1u);
    EXPECT_EQ(effects.persists[0].gradient.floats()[3], 8);
    core.Step(PersistedEvent{sequence}, kNow);
    for (int i = 0; i < 24; ++i) w[i] -= 0.5f * 2;  // the learning rate, and 8 over 4 examples
    for (int column = 0; column < 2; ++column) {
      double squares = 0;
      for (int row = 0; row < 8; ++row) squares += double{w[row * 2 + column]} * w[row * 2 + column];
      const double n = std::sqrt(squares);
      for (int row = 0; row < 8; ++row) {
        w[row * 2 + column] = static_cast<float>(w[row * 2 + column] * std::min(n, 1.0) / (1e-7 + n));
      }
    }
    const absl::Span<const float> values = Dense(core.state()).values().floats();
    for (int i = 0; i < 24; ++i) EXPECT_NEAR(values[i], w[i], 1e-5) << i << " after update " << sequence;
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, ConstraintTest, testing::Values(UpdateMode::kSynchronous, UpdateMode::kAsynchronous));

// Checks a column's values: n is its norm, at most 1.
void ExpectWithin(absl::Span<const float> values) {
  for (int column = 0; column < 2; ++column) {
    double squares = 0;
    for (int row = 0; row < 8; ++row) squares += double{values[row * 2 + column]} * values[row * 2 + column];
    EXPECT_LE(std::sqrt(squares), 1 + 1e-6);
  }
}

// As in Keras, the average is one of values before their constraint, and the constraint is applied to the values that
// the average replaces.
TEST_P(ConstraintTest, HoldsForAMovingAverageThatTakesTheValuesPlace) {
  PartitionConfig config = Config(GetParam());
  Dense(config).constraints[0].constraint.set_kind(v1::Constraint::UNIT_NORM);
  v1::Optimizer optimizer;
  optimizer.mutable_sgd();
  optimizer.mutable_ema()->set_momentum(0.5f);
  Dense(config).optimizer = OptimizerRule::From(optimizer);
  PartitionCore core(config, PartitionState::Initial(config));
  std::vector<float> w, average;
  for (const float v : Dense(core.state()).values().floats()) w.push_back(v);
  average = w;
  const auto constrain = [](std::vector<float>& v) {
    for (int column = 0; column < 2; ++column) {
      double squares = 0;
      for (int row = 0; row < 8; ++row) squares += double{v[row * 2 + column]} * v[row * 2 + column];
      const double n = std::sqrt(squares);
      for (int row = 0; row < 8; ++row) v[row * 2 + column] = static_cast<float>(v[row * 2 + column] / (1e-7 + n));
    }
  };
  for (uint64_t sequence = 1; sequence <= 4; ++sequence) {
    Frame push = PushFrame(config, 0, 1, sequence, sequence % 2 == 0 ? 8.0f : -8.0f);
    push.ema_overwrite = sequence == 3;
    core.Step(FrameEvent{11, push}, kNow);
    core.Step(PersistedEvent{sequence}, kNow);
    for (int i = 0; i < 24; ++i) {
      w[i] += sequence % 2 == 0 ? -1 : 1;
      average[i] = sequence == 1 ? w[i] : 0.5f * average[i] + 0.5f * w[i];
    }
    if (sequence == 3) w = average;
    constrain(w);
    const absl::Span<const float> values = Dense(core.state()).values().floats();
    for (int i = 0; i < 24; ++i) EXPECT_NEAR(values[i], w[i], 1e-5) << i << " after update " << sequence;
    ExpectWithin(values);
  }
}

// A killed ps recovers from its log the same bits: constraints are applied during replay too.
TEST_P(ConstraintTest, HoldsForWhatIsReplayedFromTheLog) {
  PartitionConfig config = Config(GetParam());
  v1::Optimizer optimizer;
  optimizer.mutable_adam();
  optimizer.mutable_ema()->set_momentum(0.5f);
  Dense(config).optimizer = OptimizerRule::From(optimizer);
  const auto store = NewMemoryKvStore();
  Persistence persistence(*store);
  PartitionCore core(config, PartitionState::Initial(config));
  for (uint64_t sequence = 1; sequence <= 5; ++sequence) {
    Frame push = PushFrame(config, 0, 1, sequence, static_cast<float>(sequence) - 2.5f);
    push.ema_overwrite = sequence == 4;
    ASSERT_TRUE(RunEvent(core, persistence, FrameEvent{11, push}, kNow).ok());
    const auto copy = CopyOf(*store);
    const PartitionState recovered = Persistence(*copy).Recover(config).value();
    EXPECT_EQ(recovered.version, sequence);
    EXPECT_TRUE(SameBits(Dense(recovered).values(), Dense(core.state()).values())) << sequence;
    for (size_t s = 0; s < Dense(recovered).slots().size(); ++s) {
      EXPECT_TRUE(SameBits(Dense(recovered).slots()[s], Dense(core.state()).slots()[s])) << sequence << " " << s;
    }
    ExpectWithin(Dense(recovered).values().floats());
  }
}

TEST(ConstraintConfig, ARangeThatCutsAVariableWithANormIsRefused) {
  const auto spec = FromText<v1::JobSpec>(
      "model { layers { input { shape: 7 } } layers { dense { units: 5 kernel_constraint { kind: UNIT_NORM } } } }"
      "optimizer { sgd { } } replicas: 1");
  auto graph = std::make_shared<const Graph>(Graph::Build(spec.model()).value());
  v1::PartitionRange range;
  range.set_end(16);
  const auto cut = MakePartitionConfig(spec, graph, range, JobId(1), Generation(1));
  EXPECT_THAT(std::string(cut.status().message()),
              testing::HasSubstr("job 1 partition 0: range [0,16) cuts dense/kernel [7,5], which must be whole"));
  range.set_end(48);
  const auto whole = MakePartitionConfig(spec, graph, range, JobId(1), Generation(1));
  ASSERT_TRUE(whole.ok()) << whole.status();
  ASSERT_EQ(Dense(*whole).constraints.size(), 1u);
  EXPECT_EQ(Dense(*whole).constraints[0].end, 35);
}

}  // namespace
}  // namespace cairn
