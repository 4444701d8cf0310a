// Goal: the rule of the loss scale, its bounds and its options; whether numbers are finite is found for every cut of
// the parameter space.
#include "common/model/loss_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "common/model/limits.h"

namespace cairn {
namespace {

v1::JobSpec Spec(float initial = 0, int32_t growth = 0) {
  v1::JobSpec spec;
  spec.set_compute_dtype(v1::FLOAT16);
  if (initial != 0) spec.mutable_loss_scaling()->set_initial_scale(initial);
  if (growth != 0) spec.mutable_loss_scaling()->set_dynamic_growth_steps(growth);
  return spec;
}

TEST(LossScale, DefaultsOfKeras) {
  v1::JobSpec spec = Spec();
  ASSERT_TRUE(ResolveLossScaling(&spec).ok());
  EXPECT_EQ(spec.loss_scaling().initial_scale(), 32768);
  EXPECT_EQ(spec.loss_scaling().dynamic_growth_steps(), 2000);
  const LossScaleRule rule = LossScaleRuleOf(spec).value();
  EXPECT_EQ(rule.initial, 32768);
  EXPECT_EQ(rule.growth_steps, 2000u);
  spec.set_compute_dtype(v1::BFLOAT16);
  EXPECT_FALSE(LossScaleRuleOf(spec).has_value());
}

TEST(LossScale, ExactErrors) {
  const std::vector<std::pair<v1::JobSpec, std::string>> cases = {
      {Spec(3), "loss_scaling.initial_scale: 3 is not a power of two from 1 to 16777216; use one such as 32768"},
      {Spec(0.5f), "loss_scaling.initial_scale: 0.5 is not a power of two from 1 to 16777216; use one such as 32768"},
      {Spec(1 << 25),
       "loss_scaling.initial_scale: 3.35544e+07 is not a power of two from 1 to 16777216; use one such as 32768"},
      {Spec(NAN), "loss_scaling.initial_scale: nan is not a power of two from 1 to 16777216; use one such as 32768"},
      {Spec(4, -1), "loss_scaling.dynamic_growth_steps: -1 is not allowed; leave it out for 2000, or give at least 1"},
      {[] {
         v1::JobSpec spec = Spec();
         spec.set_backup_replicas(1);
         return spec;
       }(),
       "backup_replicas: 1 with compute_dtype FLOAT16 is not supported: whether a step is left out must not depend on "
       "which gradients came "
       "first; use 0, BFLOAT16 or FLOAT32"},
      {[] {
         v1::JobSpec spec = Spec(4);
         spec.set_compute_dtype(v1::FLOAT32);
         return spec;
       }(),
       "loss_scaling: gradients of compute_dtype FLOAT32 need no scale; leave it out, or use compute_dtype FLOAT16"},
  };
  for (auto [spec, message] : cases) {
    const absl::Status status = ResolveLossScaling(&spec);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()), message);
  }
}

TEST(LossScale, HalvedByOneStepThatIsNotFiniteDoubledBySoManyThatAre) {
  const LossScaleRule rule{8, 3};
  LossScale s = LossScale::Initial(rule);
  const auto step = [&](bool finite) {
    s.Update(rule, s.scale, finite);
    return s.scale;
  };
  EXPECT_EQ(step(true), 8);
  EXPECT_EQ(step(true), 8);
  EXPECT_EQ(step(true), 16);
  EXPECT_EQ(step(true), 16);
  EXPECT_EQ(step(true), 16);
  EXPECT_EQ(step(false), 8) << "in a row: the two before do not count any more";
  EXPECT_EQ(step(true), 8);
  EXPECT_EQ(step(true), 8);
  EXPECT_EQ(step(true), 16);
  EXPECT_EQ(s.skipped, 1u);
  for (float expected : {8.0f, 4.0f, 2.0f, 1.0f, 1.0f}) EXPECT_EQ(step(false), expected);
  EXPECT_EQ(s.skipped, 6u);
  const LossScaleRule fast{kLossScaleMax / 2, 1};
  s = LossScale::Initial(fast);
  s.Update(fast, s.scale, true);
  s.Update(fast, s.scale, true);
  EXPECT_EQ(s.scale, kLossScaleMax);
}

// Asynchronous replicas: gradients that were computed with an older scale.
TEST(LossScale, SeveralGradientsThatOneScaleWasTooLargeForHalveItOnce) {
  const LossScaleRule rule{64, 2};
  LossScale s = LossScale::Initial(rule);
  for (int i = 0; i < 4; ++i) s.Update(rule, 64, false);
  EXPECT_EQ(s.scale, 32);
  EXPECT_EQ(s.skipped, 4u);
  s.Update(rule, 64, true);
  s.Update(rule, 64, true);
  EXPECT_EQ(s.scale, 32) << "nothing is learnt of this scale by another";
  s.Update(rule, 32, true);
  s.Update(rule, 64, false);
  s.Update(rule, 32, true);
  EXPECT_EQ(s.scale, 64);
  EXPECT_EQ(LossScale::From(rule, s.ToProto()), s);
  EXPECT_EQ(LossScale::From(rule, v1::LossScaleState()), LossScale::Initial(rule)) << "of a job that had none";
}

TEST(LossScale, FiniteIsASpanningNormLikeAnyOther) {
  const auto scope = [](int64_t begin, int64_t end) {
    return ClipScope{kFiniteScope, static_cast<uint64_t>(end - begin), 48, {{0, end - begin}}};
  };
  std::vector<float> numbers(48, 3e38f);  // their squares are beyond float32
  numbers[5] = std::numeric_limits<float>::denorm_min();
  const auto factors = [&] {
    NormBook book;
    std::vector<double> out;
    for (uint32_t p = 0; p < 3; ++p)
      book.Set(p, {MeasureNorm(scope(p * 16, p * 16 + 16), absl::MakeSpan(numbers).subspan(p * 16, 16), 4)});
    for (uint32_t p = 0; p < 3; ++p) out.push_back(book.FactorsFor(p, 0).value().at(0));
    return out;
  };
  EXPECT_EQ(factors(), (std::vector<double>{1, 1, 1}));
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    for (size_t i = 0; i < numbers.size(); ++i) {
      const float good = std::exchange(numbers[i], bad);
      EXPECT_EQ(factors(), (std::vector<double>{0, 0, 0})) << i;
      numbers[i] = good;
    }
  }
  std::vector<float> same = numbers;
  EXPECT_TRUE(ClipByNorm(std::vector<ClipScope>{scope(0, 48)}, 0, 4, absl::MakeSpan(same)));
  EXPECT_EQ(same, numbers);
  same[47] = NAN;
  EXPECT_FALSE(ClipByNorm(std::vector<ClipScope>{scope(0, 48)}, 0, 4, absl::MakeSpan(same)));
}

}  // namespace
}  // namespace cairn
