// Goal: Lamb, Adafactor and Muon follow Keras' formulas, written out again here in double precision on whole variables
// of several shapes, with clipping, weight decay and a moving average; the bits depend neither on where in a partition
// a variable lies nor on whether an image holds its slots.
#include "server/core/whole_rules.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "tests/unit/test_seed.h"

namespace cairn {
namespace {

using Numbers = std::vector<double>;

v1::Optimizer Parse(const std::string& text) {
  v1::Optimizer o;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &o)) << text;
  return o;
}

// ---- the formulas ----

double Root(const Numbers& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}

// What is kept of one variable between steps.
struct State {
  Numbers w, first, second;
};

Numbers LambUpdate(const Numbers& w, const Numbers& g, double lr, int t, State& s) {
  const double b1 = 0.8, b2 = 0.99;
  Numbers u(w.size()), out(w.size());
  for (size_t i = 0; i < w.size(); ++i) {
    s.first[i] = b1 * s.first[i] + (1 - b1) * g[i];
    s.second[i] = b2 * s.second[i] + (1 - b2) * g[i] * g[i];
    u[i] = s.first[i] / (1 - std::pow(b1, t)) / (std::sqrt(s.second[i] / (1 - std::pow(b2, t))) + 1e-6);
  }
  const double ratio = Root(w) > 0 && Root(u) > 0 ? Root(w) / Root(u) : 1;
  for (size_t i = 0; i < w.size(); ++i) out[i] = w[i] - ratio * lr * u[i];
  return out;
}

// first: r, second: c, as Keras has them; of a variable of one axis second is v.
Numbers AdafactorUpdate(const Shape& shape, const Numbers& w, const Numbers& g, double lr, int t, State& s) {
  const double kept = 1 - std::pow(t, -0.8), size = static_cast<double>(w.size());
  Numbers u(w.size()), out(w.size());
  const auto q = [&](size_t i) { return g[i] * g[i] + 1e-30; };
  if (shape.size() < 2) {
    for (size_t i = 0; i < w.size(); ++i) {
      s.second[i] = kept * s.second[i] + (1 - kept) * q(i);
      u[i] = g[i] / std::sqrt(s.second[i]);
    }
  } else {
    const size_t columns = static_cast<size_t>(shape.back()), rows = static_cast<size_t>(shape[shape.size() - 2]);
    for (size_t m = 0; m < w.size() / rows / columns; ++m) {
      double mean = 0;
      for (size_t i = 0; i < rows; ++i) {
        double sum = 0;
        for (size_t j = 0; j < columns; ++j) sum += q((m * rows + i) * columns + j);
        double& r = s.first[m * rows + i];
        r = kept * r + (1 - kept) * sum / static_cast<double>(columns);
        mean += r / static_cast<double>(rows);
      }
      for (size_t j = 0; j < columns; ++j) {
        double sum = 0;
        for (size_t i = 0; i < rows; ++i) sum += q((m * rows + i) * columns + j);
        double& c = s.second[m * columns + j];
        c = kept * c + (1 - kept) * sum / static_cast<double>(rows);
        for (size_t i = 0; i < rows; ++i) {
          const size_t at = (m * rows + i) * columns + j;
          u[at] = g[at] / std::sqrt(s.first[m * rows + i] / mean * c);
        }
      }
    }
  }
  const double step = std::max(1e-3, Root(w) / std::sqrt(size)) * std::min(lr, 1 / std::sqrt(t));
  const double excess = std::max(1.0, Root(u) / std::sqrt(size) / 0.5);
  for (size_t i = 0; i < w.size(); ++i) out[i] = w[i] - step * u[i] / excess;
  return out;
}

Numbers Product(const Numbers& a, const Numbers& b, size_t m, size_t k, size_t n) {
  Numbers out(m * n, 0.0);
  for (size_t i = 0; i < m; ++i) {
    for (size_t j = 0; j < n; ++j) {
      for (size_t l = 0; l < k; ++l) out[i * n + j] += a[i * k + l] * b[l * n + j];
    }
  }
  return out;
}

Numbers Transposed(const Numbers& x, size_t rows, size_t columns) {
  Numbers out(x.size());
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < columns; ++j) out[j * rows + i] = x[i * columns + j];
  }
  return out;
}

