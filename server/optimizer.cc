#include "server/optimizer.h"

#include <charconv>
#include <cmath>

#include "common/base/check.h"
#include "common/tensor/vectorize.h"

namespace cairn {
namespace {

// The double nearest to the decimal number that the user wrote as a float: 0.999f stands for 0.999, and 1 - 0.999 shall
// be 0.001.
double Decimal(float f) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, f).ptr;
  double d = f;
  std::from_chars(text, end, d);
  return d;
}

// b^n by squaring: products alone, so that the bits do not depend on the C library.
double Power(double b, uint64_t n) {
  double result = 1;
  for (; n > 0; n >>= 1, b *= b) {
    if (n & 1) result *= b;
  }
  return result;
}

// Of one update, in float32. `g` in the formulas is the mean gradient io[i] / examples; w are the old values; what is
// written to io are the new ones.
struct Coefficients {
  float examples;
  float learning_rate;
  float momentum;
  float rho, one_minus_rho;
  float one_minus_beta_1, one_minus_beta_2;
  float alpha;  // Adam: learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t)
  float epsilon;
  float weight_decay;
};

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

CAIRN_VECTORIZED void RmsPropCenteredMomentum(const float* __restrict w, float* __restrict io, float* __restrict v,
                                              float* __restrict m, float* __restrict a, int64_t n, Coefficients c) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = io[i] / c.examples;
    v[i] = c.rho * v[i] + c.one_minus_rho * (g * g);
    a[i] = c.rho * a[i] + c.one_minus_rho * g;
    m[i] = c.momentum * m[i] + c.learning_rate * g / std::sqrt(v[i] - a[i] * a[i] + c.epsilon);
    io[i] = w[i] - m[i];
  }
}

// w' = w - w * weight_decay * lr (AdamW; weight_decay is 0 for Adam)
// m = m + (g - m) * (1 - beta_1);  v = v + (g^2 - v) * (1 - beta_2);  w' - m * alpha / (sqrt(v) + epsilon)
CAIRN_VECTORIZED void Adam(const float* __restrict w, float* __restrict io, float* __restrict m, float* __restrict v,
                           int64_t n, Coefficients c) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = io[i] / c.examples;
    const float decayed = w[i] - w[i] * c.weight_decay * c.learning_rate;
    m[i] = m[i] + (g - m[i]) * c.one_minus_beta_1;
    v[i] = v[i] + (g * g - v[i]) * c.one_minus_beta_2;
    io[i] = decayed - m[i] * c.alpha / (std::sqrt(v[i]) + c.epsilon);
  }
}

// the same with h = max(h, v) in the place of v
CAIRN_VECTORIZED void AdamAmsgrad(const float* __restrict w, float* __restrict io, float* __restrict m,
                                  float* __restrict v, float* __restrict h, int64_t n, Coefficients c) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = io[i] / c.examples;
    const float decayed = w[i] - w[i] * c.weight_decay * c.learning_rate;
    m[i] = m[i] + (g - m[i]) * c.one_minus_beta_1;
    v[i] = v[i] + (g * g - v[i]) * c.one_minus_beta_2;
    h[i] = h[i] > v[i] ? h[i] : v[i];
    io[i] = decayed - m[i] * c.alpha / (std::sqrt(h[i]) + c.epsilon);
  }
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
  if (rule.rule == UpdateRule::kAdam || rule.rule == UpdateRule::kAdamW) {
    const double correction = std::sqrt(1 - Power(rule.beta_2, u.step)) / (1 - Power(rule.beta_1, u.step));
    c.alpha = static_cast<float>(u.learning_rate * correction);
  }
  return c;
}

void ApplyTrainable(const OptimizerRule& rule, const Coefficients& c, const Update& u, int64_t begin, int64_t n) {
  const float* w = u.values.data() + begin;
  float* io = u.gradient.data() + begin;
  const auto slot = [&](size_t i) { return u.slots[i].data() + begin; };
  switch (rule.rule) {
    case UpdateRule::kSgd:
      return Sgd(w, io, n, c);
    case UpdateRule::kMomentum:
      return Momentum(w, io, slot(0), n, c);
    case UpdateRule::kNesterov:
      return Nesterov(w, io, slot(0), n, c);
    case UpdateRule::kAdagrad:
      return Adagrad(w, io, slot(0), n, c);
    case UpdateRule::kRmsProp:
      if (rule.centered && rule.momentum > 0) return RmsPropCenteredMomentum(w, io, slot(0), slot(1), slot(2), n, c);
      if (rule.centered) return RmsPropCentered(w, io, slot(0), slot(1), n, c);
      if (rule.momentum > 0) return RmsPropMomentum(w, io, slot(0), slot(1), n, c);
      return RmsProp(w, io, slot(0), n, c);
    case UpdateRule::kAdam:
    case UpdateRule::kAdamW:
      if (rule.amsgrad) return AdamAmsgrad(w, io, slot(0), slot(1), slot(2), n, c);
      return Adam(w, io, slot(0), slot(1), n, c);
  }
}

}  // namespace

