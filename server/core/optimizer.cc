#include "server/core/optimizer.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "common/base/decimal.h"
#include "common/tensor/vectorize.h"
#include "server/core/optimizer_loops.h"
#include "server/core/power.h"
#include "server/core/whole_rules.h"

namespace cairn {
namespace {

// Weight decay, clipping, the rule and the moving average run one after the other on blocks that fit the L1 cache.
constexpr int64_t kBlock = 1024;

// v = momentum * v + (1 - momentum) * mean
CAIRN_VECTORIZED void MovingAverage(const float* __restrict w, float* __restrict io, int64_t n, float examples,
                                    float momentum, float one_minus_momentum) {
  for (int64_t i = 0; i < n; ++i) io[i] = momentum * w[i] + one_minus_momentum * (io[i] / examples);
}

// w - g * lr
CAIRN_VECTORIZED void Sgd(const float* __restrict w, float* __restrict io, int64_t n, Coefficients c) {
  for (int64_t i = 0; i < n; ++i) io[i] = w[i] - io[i] / c.examples * c.learning_rate;
}

// m = m * momentum - g * lr;  w + m
CAIRN_VECTORIZED void Momentum(const float* __restrict w, float* __restrict io, float* __restrict m, int64_t n,
                               Coefficients c) {
  for (int64_t i = 0; i < n; ++i) {
    m[i] = m[i] * c.momentum - io[i] / c.examples * c.learning_rate;
    io[i] = w[i] + m[i];
  }
}

// m = m * momentum - g * lr;  w + (m * momentum - g * lr)
CAIRN_VECTORIZED void Nesterov(const float* __restrict w, float* __restrict io, float* __restrict m, int64_t n,
                               Coefficients c) {
  for (int64_t i = 0; i < n; ++i) {
    const float step = io[i] / c.examples * c.learning_rate;
    m[i] = m[i] * c.momentum - step;
    io[i] = w[i] + (m[i] * c.momentum - step);
  }
}

// a = a + g^2;  w - lr * g / sqrt(a + epsilon)
CAIRN_VECTORIZED void Adagrad(const float* __restrict w, float* __restrict io, float* __restrict a, int64_t n,
                              Coefficients c) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = io[i] / c.examples;
    a[i] = a[i] + g * g;
    io[i] = w[i] - c.learning_rate * g / std::sqrt(a[i] + c.epsilon);
  }
}

// v = rho * v + (1 - rho) * g^2;  d = v + epsilon;  w - lr * g / sqrt(d)
CAIRN_VECTORIZED void RmsProp(const float* __restrict w, float* __restrict io, float* __restrict v, int64_t n,
                              Coefficients c) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = io[i] / c.examples;
    v[i] = c.rho * v[i] + c.one_minus_rho * (g * g);
    io[i] = w[i] - c.learning_rate * g / std::sqrt(v[i] + c.epsilon);
  }
}

// the same with m = momentum * m + lr * g / sqrt(d);  w - m
CAIRN_VECTORIZED void RmsPropMomentum(const float* __restrict w, float* __restrict io, float* __restrict v,
                                      float* __restrict m, int64_t n, Coefficients c) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = io[i] / c.examples;
    v[i] = c.rho * v[i] + c.one_minus_rho * (g * g);
    m[i] = c.momentum * m[i] + c.learning_rate * g / std::sqrt(v[i] + c.epsilon);
    io[i] = w[i] - m[i];
  }
}

// a = rho * a + (1 - rho) * g;  d = v - a^2 + epsilon
CAIRN_VECTORIZED void RmsPropCentered(const float* __restrict w, float* __restrict io, float* __restrict v,
                                      float* __restrict a, int64_t n, Coefficients c) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = io[i] / c.examples;
    v[i] = c.rho * v[i] + c.one_minus_rho * (g * g);
    a[i] = c.rho * a[i] + c.one_minus_rho * g;
    io[i] = w[i] - c.learning_rate * g / std::sqrt(v[i] - a[i] * a[i] + c.epsilon);
  }
}

struct CenteredSlots {
  float *v, *m, *a;
};
CAIRN_VECTORIZED void RmsPropCenteredMomentum(const float* __restrict w, float* __restrict io, CenteredSlots slots,
                                              int64_t n, Coefficients c) {
  float* const __restrict v = slots.v;
  float* const __restrict m = slots.m;
  float* const __restrict a = slots.a;
  for (int64_t i = 0; i < n; ++i) {
    const float g = io[i] / c.examples;
    v[i] = c.rho * v[i] + c.one_minus_rho * (g * g);
    a[i] = c.rho * a[i] + c.one_minus_rho * g;
    m[i] = c.momentum * m[i] + c.learning_rate * g / std::sqrt(v[i] - a[i] * a[i] + c.epsilon);
    io[i] = w[i] - m[i];
  }
}