Numbers Iterated(Numbers x, size_t rows, size_t columns, int steps) {
  if (rows > columns) {
    return Transposed(Iterated(Transposed(x, rows, columns), columns, rows, steps), columns, rows);
  }
  const double norm = Root(x) + 1e-7;
  for (double& v : x) v /= norm;
  for (int step = 0; step < steps; ++step) {
    const Numbers s = Product(x, Transposed(x, rows, columns), rows, columns, rows);
    Numbers factor = Product(s, s, rows, rows, rows);
    for (size_t i = 0; i < s.size(); ++i) factor[i] = -4.775 * s[i] + 2.0315 * factor[i];
    const Numbers more = Product(factor, x, rows, rows, columns);
    for (size_t i = 0; i < x.size(); ++i) x[i] = 3.4445 * x[i] + more[i];
  }
  return x;
}

Numbers MuonUpdate(const Shape& shape, bool nesterov, const Numbers& w, const Numbers& g, double lr, State& s) {
  Numbers u(w.size()), out(w.size());
  for (size_t i = 0; i < w.size(); ++i) {
    s.first[i] = 0.9 * s.first[i] + g[i];
    u[i] = nesterov ? g[i] + 0.9 * s.first[i] : s.first[i];
  }
  u = Iterated(u, static_cast<size_t>(shape[0]), static_cast<size_t>(shape[1]), 5);
  const double scale = std::sqrt(static_cast<double>(std::max(shape[0], shape[1]))) * 0.2;
  for (size_t i = 0; i < w.size(); ++i) out[i] = w[i] - lr * scale * u[i];
  return out;
}

struct Case {
  std::string name, text;
  Shape shape;
  double tolerance;
};

Numbers UpdateOf(const Case& c, const Numbers& w, const Numbers& g, double lr, int t, State& s) {
  if (c.text.starts_with("lamb")) return LambUpdate(w, g, lr, t, s);
  if (c.text.starts_with("adafactor")) return AdafactorUpdate(c.shape, w, g, lr, t, s);
  return MuonUpdate(c.shape, c.text.find("nesterov: false") == std::string::npos, w, g, lr, s);
}

std::vector<Case> Cases() {
  const std::string lamb = "lamb { beta_1: 0.8 beta_2: 0.99 epsilon: 1e-6 }";
  const std::string adafactor = "adafactor { clip_threshold: 0.5 }";
  const std::string muon = "muon { momentum: 0.9 weight_decay: 0 }";
  return {{"LambMatrix", lamb, {37, 19}, 2e-5},
          {"LambVector", lamb, {101}, 2e-5},
          {"LambKernel", lamb, {3, 3, 5, 7}, 2e-5},
          {"AdafactorMatrix", adafactor, {37, 19}, 2e-5},
          {"AdafactorVector", adafactor, {101}, 2e-5},
          {"AdafactorKernel", adafactor, {3, 3, 5, 7}, 2e-5},
          {"AdafactorRow", adafactor, {1, 33}, 2e-5},
          {"AdafactorColumn", adafactor, {33, 1}, 2e-5},
          {"AdafactorNumber", adafactor, {1, 1}, 2e-5},
          {"MuonWide", muon, {19, 37}, 2e-4},
          {"MuonTall", muon, {37, 19}, 2e-4},
          {"MuonLarge", muon, {130, 300}, 2e-4},
          {"MuonWithoutNesterov", "muon { momentum: 0.9 weight_decay: 0 nesterov: false }", {8, 8}, 2e-4}};
}

Segment WholeSegment(int64_t begin, const Shape& shape) {
  Segment s;
  s.begin = begin;
  s.end = begin + NumElements(shape);
  s.whole = true;
  s.shape = shape;
  return s;
}

// float32 values and slots moved on by ApplyUpdate.
struct Subject {
  OptimizerRule rule;
  std::vector<float> values;
  std::vector<std::vector<float>> slots;
  bool slots_shared = false;

  Subject(const v1::Optimizer& optimizer, std::vector<float> v)
      : rule(OptimizerRule::From(optimizer)), values(std::move(v)) {
    for (int i = 0; i < rule.slots(); ++i) slots.emplace_back(values.size(), rule.initial_slot_value(i));
  }
  void Step(const std::vector<Segment>& segments, std::vector<float> gradient, uint64_t examples, float lr, int t,
            bool overwrite = false) {
    const std::vector<float> before = values;
    const std::vector<std::vector<float>> image = slots;
    Update u;
    u.step = static_cast<uint64_t>(t);
    u.examples = examples;
    u.learning_rate = lr;
    u.ema_overwrite = overwrite;
    u.values = values;
    u.gradient = absl::MakeSpan(gradient);
    for (size_t i = 0; i < slots.size(); ++i) {
      u.slots.push_back(absl::MakeSpan(slots[i]));
      if (!slots_shared) continue;
      std::fill(slots[i].begin(), slots[i].end(), NAN);
      u.copied_from.push_back(image[i]);
    }
    ApplyUpdate(rule, segments, u);
    EXPECT_EQ(values, before) << "the old values were written to";
    values = std::move(gradient);
  }
};

