// Goal: each schedule's learning rate at each step is that of the formula in Keras' documentation. The expected numbers
// were computed in Python's floats from the formulas beside them, the restarts by walking from period to period.
#include "common/model/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "common/base/decimal.h"
#include "common/model/schedule_check.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

struct Case {
  const char* optimizer;
  std::vector<std::pair<int64_t, float>> rates;  // step, learning rate
};

const std::vector<Case>& Cases() {
  static const auto* cases = new std::vector<Case>{
      {"learning_rate: 0.05", {{0, 0.05f}, {1'000'000, 0.05f}}},
      {"learning_rate: 0.05 schedule { constant {} }", {{0, 0.05f}, {77, 0.05f}}},
      // values[0] up to and including boundaries[0]
      {"schedule { piecewise_constant_decay { boundaries: [ 10, 20 ] values: [ 1, 0.5, 0.1 ] } }",
       {{0, 1}, {10, 1}, {11, 0.5f}, {20, 0.5f}, {21, 0.1f}, {9999, 0.1f}}},
      // 0.1 * 0.96^(step / 100)
      {"learning_rate: 0.1 schedule { exponential_decay { decay_steps: 100 decay_rate: 0.96 } }",
       {{0, 0.1f}, {1, 0.0999591872f}, {50, 0.0979795903f}, {100, 0.096f}, {250, 0.0902979895f}}},
      // 0.1 * 0.96^floor(step / 100)
      {"learning_rate: 0.1 schedule { exponential_decay { decay_steps: 100 decay_rate: 0.96 staircase: true } }",
       {{0, 0.1f}, {99, 0.1f}, {100, 0.096f}, {250, 0.09216f}}},
      // (0.01 - 0.0001) * (1 - min(step, 10) / 10) + 0.0001: Keras' defaults
      {"learning_rate: 0.01 schedule { polynomial_decay { decay_steps: 10 } }",
       {{0, 0.01f}, {3, 0.00703f}, {10, 0.0001f}, {11, 0.0001f}}},
      // (0.1 - 0.001) * sqrt(1 - min(step, 100) / 100) + 0.001
      {"learning_rate: 0.1 schedule { polynomial_decay { decay_steps: 100 end_learning_rate: 0.001 power: 0.5 } }",
       {{0, 0.1f}, {25, 0.0867365152f}, {99, 0.0109f}, {100, 0.001f}, {1000, 0.001f}}},
      // the same with 100 * ceil(step / 100) in the place of 100 (100 at step 0)
      {"learning_rate: 0.1"
       " schedule { polynomial_decay { decay_steps: 100 end_learning_rate: 0.001 power: 0.5 cycle: true } }",
       {{0, 0.1f}, {25, 0.0867365152f}, {100, 0.001f}, {101, 0.0706526712f}, {250, 0.0414165817f}}},
      // 0.1 / (1 + 0.5 * step / 10)
      {"learning_rate: 0.1 schedule { inverse_time_decay { decay_steps: 10 decay_rate: 0.5 } }",
       {{0, 0.1f}, {5, 0.08f}, {10, 0.0666666701f}, {35, 0.0363636352f}}},
      {"learning_rate: 0.1 schedule { inverse_time_decay { decay_steps: 10 decay_rate: 0.5 staircase: true } }",
       {{0, 0.1f}, {9, 0.1f}, {10, 0.0666666701f}, {35, 0.04f}}},
      // 0.1 * (0.9 * (1 + cos(pi * min(step, 1000) / 1000)) / 2 + 0.1)
      {"learning_rate: 0.1 schedule { cosine_decay { decay_steps: 1000 alpha: 0.1 } }",
       {{0, 0.1f}, {1, 0.099999778f}, {250, 0.0868198052f}, {500, 0.055f}, {999, 0.0100002224f}, {5000, 0.01f}}},
      // 0.4 * step / 10 before step 10; then as above from 0.4, ten steps later
      {"learning_rate: 0 schedule { cosine_decay { decay_steps: 1000 alpha: 0.1 warmup_steps: 10 warmup_target: 0.4 } "
       "}",
       {{0, 0},
        {1, 0.04f},
        {5, 0.2f},
        {9, 0.36f},
        {10, 0.4f},
        {11, 0.399999112f},
        {510, 0.22f},
        {1010, 0.04f},
        {9999, 0.04f}}},
      // 0.02 + (0.1 - 0.02) * step / 4
      {"learning_rate: 0.02 schedule { cosine_decay { decay_steps: 8 warmup_steps: 4 warmup_target: 0.1 } }",
       {{0, 0.02f}, {1, 0.04f}, {3, 0.08f}, {4, 0.1f}, {8, 0.05f}, {12, 0}}},
      // periods of 10, 20, 40, ... steps; in the i-th 0.1 * (0.9 * 0.5^i * (1 + cos(pi * done)) / 2 + 0.1)
      {"learning_rate: 0.1 schedule { cosine_decay_restarts { first_decay_steps: 10 m_mul: 0.5 alpha: 0.1 } }",
       {{0, 0.1f},
        {5, 0.055f},
        {9, 0.0122024566f},
        {10, 0.055f},
        {11, 0.0547229871f},
        {29, 0.0102770124f},
        {30, 0.0325f},
        {69, 0.0100346804f},
        {70, 0.02125f},
        {150, 0.015625f},
        {310, 0.0128125f},
        {10485749, 0.01f},
        {10485750, 0.0100000855f}}},
      {"learning_rate: 0.1 schedule { cosine_decay_restarts { first_decay_steps: 10 t_mul: 1 m_mul: 0.9 } }",
       {{0, 0.1f}, {5, 0.05f}, {9, 0.00244717416f}, {10, 0.09f}, {25, 0.0405f}, {100, 0.0348678455f}}},
      {"learning_rate: 0.1 schedule { cosine_decay_restarts { first_decay_steps: 10 t_mul: 1.5 } }",
       {{0, 0.1f},
        {9, 0.00244717416f},
        {10, 0.1f},
        {24, 0.00109261996f},
        {25, 0.1f},
        {47, 0.000121797486f},
        {48, 0.0999458581f},
        {100, 0.0698039904f}}},
  };
  return *cases;
}

