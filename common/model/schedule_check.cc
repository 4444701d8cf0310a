#include "common/model/schedule_check.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/model/limits.h"
#include "common/model/number_check.h"

namespace cairn {
namespace {

// Checks one schedule. `kind`: its field's name.
class Checker {
 public:
  explicit Checker(const char* kind) : prefix_(absl::StrCat("optimizer.schedule.", kind, ".")) {}

  template <typename... Args>
  absl::Status Bad(const Args&... args) const {
    return absl::InvalidArgumentError(absl::StrCat(prefix_, args...));
  }
  absl::Status Steps(const char* field, int64_t steps) const {
    if (steps == 0) return Bad(field, ": missing; use a number of steps such as 1000");
    return StepCount(field, steps);
  }
  absl::Status StepCount(const char* field, int64_t steps) const {
    if (steps < 0) return Bad(field, ": ", steps, " is negative; use a number of steps such as 1000");
    if (steps > kScheduleStepsMax) return Bad(field, ": ", steps, " is above the limit of ", kScheduleStepsMax);
    return absl::OkStatus();
  }
  absl::Status Positive(const char* field, float value, float usual) const {
    return CheckPositive(prefix_ + field, value, usual);
  }
  absl::Status NotNegative(const std::string& field, float value, float usual) const {
    return CheckNotNegative(prefix_ + field, value, usual);
  }
  absl::Status Fraction(const char* field, float value) const {
    if (value >= 0 && value <= 1) return absl::OkStatus();
    return Bad(field, ": ", value, " is outside [0, 1]; it is the part of the learning rate that is left in the end");
  }

 private:
  const std::string prefix_;
};

absl::Status CheckPiecewise(v1::Optimizer* optimizer) {
  const Checker check("piecewise_constant_decay");
  const v1::PiecewiseConstantDecay& p = optimizer->schedule().piecewise_constant_decay();
  if (p.boundaries().empty()) {
    return check.Bad("boundaries: missing; name the steps after which the rate changes, such as 1000");
  }
  for (int i = 0; i < p.boundaries_size(); ++i) {
    CAIRN_RETURN_IF_ERROR(check.StepCount(absl::StrCat("boundaries[", i, "]").c_str(), p.boundaries(i)));
    if (i > 0 && p.boundaries(i) <= p.boundaries(i - 1)) {
      return check.Bad("boundaries[", i, "]: ", p.boundaries(i), " does not rise above ", p.boundaries(i - 1),
                       "; put them in rising order");
    }
  }
  if (p.values_size() != p.boundaries_size() + 1) {
    return check.Bad("values: ", p.values_size(), " of them with ", p.boundaries_size(), " boundaries; give ",
                     p.boundaries_size() + 1, ", one more");
  }
  for (int i = 0; i < p.values_size(); ++i) {
    CAIRN_RETURN_IF_ERROR(check.NotNegative(absl::StrCat("values[", i, "]"), p.values(i), 0.01f));
  }
  if (optimizer->has_learning_rate() && optimizer->learning_rate() != p.values(0)) {
    return absl::InvalidArgumentError(absl::StrCat("optimizer.learning_rate: ", optimizer->learning_rate(),
                                                   ", but piecewise_constant_decay begins with ", p.values(0),
                                                   "; leave learning_rate out"));
  }
  optimizer->set_learning_rate(p.values(0));
  return absl::OkStatus();
}

absl::Status CheckCosine(const v1::CosineDecay& c) {
  const Checker check("cosine_decay");
  CAIRN_RETURN_IF_ERROR(check.Steps("decay_steps", c.decay_steps()));
  CAIRN_RETURN_IF_ERROR(check.Fraction("alpha", c.alpha()));
  CAIRN_RETURN_IF_ERROR(check.StepCount("warmup_steps", c.warmup_steps()));
  if (c.warmup_steps() > 0 && !c.has_warmup_target()) {
    return check.Bad("warmup_target: missing, with warmup_steps: ", c.warmup_steps(),
                     "; name the learning rate that the warm-up leads to");
  }
  if (c.has_warmup_target() && c.warmup_steps() == 0) {
    return check.Bad("warmup_steps: missing, with warmup_target: ", c.warmup_target(),
                     "; use a number of steps such as 100");
  }
  return c.has_warmup_target() ? check.NotNegative("warmup_target", c.warmup_target(), 0.1f) : absl::OkStatus();
}

absl::Status CheckRestarts(v1::CosineDecayRestarts* c) {
  const Checker check("cosine_decay_restarts");
  if (!c->has_t_mul()) c->set_t_mul(2);
  if (!c->has_m_mul()) c->set_m_mul(1);
  CAIRN_RETURN_IF_ERROR(check.Steps("first_decay_steps", c->first_decay_steps()));
  if (!(c->t_mul() >= 1) || !std::isfinite(c->t_mul())) {
    return check.Bad("t_mul: ", c->t_mul(), " is not 1 or more; use 1 for periods of one length, 2 for doubled ones");
  }
  CAIRN_RETURN_IF_ERROR(check.Positive("m_mul", c->m_mul(), 1));
  return check.Fraction("alpha", c->alpha());
}

}  // namespace

absl::Status ResolveSchedule(v1::Optimizer* optimizer) {
  if (!optimizer->has_schedule()) return absl::OkStatus();
  v1::LearningRateSchedule* s = optimizer->mutable_schedule();
  switch (s->kind_case()) {
    case v1::LearningRateSchedule::kConstant: return absl::OkStatus();
    case v1::LearningRateSchedule::kPiecewiseConstantDecay: return CheckPiecewise(optimizer);
    case v1::LearningRateSchedule::kExponentialDecay: {
      const Checker check("exponential_decay");
      CAIRN_RETURN_IF_ERROR(check.Steps("decay_steps", s->exponential_decay().decay_steps()));
      return check.Positive("decay_rate", s->exponential_decay().decay_rate(), 0.96f);
    }
    case v1::LearningRateSchedule::kPolynomialDecay: {
      const Checker check("polynomial_decay");
      v1::PolynomialDecay* p = s->mutable_polynomial_decay();
      if (!p->has_end_learning_rate()) p->set_end_learning_rate(0.0001f);
      if (!p->has_power()) p->set_power(1);
      CAIRN_RETURN_IF_ERROR(check.Steps("decay_steps", p->decay_steps()));
      CAIRN_RETURN_IF_ERROR(check.NotNegative("end_learning_rate", p->end_learning_rate(), 0.0001f));
      return check.Positive("power", p->power(), 1);
    }
    case v1::LearningRateSchedule::kInverseTimeDecay: {
      const Checker check("inverse_time_decay");
      CAIRN_RETURN_IF_ERROR(check.Steps("decay_steps", s->inverse_time_decay().decay_steps()));
      return check.Positive("decay_rate", s->inverse_time_decay().decay_rate(), 0.5f);
    }
    case v1::LearningRateSchedule::kCosineDecay: return CheckCosine(s->cosine_decay());
    case v1::LearningRateSchedule::kCosineDecayRestarts: return CheckRestarts(s->mutable_cosine_decay_restarts());
    case v1::LearningRateSchedule::KIND_NOT_SET: break;
  }
  return absl::InvalidArgumentError(
      "optimizer.schedule: empty; use schedule { cosine_decay { decay_steps: 1000 } }, say, or leave it out");
}

bool MayBeginAtZero(const v1::Optimizer& optimizer) {
  return optimizer.schedule().cosine_decay().warmup_steps() > 0 || optimizer.schedule().has_piecewise_constant_decay();
}

}  // namespace cairn