class WholeRules : public testing::TestWithParam<Case> {};

TEST_P(WholeRules, FollowTheFormulas) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  const Case& c = GetParam();
  const auto n = static_cast<size_t>(NumElements(c.shape));
  std::vector<float> start(n);
  for (float& v : start) v = normal(rng);
  Subject subject(Parse(c.text), start);
  State s = {Numbers(start.begin(), start.end()), Numbers(n, 0.0), Numbers(n, 0.0)};
  for (int t = 1; t <= 12; ++t) {
    const uint64_t examples = 1 + rng() % 100;
    const float lr = t < 6 ? 0.05f : 0.6f;  // above 1 / sqrt(t) too
    std::vector<float> gradient(n);
    for (float& g : gradient) g = normal(rng) * static_cast<float>(examples);
    Numbers g(gradient.begin(), gradient.end());
    for (double& v : g) v /= static_cast<double>(examples);
    s.w = UpdateOf(c, s.w, g, lr, t, s);
    subject.Step({WholeSegment(0, c.shape)}, gradient, examples, lr, t);
  }
  const double size = std::max(1.0, Root(s.w) / std::sqrt(static_cast<double>(n)));
  for (size_t i = 0; i < n; ++i) EXPECT_NEAR(subject.values[i], s.w[i], c.tolerance * 10 * size) << i;
}

// Keras' order: clip, decay, rule, average.
TEST_P(WholeRules, WithClippingDecayAndAverage) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  const Case& c = GetParam();
  v1::Optimizer optimizer = Parse(c.text + " clipvalue: 0.75 ema { momentum: 0.8 }");
  if (optimizer.has_muon()) {
    optimizer.mutable_muon()->set_weight_decay(0.3f);
  } else {
    optimizer.set_weight_decay(0.3f);
  }
  const auto n = static_cast<size_t>(NumElements(c.shape));
  std::vector<float> start(n);
  for (float& v : start) v = normal(rng);
  Subject subject(optimizer, start);
  State s = {Numbers(start.begin(), start.end()), Numbers(n, 0.0), Numbers(n, 0.0)};
  Numbers average;
  for (int t = 1; t <= 6; ++t) {
    std::vector<float> gradient(n);
    for (float& g : gradient) g = normal(rng) * 4;
    Numbers g(gradient.begin(), gradient.end());
    for (double& v : g) v = std::clamp(v / 4, -0.75, 0.75);
    for (double& w : s.w) w -= w * 0.3 * 0.05;
    s.w = UpdateOf(c, s.w, g, 0.05, t, s);
    if (t == 1) average = s.w;
    for (size_t i = 0; i < n; ++i) average[i] = 0.8 * average[i] + 0.2 * s.w[i];
    const bool overwrite = t == 3 || t == 6;
    if (overwrite) s.w = average;
    subject.Step({WholeSegment(0, c.shape)}, gradient, 4, 0.05f, t, overwrite);
  }
  for (size_t i = 0; i < n; ++i) {
    EXPECT_NEAR(subject.values[i], s.w[i], c.tolerance * 10 * (1 + std::abs(s.w[i]))) << i;
    EXPECT_EQ(subject.values[i], subject.slots.back()[i]) << "the last update overwrites";
  }
}