// m = m + (g - m) * (1 - beta_1);  v = v + (g^2 - v) * (1 - beta_2);  w - m * alpha / (sqrt(v) + epsilon)
CAIRN_VECTORIZED void Adam(const float* __restrict w, float* __restrict io, float* __restrict m, float* __restrict v,
                           int64_t n, Coefficients c) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = io[i] / c.examples;
    m[i] = m[i] + (g - m[i]) * c.one_minus_beta_1;
    v[i] = v[i] + (g * g - v[i]) * c.one_minus_beta_2;
    io[i] = w[i] - m[i] * c.alpha / (std::sqrt(v[i]) + c.epsilon);
  }
}

// The same with h = max(h, v) instead of v.
struct AmsgradSlots {
  float *m, *v, *h;
};
CAIRN_VECTORIZED void AdamAmsgrad(const float* __restrict w, float* __restrict io, AmsgradSlots slots, int64_t n,
                                  Coefficients c) {
  float* const __restrict m = slots.m;
  float* const __restrict v = slots.v;
  float* const __restrict h = slots.h;
  for (int64_t i = 0; i < n; ++i) {
    const float g = io[i] / c.examples;
    m[i] = m[i] + (g - m[i]) * c.one_minus_beta_1;
    v[i] = v[i] + (g * g - v[i]) * c.one_minus_beta_2;
    h[i] = h[i] > v[i] ? h[i] : v[i];
    io[i] = w[i] - m[i] * c.alpha / (std::sqrt(h[i]) + c.epsilon);
  }
}

// Keras' schedule of the momentum, u_t = beta_1 (1 - 0.5 * 0.96^t), and its products.
void SetNadam(const OptimizerRule& rule, uint64_t t, Coefficients* c) {
  const auto u = [&](uint64_t step) { return rule.beta_1 * (1 - 0.5 * WholePower(0.96, step)); };
  constexpr uint64_t kSettled = 1000;  // 0.96^1000 < 2^-53: from there on u equals beta_1
  double product = t > kSettled ? WholePower(rule.beta_1, t - kSettled) : 1;
  for (uint64_t step = 1; step <= std::min(t, kSettled); ++step) product *= u(step);
  NadamCoefficients* own = &c->own.nadam;
  own->m = static_cast<float>(u(t + 1) / (1 - product * u(t + 1)));
  own->g = static_cast<float>((1 - u(t)) / (1 - product));
  own->one_minus_beta_2_pow = static_cast<float>(1 - WholePower(rule.beta_2, t));
}

void SetFtrl(const FtrlRule& rule, float learning_rate, FtrlCoefficients* own) {
  own->l1 = static_cast<float>(rule.l1);
  own->l2 = static_cast<float>(2 * (rule.l2 + rule.beta / (2 * static_cast<double>(learning_rate))));
  own->shrinkage = static_cast<float>(2 * rule.l2_shrinkage);
  own->power = static_cast<int>(std::lround(-2 * rule.learning_rate_power));
}

void SetScheduleFree(const OptimizerRule& rule, const Update& u, ScheduleFreeCoefficients* own) {
  const auto step = static_cast<double>(u.step), warmup = static_cast<double>(rule.own.warmup_steps);
  own->rate = static_cast<float>(u.learning_rate * (step < warmup ? step / warmup : 1));
  own->one_minus_beta_2_pow = static_cast<float>(1 - WholePower(rule.beta_2, u.step));
  own->weight = static_cast<float>(1 / step);
  own->one_minus_weight = static_cast<float>(1 - 1 / step);
}