OptimizerRule OptimizerRule::From(const v1::Optimizer& optimizer) {
  OptimizerRule r;
  const auto adam = [&r](const auto& a) {
    r.beta_1 = a.has_beta_1() ? Decimal(a.beta_1()) : 0.9;
    r.beta_2 = a.has_beta_2() ? Decimal(a.beta_2()) : 0.999;
    r.epsilon = a.has_epsilon() ? Decimal(a.epsilon()) : 1e-7;
    r.amsgrad = a.amsgrad();
  };
  switch (optimizer.kind_case()) {
    case v1::Optimizer::kSgd:
      r.momentum = Decimal(optimizer.sgd().momentum());
      if (r.momentum != 0) r.rule = optimizer.sgd().nesterov() ? UpdateRule::kNesterov : UpdateRule::kMomentum;
      break;
    case v1::Optimizer::kAdagrad: {
      const v1::Adagrad& a = optimizer.adagrad();
      r.rule = UpdateRule::kAdagrad;
      r.initial_accumulator_value = a.has_initial_accumulator_value() ? Decimal(a.initial_accumulator_value()) : 0.1;
      r.epsilon = a.has_epsilon() ? Decimal(a.epsilon()) : 1e-7;
      break;
    }
    case v1::Optimizer::kRmsprop: {
      const v1::RmsProp& p = optimizer.rmsprop();
      r.rule = UpdateRule::kRmsProp;
      r.rho = p.has_rho() ? Decimal(p.rho()) : 0.9;
      r.momentum = Decimal(p.momentum());
      r.epsilon = p.has_epsilon() ? Decimal(p.epsilon()) : 1e-7;
      r.centered = p.centered();
      break;
    }
    case v1::Optimizer::kAdam:
      r.rule = UpdateRule::kAdam;
      adam(optimizer.adam());
      break;
    case v1::Optimizer::kAdamw:
      r.rule = UpdateRule::kAdamW;
      adam(optimizer.adamw());
      r.weight_decay = optimizer.adamw().has_weight_decay() ? Decimal(optimizer.adamw().weight_decay()) : 0.004;
      break;
    case v1::Optimizer::KIND_NOT_SET:
      break;
  }
  return r;
}

int OptimizerRule::slots() const {
  switch (rule) {
    case UpdateRule::kSgd:
      return 0;
    case UpdateRule::kMomentum:
    case UpdateRule::kNesterov:
    case UpdateRule::kAdagrad:
      return 1;
    case UpdateRule::kRmsProp:
      return 1 + (momentum > 0 ? 1 : 0) + (centered ? 1 : 0);
    case UpdateRule::kAdam:
    case UpdateRule::kAdamW:
      return amsgrad ? 3 : 2;
  }
  return 0;
}

void ApplyUpdate(const OptimizerRule& rule, absl::Span<const Segment> segments, const Update& u) {
  CAIRN_CHECK(u.examples > 0 && u.step > 0, "an update counts from 1 and has examples");
  CAIRN_CHECK(u.gradient.size() == u.values.size() && u.slots.size() == static_cast<size_t>(rule.slots()), "sizes");
  const Coefficients c = MakeCoefficients(rule, u);
  int64_t done = 0;  // everything before it holds new values
  for (const Segment& s : segments) {
    std::fill(u.gradient.begin() + done, u.gradient.begin() + s.begin, 0.0f);
    if (s.moving_average) {
      MovingAverage(u.values.data() + s.begin, u.gradient.data() + s.begin, s.end - s.begin, c.examples, s.momentum,
                    static_cast<float>(1 - Decimal(s.momentum)));
    } else {
      ApplyTrainable(rule, c, u, s.begin, s.end - s.begin);
    }
    done = s.end;
  }
  std::fill(u.gradient.begin() + done, u.gradient.end(), 0.0f);
}

}  // namespace cairn