TEST(LearningRate, AsKerasFormulasSay) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.optimizer);
    v1::JobSpec spec;
    *spec.mutable_optimizer() = FromText<v1::Optimizer>(std::string("sgd {} ") + c.optimizer);
    ASSERT_TRUE(ResolveSchedule(spec.mutable_optimizer()).ok()) << ResolveSchedule(spec.mutable_optimizer());
    for (const auto& [step, rate] : c.rates) EXPECT_FLOAT_EQ(LearningRateAt(spec, step), rate) << "step " << step;
  }
}

// A period of restarts begins at the full rate, whatever the rounding of the logarithm.
TEST(LearningRate, RestartsAtTheFirstStepOfEachPeriod) {
  for (const float t_mul : {1.0f, 1.1f, 1.5f, 2.0f, 3.0f}) {
    v1::JobSpec spec;
    *spec.mutable_optimizer() = FromText<v1::Optimizer>(
        "sgd {} learning_rate: 1 schedule { cosine_decay_restarts { first_decay_steps: 1000 } }");
    spec.mutable_optimizer()->mutable_schedule()->mutable_cosine_decay_restarts()->set_t_mul(t_mul);
    ASSERT_TRUE(ResolveSchedule(spec.mutable_optimizer()).ok());
    double begin = 0, length = 1000;
    for (int i = 0; i < 12; ++i, begin += length, length *= Decimal(t_mul)) {
      const auto first = static_cast<int64_t>(std::ceil(begin - 1e-3));
      EXPECT_GT(LearningRateAt(spec, first), 0.99f) << t_mul << ", period " << i;
      if (i > 0) {
        EXPECT_LT(LearningRateAt(spec, first - 1), 0.01f) << t_mul << ", period " << i;
      }
    }
  }
}

}  // namespace
}  // namespace cairn