Coefficients MakeCoefficients(const OptimizerRule& rule, const Update& u) {
  Coefficients c{};
  c.examples = static_cast<float>(u.examples);
  c.learning_rate = u.learning_rate;
  c.momentum = static_cast<float>(rule.momentum);
  c.rho = static_cast<float>(rule.rho);
  c.one_minus_rho = static_cast<float>(1 - rule.rho);
  c.one_minus_beta_1 = static_cast<float>(1 - rule.beta_1);
  c.one_minus_beta_2 = static_cast<float>(1 - rule.beta_2);
  c.epsilon = static_cast<float>(rule.epsilon);
  c.weight_decay = static_cast<float>(rule.weight_decay);
  // The first update initializes the average with the values, as Keras does.
  const double ema_momentum = u.step == 1 ? 0 : rule.ema_momentum;
  c.average.momentum = static_cast<float>(ema_momentum);
  c.average.one_minus_momentum = static_cast<float>(1 - ema_momentum);
  if (rule.rule == UpdateRule::kAdam || rule.rule == UpdateRule::kAdamW || rule.rule == UpdateRule::kMuon) {
    const double of_second = std::sqrt(1 - WholePower(rule.beta_2, u.step));
    const double correction = of_second / (1 - WholePower(rule.beta_1, u.step));
    c.alpha = static_cast<float>(u.learning_rate * rule.own.muon.adam_lr_ratio * correction);
    // m / (sqrt(v) / of_second + epsilon) = of_second * m / (sqrt(v) + of_second * epsilon)
    if (rule.corrected_epsilon) c.epsilon = static_cast<float>(rule.epsilon * of_second);
  }
  if (rule.rule == UpdateRule::kAdamax)
    c.alpha = static_cast<float>(u.learning_rate / (1 - WholePower(rule.beta_1, u.step)));
  c.beta_1 = static_cast<float>(rule.beta_1);
  c.beta_2 = static_cast<float>(rule.beta_2);
  if (rule.rule == UpdateRule::kNadam) SetNadam(rule, u.step, &c);
  if (rule.rule == UpdateRule::kFtrl) SetFtrl(rule.own.ftrl, u.learning_rate, &c.own.ftrl);
  if (rule.rule == UpdateRule::kScheduleFreeAdamW) SetScheduleFree(rule, u, &c.own.schedule_free);
  return c;
}

// w: the old values, after weight decay; io: holds the sum of gradients, then the new values.
void ApplyRule(const OptimizerRule& rule, const Coefficients& c, const Update& u, const float* w, int64_t begin,
               int64_t n) {
  float* io = u.gradient.data() + begin;
  const auto slot = [&](size_t i) { return u.slots[i].data() + begin; };
  switch (rule.rule) {
    case UpdateRule::kSgd: return Sgd(w, io, n, c);
    case UpdateRule::kMomentum: return Momentum(w, io, slot(0), n, c);
    case UpdateRule::kNesterov: return Nesterov(w, io, slot(0), n, c);
    case UpdateRule::kAdagrad: return Adagrad(w, io, slot(0), n, c);
    case UpdateRule::kRmsProp:
      if (rule.centered && rule.momentum > 0) {
        return RmsPropCenteredMomentum(w, io, {.v = slot(0), .m = slot(1), .a = slot(2)}, n, c);
      }
      if (rule.centered) return RmsPropCentered(w, io, slot(0), slot(1), n, c);
      if (rule.momentum > 0) return RmsPropMomentum(w, io, slot(0), slot(1), n, c);
      return RmsProp(w, io, slot(0), n, c);
    case UpdateRule::kAdam:
    case UpdateRule::kAdamW:
    case UpdateRule::kMuon:
      if (rule.amsgrad) return AdamAmsgrad(w, io, {.m = slot(0), .v = slot(1), .h = slot(2)}, n, c);
      return Adam(w, io, slot(0), slot(1), n, c);
    case UpdateRule::kAdadelta: return Adadelta(w, io, slot(0), slot(1), n, c);
    case UpdateRule::kAdamax: return Adamax(w, io, slot(0), slot(1), n, c);
    case UpdateRule::kNadam: return Nadam(w, io, slot(0), slot(1), n, c);
    case UpdateRule::kFtrl:
      if (c.learning_rate == 0) return static_cast<void>(std::copy(w, w + n, io));  // the rule divides by the rate
      return Ftrl(w, io, slot(0), slot(1), n, c);
    case UpdateRule::kLion: return Lion(w, io, slot(0), n, c);
    case UpdateRule::kScheduleFreeAdamW: return ScheduleFree(w, io, slot(0), slot(1), n, c);
    case UpdateRule::kLamb:
    case UpdateRule::kAdafactor: break;
  }
  CAIRN_CHECK(false, "a rule of whole variables");
}

// A variable that is whole: the same around the rule, on all its numbers at a time.
void ApplyWhole(const OptimizerRule& rule, Coefficients c, const Update& u, const Segment& s) {
  WholeVariable v = {.w = u.values.data() + s.begin, .io = u.gradient.data() + s.begin, .shape = s.shape};
  v.n = s.end - s.begin;
  for (const absl::Span<float> slot : u.slots) v.slots.push_back(slot.data() + s.begin);
  if (rule.clipvalue > 0) {
    ClipMean(v.io, v.n, c.examples, rule.clipvalue);
    c.examples = 1;
  }
  if (!s.decays) c.weight_decay = 0;
  ApplyWholeRule(rule, c, u.step, v);
  if (!rule.ema) return;
  Average(v.io, v.slots.back(), v.n, c);
  if (u.ema_overwrite) std::copy_n(v.slots.back(), v.n, v.io);
}

