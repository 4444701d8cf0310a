// Goal: each optimizer follows Keras' formula, written out again here in double precision from the documentation of
// keras.optimizers; defaults are Keras'; the bits do not depend on where a partition is cut; padding stays zero; moving
// averages follow their own rule.
#include "server/core/optimizer.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "tests/unit/server/optimizer_cases.h"
#include "tests/unit/test_seed.h"

namespace cairn {
namespace {

v1::Optimizer Parse(const std::string& text) {
  v1::Optimizer o;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &o)) << text;
  return o;
}

// float32 values and slots, updated by ApplyUpdate.
struct Subject {
  OptimizerRule rule;
  std::vector<float> values;
  std::vector<std::vector<float>> slots;
  bool slots_shared = false;  // an image holds them

  Subject(const OptimizerRule& r, std::vector<float> v) : rule(r), values(std::move(v)) {
    for (int i = 0; i < rule.slots(); ++i) slots.emplace_back(values.size(), rule.initial_slot_value(i));
  }
  void Step(const std::vector<Segment>& segments, std::vector<float> gradient, uint64_t examples, float lr, int t,
            bool ema_overwrite = false) {
    const std::vector<float> before = values;
    Update u;
    u.step = t;
    u.examples = examples;
    u.learning_rate = lr;
    u.ema_overwrite = ema_overwrite;
    u.values = values;
    u.gradient = absl::MakeSpan(gradient);
    const std::vector<std::vector<float>> image = slots;
    for (size_t i = 0; i < slots.size(); ++i) {
      u.slots.push_back(absl::MakeSpan(slots[i]));
      if (!slots_shared) continue;
      std::fill(slots[i].begin(), slots[i].end(), NAN);  // new memory
      u.copied_from.push_back(image[i]);
    }
    ApplyUpdate(rule, segments, u);
    EXPECT_EQ(values, before) << "the old values were written to";
    values = std::move(gradient);
  }
};

class OptimizerTest : public testing::TestWithParam<Case> {};

TEST_P(OptimizerTest, FollowsTheFormula) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  constexpr int n = 133;
  const Case& c = GetParam();
  std::vector<float> start(n);
  for (float& v : start) v = normal(rng);
  Subject subject(OptimizerRule::From(Parse(c.text)), start);
  ASSERT_EQ(subject.slots.size(), c.slots.size());

  std::vector<double> w(start.begin(), start.end());
  std::vector<std::vector<double>> slots(n, c.slots);
  std::vector<float> mean(n);  // gradients that keep their sign, so that a centered variance stays away from 0
  for (float& m : mean) m = normal(rng);
  for (int t = 1; t <= 20; ++t) {
    const uint64_t examples = 1 + rng() % 100;
    const float lr = t < 10 ? 0.01f : 0.003f;
    std::vector<float> gradient(n);
    for (int i = 0; i < n; ++i) gradient[i] = (mean[i] + 0.5f * normal(rng)) * static_cast<float>(examples);
    for (int i = 0; i < n; ++i) w[i] = c.formula(w[i], double{gradient[i]} / examples, lr, t, slots[i]);
    subject.Step({{0, n}}, gradient, examples, lr, t);
  }
  for (int i = 0; i < n; ++i) {
    EXPECT_NEAR(subject.values[i], w[i], 2e-5 * (1 + std::abs(w[i]))) << i;
    for (size_t s = 0; s < c.slots.size(); ++s) {
      EXPECT_NEAR(subject.slots[s][i], slots[i][s], 1e-5 * (1 + std::abs(slots[i][s]))) << "slot " << s;
    }
  }
}

TEST_P(OptimizerTest, BitsDoNotDependOnTheCut) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  constexpr int n = 259;
  const OptimizerRule rule = OptimizerRule::From(Parse(GetParam().text));
  std::vector<float> start(n);
  for (float& v : start) v = normal(rng);
  Subject whole(rule, start);
  std::vector<Subject> pieces;
  std::vector<int> cuts = {0};
  while (cuts.back() < n) cuts.push_back(std::min<int>(n, cuts.back() + 1 + rng() % 40));
  for (size_t p = 0; p + 1 < cuts.size(); ++p) {
    pieces.emplace_back(rule, std::vector<float>(start.begin() + cuts[p], start.begin() + cuts[p + 1]));
  }
  for (int t = 1; t <= 5; ++t) {
    std::vector<float> gradient(n);
    for (float& g : gradient) g = normal(rng);
    whole.Step({{0, n}}, gradient, 7, 0.02f, t);
    for (size_t p = 0; p < pieces.size(); ++p) {
      pieces[p].Step({{0, cuts[p + 1] - cuts[p]}},
                     std::vector<float>(gradient.begin() + cuts[p], gradient.begin() + cuts[p + 1]), 7, 0.02f, t);
    }
  }
  for (size_t p = 0; p < pieces.size(); ++p) {
    const size_t bytes = pieces[p].values.size() * sizeof(float);
    EXPECT_EQ(std::memcmp(pieces[p].values.data(), whole.values.data() + cuts[p], bytes), 0);
    for (size_t s = 0; s < whole.slots.size(); ++s) {
      EXPECT_EQ(std::memcmp(pieces[p].slots[s].data(), whole.slots[s].data() + cuts[p], bytes), 0);
    }
  }
}

