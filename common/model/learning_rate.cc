#include "common/model/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/base/decimal.h"

namespace cairn {
namespace {

float Piecewise(const v1::PiecewiseConstantDecay& p, int64_t step) {
  const auto reached = std::lower_bound(p.boundaries().begin(), p.boundaries().end(), step) - p.boundaries().begin();
  return p.values(static_cast<int>(reached));
}

double Progress(int64_t step, int64_t decay_steps, bool staircase) {
  const double p = static_cast<double>(step) / static_cast<double>(decay_steps);
  return staircase ? std::floor(p) : p;
}

double Polynomial(const v1::PolynomialDecay& p, double rate, int64_t step) {
  const double end = Decimal(p.end_learning_rate());
  int64_t steps = p.decay_steps();
  if (p.cycle()) {
    steps *= std::max<int64_t>(1, (step + steps - 1) / steps);
  } else {
    step = std::min(step, steps);
  }
  const double left = 1 - static_cast<double>(step) / static_cast<double>(steps);
  return (rate - end) * std::pow(left, Decimal(p.power())) + end;
}

// `done`: how much of the decay to alpha is done, 0 .. 1.
double Cosine(double amplitude, double alpha, double done) {
  return (1 - alpha) * amplitude * 0.5 * (1 + std::cos(std::numbers::pi * done)) + alpha;
}

double CosineFrom(const v1::CosineDecay& c, double rate, int64_t step) {
  if (c.warmup_steps() > 0) {
    const double target = Decimal(c.warmup_target());
    if (step < c.warmup_steps()) {
      return rate + (target - rate) * (static_cast<double>(step) / static_cast<double>(c.warmup_steps()));
    }
    rate = target;
    step -= c.warmup_steps();
  }
  const double done = static_cast<double>(std::min(step, c.decay_steps())) / static_cast<double>(c.decay_steps());
  return rate * Cosine(1, Decimal(c.alpha()), done);
}

double Restarts(const v1::CosineDecayRestarts& c, double rate, int64_t step) {
  const double t = Decimal(c.t_mul());
  const double at = static_cast<double>(step) / static_cast<double>(c.first_decay_steps());
  double period = std::floor(at), begin = period, length = 1;
  if (t != 1) {
    // Rounding may place the first step of a period before it, and make the logarithm off by one.
    const double reached = at * (1 + 1e-12);
    const auto begin_of = [t](double i) { return (std::pow(t, i) - 1) / (t - 1); };
    period = std::max(0.0, std::floor(std::log1p(at * (t - 1)) / std::log(t)));
    while (begin_of(period + 1) <= reached) ++period;
    while (period > 0 && begin_of(period) > reached) --period;
    begin = begin_of(period);
    length = std::pow(t, period);
  }
  return rate * Cosine(std::pow(Decimal(c.m_mul()), period), Decimal(c.alpha()), std::max(0.0, (at - begin) / length));
}

}  // namespace

float LearningRateAt(const v1::JobSpec& spec, int64_t step) { return LearningRateAt(spec.optimizer(), step); }

float LearningRateAt(const v1::Optimizer& optimizer, int64_t step) {
  const v1::LearningRateSchedule& s = optimizer.schedule();
  const double rate = Decimal(optimizer.learning_rate());
  switch (s.kind_case()) {
    case v1::LearningRateSchedule::KIND_NOT_SET:
    case v1::LearningRateSchedule::kConstant: return optimizer.learning_rate();
    case v1::LearningRateSchedule::kPiecewiseConstantDecay: return Piecewise(s.piecewise_constant_decay(), step);
    case v1::LearningRateSchedule::kExponentialDecay: {
      const v1::ExponentialDecay& e = s.exponential_decay();
      const double p = Progress(step, e.decay_steps(), e.staircase());
      return static_cast<float>(rate * std::pow(Decimal(e.decay_rate()), p));
    }
    case v1::LearningRateSchedule::kPolynomialDecay:
      return static_cast<float>(Polynomial(s.polynomial_decay(), rate, step));
    case v1::LearningRateSchedule::kInverseTimeDecay: {
      const v1::InverseTimeDecay& d = s.inverse_time_decay();
      return static_cast<float>(rate / (1 + Decimal(d.decay_rate()) * Progress(step, d.decay_steps(), d.staircase())));
    }
    case v1::LearningRateSchedule::kCosineDecay: return static_cast<float>(CosineFrom(s.cosine_decay(), rate, step));
    case v1::LearningRateSchedule::kCosineDecayRestarts:
      return static_cast<float>(Restarts(s.cosine_decay_restarts(), rate, step));
  }
  return optimizer.learning_rate();
}

bool EmaOverwritesAfter(const v1::Optimizer& optimizer, int64_t step, int64_t total_steps) {
  if (!optimizer.has_ema()) return false;
  const int64_t every = optimizer.ema().overwrite_frequency();
  return step + 1 == total_steps || (every > 0 && (step + 1) % every == 0);
}

}  // namespace cairn
