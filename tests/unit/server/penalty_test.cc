// Goal: the gradient of a regularizer is added once to what a partition accepts, before clipping, and to nothing else;
// and which partitions have which regularizers.
#include <gtest/gtest.h>

#include <cmath>

#include "server/core/partition_config.h"
#include "tests/unit/model/model_text.h"
#include "tests/unit/server/server_test_util.h"

namespace cairn {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'000'000);

// The values are 0, 0.25, 0.5, ...; each push is 8 over 4 examples.
class PenaltyTest : public testing::Test {
 protected:
  void Start(UpdateMode mode, std::vector<PenaltyRange> penalties) {
    config_ = TestConfig(mode, 2);
    Dense(config_).penalties = std::move(penalties);
    core_ = std::make_unique<PartitionCore>(config_, PartitionState::Initial(config_));
  }
  PartitionEffects Send(Frame frame) { return core_->Step(FrameEvent{11, std::move(frame)}, kNow); }
  PartitionEffects Push(uint32_t replica, uint64_t sequence) {
    return Send(PushFrame(config_, replica, 1, sequence, 8));
  }

  PartitionConfig config_;
  std::unique_ptr<PartitionCore> core_;
};

TEST_F(PenaltyTest, IsInTheSumOfAStepOnce) {
  Start(UpdateMode::kSynchronous, {{2, 4, 0.5, 0.25}});
  Push(0, 1);
  Push(0, 1);  // a repetition
  const PartitionEffects effects = Push(1, 1);
  ASSERT_EQ(effects.persists.size(), 1u);
  const absl::Span<const float> logged = effects.persists[0].gradient.floats();
  EXPECT_EQ(logged[1], 16);
  EXPECT_EQ(logged[2], 16 + 8 * (0.5f + 0.5f * 0.5f)) << "8 examples: 8 times l1 * sign + 2 * l2 * w";
  EXPECT_EQ(logged[3], 16 + 8 * (0.5f + 0.5f * 0.75f));
  EXPECT_EQ(logged[4], 16);
}

TEST_F(PenaltyTest, IsClippedWithTheRest) {
  Start(UpdateMode::kSynchronous, {{2, 4, 0.5, 0.25}});
  config_.clip_norm = 1;
  config_.clip_scopes = {{1, 2, 2, {{2, 4}}}};
  core_ = std::make_unique<PartitionCore>(config_, PartitionState::Initial(config_));
  Push(0, 1);
  const PartitionEffects effects = Push(1, 1);
  ASSERT_EQ(effects.persists.size(), 1u);
  const absl::Span<const float> logged = effects.persists[0].gradient.floats();
  const double a = 2 + 0.75, b = 2 + 0.875;  // the mean gradient with the penalty's
  EXPECT_FLOAT_EQ(logged[2], static_cast<float>(8 * a / std::sqrt(a * a + b * b)));
  EXPECT_FLOAT_EQ(logged[3], static_cast<float>(8 * b / std::sqrt(a * a + b * b)));
}

TEST_F(PenaltyTest, AnAsynchronousPushGetsThatOfTheValuesThatAreHere) {
  Start(UpdateMode::kAsynchronous, {{2, 3, 0, 0.25}});
  for (uint64_t sequence = 1; sequence <= 2; ++sequence) {
    const float w = Dense(core_->state()).values().floats()[2];
    const Buffer gradient = Filled(config_, 8);
    const PartitionEffects effects = Send(PushFrame(config_, 1, 1, sequence, gradient));
    ASSERT_EQ(effects.persists.size(), 1u);
    EXPECT_EQ(effects.persists[0].gradient.floats()[2], 8 + 4 * (0.5f * w));
    EXPECT_EQ(gradient.floats()[2], 8) << "shared: not written to";
    core_->Step(PersistedEvent{sequence}, kNow);
    EXPECT_EQ(Dense(core_->state()).values().floats()[2], w - 0.5f * ((8 + 4 * (0.5f * w)) / 4));
  }
  const PartitionEffects none = Send(PushFrame(config_, 1, 1, 3, Buffer(), 0));
  ASSERT_EQ(none.persists.size(), 1u);
  EXPECT_TRUE(none.persists[0].gradient.empty()) << "no examples, no update";
}

TEST_F(PenaltyTest, WhichPartitionsHaveIt) {
  const auto penalties = [](const std::string& more) {
    const auto spec = FromText<v1::JobSpec>(
        "model { layers { input { shape: 7 } } layers { dense { units: 5 kernel_regularizer { l2: 0.5 } } } }"
        "optimizer { sgd { } " +
        more + "} replicas: 2" + (more.empty() ? "" : " strategy: PARAMETER_SERVER"));
    v1::PartitionRange range;
    range.set_begin(16);
    range.set_end(48);
    auto graph = std::make_shared<const Graph>(Graph::Build(spec.model()).value());
    const auto config = MakePartitionConfig(spec, graph, range, JobId(1), Generation(1));
    return Dense(config.value()).penalties;
  };
  ASSERT_EQ(penalties("").size(), 1u);
  EXPECT_EQ(penalties("")[0].begin, 0);
  EXPECT_EQ(penalties("")[0].end, 35 - 16);
  EXPECT_EQ(penalties("clipvalue: 1").size(), 1u);
  EXPECT_TRUE(penalties("clipnorm: 1").empty()) << "the worker clips, and adds it before";
}

}  // namespace
}  // namespace cairn