TEST_P(OptimizerTest, SlotsThatAnImageHoldsAreCopiedOnTheWay) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  constexpr int n = 50001;  // several blocks
  std::vector<float> start(n), gradient(n);
  for (float& v : start) v = normal(rng);
  const OptimizerRule rule = OptimizerRule::From(Parse(GetParam().text));
  Subject alone(rule, start), shared(rule, start);
  shared.slots_shared = true;
  const std::vector<Segment> segments = {
      {0, 10}, {16, 16385}, {16385, 16390, true, 0.75f}, {16400, 40000}, {40010, 49000, false, 0, true, true}};
  for (int t = 1; t <= 3; ++t) {
    for (float& g : gradient) g = normal(rng);
    for (Subject* s : {&alone, &shared}) s->Step(segments, gradient, 7, 0.02f, t);
  }
  EXPECT_EQ(std::memcmp(shared.values.data(), alone.values.data(), n * sizeof(float)), 0);
  for (size_t s = 0; s < alone.slots.size(); ++s) {
    EXPECT_EQ(std::memcmp(shared.slots[s].data(), alone.slots[s].data(), n * sizeof(float)), 0) << "slot " << s;
  }
}

TEST_P(OptimizerTest, PaddingStaysZeroAndMovingAveragesKeepTheirRule) {
  const OptimizerRule rule = OptimizerRule::From(Parse(GetParam().text));
  std::vector<float> values(64, 0.0f);
  for (int i = 0; i < 10; ++i) values[i] = 1;
  for (int i = 16; i < 21; ++i) values[i] = 2;
  Subject subject(rule, values);
  const std::vector<Segment> segments = {{0, 10}, {16, 21, true, 0.75f}, {32, 48}};
  std::vector<float> gradient(64, 6.0f);  // garbage in the padding too
  subject.Step(segments, gradient, 2, 0.1f, 1);
  for (int i = 0; i < 64; ++i) {
    if (i < 10 || (i >= 32 && i < 48)) {
      EXPECT_LT(subject.values[i], values[i]) << i;
    } else if (i >= 16 && i < 21) {
      EXPECT_EQ(subject.values[i], 0.75f * 2 + 0.25f * 3) << i;
      for (int k = 0; k < rule.slots(); ++k)
        EXPECT_EQ(subject.slots[static_cast<size_t>(k)][i], rule.initial_slot_value(k));
    } else {
      EXPECT_EQ(subject.values[i], 0) << i;
      for (int k = 0; k < rule.slots(); ++k)
        EXPECT_EQ(subject.slots[static_cast<size_t>(k)][i], rule.initial_slot_value(k));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, OptimizerTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

// ---- around the rule: clipvalue, weight decay, moving average ----

class AroundTheRule : public testing::TestWithParam<Case> {};

// Keras' order: clip, decay, rule, average. More numbers than one block of ApplyTrainable.
TEST_P(AroundTheRule, FollowsTheFormulas) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  constexpr int n = 2500, excluded = 1100;
  const Case& c = GetParam();
  const bool adamw = c.text.starts_with("adamw");  // its formula decays by itself
  v1::Optimizer optimizer = Parse(c.text + " clipvalue: 0.75 ema { momentum: 0.8 }");
  if (!adamw) optimizer.set_weight_decay(0.3f);
  std::vector<float> start(n);
  for (float& v : start) v = normal(rng);
  Subject subject(OptimizerRule::From(optimizer), start);
  ASSERT_EQ(subject.slots.size(), c.slots.size() + 1);

  Segment without = {excluded, n};
  without.decays = false;
  std::vector<double> w(start.begin(), start.end()), average(n, 0.0);
  std::vector<std::vector<double>> slots(n, c.slots);
  std::vector<float> mean(n);
  for (float& m : mean) m = normal(rng);
  for (int t = 1; t <= 6; ++t) {
    const bool overwrite = t == 3 || t == 6;
    std::vector<float> gradient(n);
    for (int i = 0; i < n; ++i) {
      gradient[i] = (mean[i] + 0.2f * normal(rng)) * 4;
      const double g = std::clamp(gradient[i] / 4.0, -0.75, 0.75);
      if (t == 1 && c.text.starts_with("schedule_free")) slots[i][0] = w[i];  // before the decay
      if (!adamw && i < excluded) w[i] -= w[i] * 0.3 * 0.01;
      if (adamw && i >= excluded) w[i] /= 1 - 0.01 * (c.name == "AdamW" ? 0.004 : 0.1);  // undoes the formula's
      w[i] = c.formula(w[i], g, 0.01, t, slots[i]);
      average[i] = t == 1 ? w[i] : 0.8 * average[i] + 0.2 * w[i];
      if (overwrite) w[i] = average[i];
    }
    subject.Step({{0, excluded}, without}, gradient, 4, 0.01f, t, overwrite);
  }
  for (int i = 0; i < n; ++i) {
    EXPECT_NEAR(subject.values[i], w[i], 2e-5 * (1 + std::abs(w[i]))) << i;
    EXPECT_NEAR(subject.slots.back()[i], average[i], 2e-5 * (1 + std::abs(average[i]))) << i;
    EXPECT_EQ(subject.values[i], subject.slots.back()[i]) << "the last update overwrites";
  }
}

INSTANTIATE_TEST_SUITE_P(All, AroundTheRule, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

TEST(AroundTheRuleTest, MovingStatisticsAreNeitherClippedNorDecayedNorAveraged) {
  Subject subject(OptimizerRule::From(Parse("sgd {} clipvalue: 0.5 weight_decay: 0.5 ema {}")),
                  std::vector<float>(16, 2.0f));
  subject.Step({{0, 16, true, 0.75f}}, std::vector<float>(16, 6.0f), 2, 0.1f, 1, true);
  for (float v : subject.values) EXPECT_EQ(v, 0.75f * 2 + 0.25f * 3);
  for (float a : subject.slots.back()) EXPECT_EQ(a, 0);
}

// Layer.trainable: false.
TEST_P(OptimizerTest, FrozenNumbersAndTheirSlotsStayWhateverComes) {
  const OptimizerRule rule = OptimizerRule::From(Parse(GetParam().text + " clipvalue: 0.5 weight_decay: 0.5 ema {}"));
  Subject subject(rule, std::vector<float>(32, 2.0f));
  const auto slots = subject.slots;
  Segment frozen = {8, 24};
  frozen.frozen = true;
  for (int t = 1; t <= 3; ++t)
    subject.Step({{0, 8}, frozen, {24, 32}}, std::vector<float>(32, 6.0f), 2, 0.1f, t, t == 2);
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(subject.values[i] == 2.0f, i >= 8 && i < 24) << i;
    for (size_t s = 0; s < slots.size() && i >= 8 && i < 24; ++s) EXPECT_EQ(subject.slots[s][i], slots[s][i]) << i;
  }
  std::vector<float> values = subject.values;
  OverwriteWithAverage(std::vector<Segment>{{0, 8}, frozen, {24, 32}}, std::vector<float>(32, 9.0f),
                       absl::MakeSpan(values));
  for (int i = 0; i < 32; ++i) EXPECT_EQ(values[i], i >= 8 && i < 24 ? 2.0f : 9.0f);
}

TEST(AroundTheRuleTest, NaNIsNotClippedAway) {
  Subject subject(OptimizerRule::From(Parse("sgd {} clipvalue: 0.5")), {1, 1, 1, 1});
  subject.Step({{0, 4}}, {NAN, INFINITY, -INFINITY, 0.2f}, 1, 1, 1);
  EXPECT_TRUE(std::isnan(subject.values[0]));
  EXPECT_EQ(subject.values[1], 0.5f);
  EXPECT_EQ(subject.values[2], 1.5f);
  EXPECT_EQ(subject.values[3], 0.8f);
}

TEST(OptimizerRuleTest, DefaultsAreTheDecimalNumbersOfKeras) {
  // A resolved spec carries them as floats; 1 - 0.999 must still be 0.001, not 0.00100004673.
  const OptimizerRule adam = OptimizerRule::From(Parse("adam { beta_1: 0.9 beta_2: 0.999 epsilon: 1e-7 }"));
  EXPECT_EQ(adam.beta_1, 0.9);
  EXPECT_EQ(adam.beta_2, 0.999);
  EXPECT_EQ(adam.epsilon, 1e-7);
  EXPECT_EQ(OptimizerRule::From(Parse("adamw {}")).weight_decay, 0.004);
  EXPECT_EQ(OptimizerRule::From(Parse("adagrad {}")).initial_slot_value(0), 0.1f);
  EXPECT_EQ(OptimizerRule::From(Parse("rmsprop { rho: 0.99999994 }")).rho, 0.99999994);
}

}  // namespace
}  // namespace cairn