void ApplyTrainable(const OptimizerRule& rule, Coefficients c, const Update& u, const Segment& s) {
  if (s.whole) return ApplyWhole(rule, c, u, s);
  const bool first = rule.rule == UpdateRule::kScheduleFreeAdamW && u.step == 1;
  if (first) std::copy_n(u.values.data() + s.begin, s.end - s.begin, u.slots[0].data() + s.begin);
  if (rule.rule == UpdateRule::kMuon) c.weight_decay = static_cast<float>(rule.own.muon.adam_weight_decay);
  const bool decays = c.weight_decay > 0 && s.decays;
  if (rule.clipvalue <= 0 && !decays && !rule.ema) {
    return ApplyRule(rule, c, u, u.values.data() + s.begin, s.begin, s.end - s.begin);
  }
  const float examples = c.examples;
  if (rule.clipvalue > 0) c.examples = 1;  // ClipMean has stored the mean
  float decayed[kBlock];
  for (int64_t begin = s.begin; begin < s.end; begin += kBlock) {
    const int64_t n = std::min(kBlock, s.end - begin);
    const float* w = u.values.data() + begin;
    float* io = u.gradient.data() + begin;
    if (rule.clipvalue > 0) ClipMean(io, n, examples, rule.clipvalue);
    if (decays) {
      Decay(w, decayed, n, c);
      w = decayed;
    }
    ApplyRule(rule, c, u, w, begin, n);
    if (!rule.ema) continue;
    float* average = u.slots.back().data() + begin;
    Average(io, average, n, c);
    if (u.ema_overwrite) std::copy(average, average + n, io);
  }
}

void ApplySegment(const OptimizerRule& rule, const Coefficients& c, const Update& u, const Segment& s) {
  if (s.frozen) {
    std::copy(u.values.begin() + s.begin, u.values.begin() + s.end, u.gradient.begin() + s.begin);
  } else if (s.moving_average) {
    MovingAverage(u.values.data() + s.begin, u.gradient.data() + s.begin, s.end - s.begin, c.examples, s.momentum,
                  static_cast<float>(1 - Decimal(s.momentum)));
  } else {
    ApplyTrainable(rule, c, u, s);
  }
}

// Applies the rule to [begin, end); numbers that belong to no segment become 0. A segment that is whole is not cut.
void ApplyRange(const OptimizerRule& rule, const Coefficients& c, absl::Span<const Segment> segments, const Update& u,
                int64_t begin, int64_t end) {
  int64_t done = begin;  // all numbers before it have new values
  for (const Segment& whole : segments) {
    Segment s = whole;
    s.begin = std::max(s.begin, begin);
    s.end = std::min(s.end, end);
    if (s.begin >= s.end) continue;
    std::fill(u.gradient.begin() + done, u.gradient.begin() + s.begin, 0.0f);
    ApplySegment(rule, c, u, s);
    done = s.end;
  }
  std::fill(u.gradient.begin() + done, u.gradient.begin() + end, 0.0f);
}

constexpr int64_t kCopiedBlock =
    4 << 10;  // in numbers: the old values, the gradient and its slots stay in the cache of a core

void CopySlots(const Update& u, int64_t begin, int64_t end) {
  for (size_t i = 0; i < u.copied_from.size(); ++i) {
    const absl::Span<const float> from = u.copied_from[i];
    if (!from.empty()) std::copy(from.begin() + begin, from.begin() + end, u.slots[i].begin() + begin);
  }
}

}  // namespace

void ApplyUpdate(const OptimizerRule& rule, absl::Span<const Segment> segments, const Update& u) {
  CAIRN_CHECK(u.examples > 0 && u.step > 0, "an update counts from 1 and has examples");
  CAIRN_CHECK(u.gradient.size() == u.values.size() && u.slots.size() == static_cast<size_t>(rule.slots()), "sizes");
  CAIRN_CHECK(u.copied_from.empty() || u.copied_from.size() == u.slots.size(), "sizes");
  const Coefficients c = MakeCoefficients(rule, u);
  const auto size = static_cast<int64_t>(u.gradient.size());
  const bool copies = std::any_of(u.copied_from.begin(), u.copied_from.end(),
                                  [](absl::Span<const float> from) { return !from.empty(); });
  const bool whole = std::any_of(segments.begin(), segments.end(), [](const Segment& s) { return s.whole; });
  const int64_t step = copies && !whole ? kCopiedBlock : size;
  for (int64_t begin = 0, end; begin < size; begin = end) {
    end = std::min(begin + step, size);
    CopySlots(u, begin, end);
    ApplyRange(rule, c, segments, u, begin, end);
  }
}

void OverwriteWithAverage(absl::Span<const Segment> segments, absl::Span<const float> average,
                          absl::Span<float> values) {
  for (const Segment& s : segments) {
    if (s.moving_average || s.frozen) continue;
    std::copy(average.begin() + s.begin, average.begin() + s.end, values.begin() + s.begin);
  }
}

}  // namespace cairn