TEST_P(WholeRules, BitsDependNeitherOnThePlaceNorOnImages) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  const Case& c = GetParam();
  const v1::Optimizer optimizer = Parse(c.text + " clipvalue: 0.5 ema {}");
  const auto n = static_cast<size_t>(NumElements(c.shape)), before = size_t{16 * (1 + rng() % 400)};
  std::vector<float> start(n), around(before + n + 40);
  for (float& v : around) v = normal(rng);
  for (float& v : start) v = normal(rng);
  std::copy(start.begin(), start.end(), around.begin() + static_cast<int64_t>(before));
  Subject alone(optimizer, start), among(optimizer, around), imaged(optimizer, start);
  imaged.slots_shared = true;
  Segment frozen;
  frozen.end = static_cast<int64_t>(before) - 8;
  frozen.frozen = true;
  for (int t = 1; t <= 4; ++t) {
    std::vector<float> gradient(n), all(around.size(), 5.0f);
    for (float& g : gradient) g = normal(rng);
    std::copy(gradient.begin(), gradient.end(), all.begin() + static_cast<int64_t>(before));
    alone.Step({WholeSegment(0, c.shape)}, gradient, 3, 0.1f, t);
    imaged.Step({WholeSegment(0, c.shape)}, gradient, 3, 0.1f, t);
    among.Step({frozen, WholeSegment(static_cast<int64_t>(before), c.shape)}, all, 3, 0.1f, t);
  }
  const auto same = [&](const std::vector<float>& x, const float* y) {
    return std::memcmp(x.data(), y, n * sizeof(float)) == 0;
  };
  EXPECT_TRUE(same(alone.values, imaged.values.data()));
  EXPECT_TRUE(same(alone.values, among.values.data() + before));
  for (size_t k = 0; k < alone.slots.size(); ++k) {
    EXPECT_TRUE(same(alone.slots[k], imaged.slots[k].data())) << "slot " << k;
    EXPECT_TRUE(same(alone.slots[k], among.slots[k].data() + before)) << "slot " << k;
  }
  for (size_t i = 0; i < around.size(); ++i) {
    if (i >= before && i < before + n) continue;
    EXPECT_EQ(among.values[i], i < before - 8 ? around[i] : 0.0f) << "frozen, then padding: " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, WholeRules, testing::ValuesIn(Cases()), [](const auto& info) { return info.param.name; });

TEST(WholeRulesTest, LambOfNothing) {
  // A norm of 0: the ratio is 1.
  Subject zero_values(Parse("lamb {}"), std::vector<float>(8, 0.0f));
  zero_values.Step({WholeSegment(0, {8})}, std::vector<float>(8, 2.0f), 1, 0.1f, 1);
  for (const float v : zero_values.values) EXPECT_NEAR(v, -0.1, 1e-6);
  Subject zero_gradient(Parse("lamb {}"), std::vector<float>(8, 3.0f));
  zero_gradient.Step({WholeSegment(0, {8})}, std::vector<float>(8, 0.0f), 1, 0.1f, 1);
  for (const float v : zero_gradient.values) EXPECT_EQ(v, 3);
}

TEST(WholeRulesTest, NaNStays) {
  for (const char* text : {"lamb {}", "adafactor {}", "muon {}"}) {
    std::vector<float> gradient(12, 1.0f);
    gradient[5] = NAN;
    Subject subject(Parse(text), std::vector<float>(12, 1.0f));
    subject.Step({WholeSegment(0, {3, 4})}, gradient, 1, 0.1f, 1);
    EXPECT_TRUE(std::isnan(subject.values[5])) << text;
  }
}

// Adafactor's r and c lie in the slot's first numbers; the rest stays 0.
TEST(WholeRulesTest, AdafactorsSlotHoldsRowsThenColumns) {
  Subject subject(Parse("adafactor {}"), std::vector<float>(12, 1.0f));
  std::vector<float> gradient(12, 0.0f);
  gradient[0] = 2;  // of row 0, column 0
  subject.Step({WholeSegment(0, {3, 4})}, gradient, 1, 0.1f, 1);
  const std::vector<float> want = {1, 1e-30f, 1e-30f, 4.0f / 3, 1e-30f, 1e-30f, 1e-30f, 0, 0, 0, 0, 0};
  for (size_t i = 0; i < want.size(); ++i) EXPECT_FLOAT_EQ(subject.slots[0][i], want[i]) << i;
}

TEST(WholeRulesTest, MuonUpdatesTheOthersAsAdamWWithTheirOwnRateAndDecay) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> start(50), gradient(50);
  for (float& v : start) v = normal(rng);
  Subject muon(Parse("muon { adam_lr_ratio: 0.5 adam_weight_decay: 0.2 weight_decay: 0.9 adam_beta_1: 0.8 }"), start);
  Subject adam(Parse("adam { beta_1: 0.8 }"), start);
  Numbers w(start.begin(), start.end());
  for (int t = 1; t <= 5; ++t) {
    for (float& v : gradient) v = normal(rng);
    muon.Step({{0, 50}}, gradient, 1, 0.1f, t);
    for (size_t i = 0; i < adam.values.size(); ++i) adam.values[i] -= adam.values[i] * 0.2f * 0.1f;
    adam.Step({{0, 50}}, gradient, 1, 0.05f, t);
  }
  for (size_t i = 0; i < start.size(); ++i) EXPECT_NEAR(muon.values[i], adam.values[i], 1e-5) << i;
}

}  // namespace
}  // namespace cairn
