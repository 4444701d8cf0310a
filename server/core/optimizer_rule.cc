// OptimizerRule: a job's optimizer with Keras' defaults.
#include "common/base/decimal.h"
#include "common/model/optimizer_check.h"
#include "server/core/optimizer.h"

namespace cairn {
namespace {

template <typename Optimizer>
void TakeBetas(const Optimizer& a, double default_beta_2, OptimizerRule* r) {
  r->beta_1 = a.has_beta_1() ? Decimal(a.beta_1()) : 0.9;
  r->beta_2 = a.has_beta_2() ? Decimal(a.beta_2()) : default_beta_2;
}

template <typename Optimizer>
void TakeEpsilon(const Optimizer& a, OptimizerRule* r, double default_epsilon = 1e-7) {
  r->epsilon = a.has_epsilon() ? Decimal(a.epsilon()) : default_epsilon;
}

// Those with betas and epsilon as Adam has them.
template <typename Optimizer>
void TakeAdam(UpdateRule rule, const Optimizer& a, OptimizerRule* r) {
  r->rule = rule;
  TakeBetas(a, 0.999, r);
  TakeEpsilon(a, r);
}

void TakeSgd(const v1::Sgd& sgd, OptimizerRule* r) {
  r->momentum = Decimal(sgd.momentum());
  if (r->momentum != 0) r->rule = sgd.nesterov() ? UpdateRule::kNesterov : UpdateRule::kMomentum;
}

void TakeAdagrad(const v1::Adagrad& a, OptimizerRule* r) {
  r->rule = UpdateRule::kAdagrad;
  r->initial_accumulator_value = a.has_initial_accumulator_value() ? Decimal(a.initial_accumulator_value()) : 0.1;
  TakeEpsilon(a, r);
}

void TakeRmsProp(const v1::RmsProp& p, OptimizerRule* r) {
  r->rule = UpdateRule::kRmsProp;
  r->rho = p.has_rho() ? Decimal(p.rho()) : 0.9;
  r->momentum = Decimal(p.momentum());
  TakeEpsilon(p, r);
  r->centered = p.centered();
}

void TakeAdadelta(const v1::Adadelta& a, OptimizerRule* r) {
  r->rule = UpdateRule::kAdadelta;
  r->rho = a.has_rho() ? Decimal(a.rho()) : 0.95;
  TakeEpsilon(a, r);
}

void TakeLion(const v1::Lion& lion, OptimizerRule* r) {
  r->rule = UpdateRule::kLion;
  TakeBetas(lion, 0.99, r);
}

void TakeScheduleFree(const v1::ScheduleFreeAdamW& a, OptimizerRule* r) {
  r->rule = UpdateRule::kScheduleFreeAdamW;
  TakeBetas(a, 0.999, r);
  TakeEpsilon(a, r, 1e-8);
  r->own.warmup_steps = static_cast<uint64_t>(a.warmup_steps());
}

void TakeFtrl(const v1::Ftrl& ftrl, OptimizerRule* r) {
  r->rule = UpdateRule::kFtrl;
  r->initial_accumulator_value = ftrl.has_initial_accumulator_value() ? Decimal(ftrl.initial_accumulator_value()) : 0.1;
  FtrlRule& own = r->own.ftrl;
  own.learning_rate_power = ftrl.has_learning_rate_power() ? Decimal(ftrl.learning_rate_power()) : -0.5;
  own.l1 = Decimal(ftrl.l1_regularization_strength());
  own.l2 = Decimal(ftrl.l2_regularization_strength());
  own.l2_shrinkage = Decimal(ftrl.l2_shrinkage_regularization_strength());
  own.beta = Decimal(ftrl.beta());
}

void TakeAdafactor(const v1::Adafactor& adafactor, OptimizerRule* r) {
  r->rule = UpdateRule::kAdafactor;
  AdafactorRule& own = r->own.adafactor;
  own.beta_2_decay = adafactor.has_beta_2_decay() ? Decimal(adafactor.beta_2_decay()) : -0.8;
  own.epsilon_1 = adafactor.has_epsilon_1() ? Decimal(adafactor.epsilon_1()) : 1e-30;
  own.epsilon_2 = adafactor.has_epsilon_2() ? Decimal(adafactor.epsilon_2()) : 1e-3;
  own.clip_threshold = adafactor.has_clip_threshold() ? Decimal(adafactor.clip_threshold()) : 1;
}

void TakeMuon(const v1::Muon& muon, OptimizerRule* r) {
  r->rule = UpdateRule::kMuon;
  r->momentum = muon.has_momentum() ? Decimal(muon.momentum()) : 0.95;
  r->beta_1 = muon.has_adam_beta_1() ? Decimal(muon.adam_beta_1()) : 0.9;
  r->beta_2 = muon.has_adam_beta_2() ? Decimal(muon.adam_beta_2()) : 0.999;
  r->epsilon = muon.has_epsilon() ? Decimal(muon.epsilon()) : 1e-7;
  MuonRule& own = r->own.muon;
  own.a = muon.has_muon_a() ? Decimal(muon.muon_a()) : 3.4445;
  own.b = muon.has_muon_b() ? Decimal(muon.muon_b()) : -4.775;
  own.c = muon.has_muon_c() ? Decimal(muon.muon_c()) : 2.0315;
  own.rms_rate = muon.has_rms_rate() ? Decimal(muon.rms_rate()) : 0.2;
  own.adam_lr_ratio = muon.has_adam_lr_ratio() ? Decimal(muon.adam_lr_ratio()) : 1;
  own.adam_weight_decay = muon.has_adam_weight_decay() ? Decimal(muon.adam_weight_decay()) : 0.004;
  own.steps = muon.has_ns_steps() ? muon.ns_steps() : 5;
  own.nesterov = !muon.has_nesterov() || muon.nesterov();
}

}  // namespace

OptimizerRule OptimizerRule::From(const v1::Optimizer& o) {
  OptimizerRule r;
  switch (o.kind_case()) {
    case v1::Optimizer::kSgd: TakeSgd(o.sgd(), &r); break;
    case v1::Optimizer::kAdagrad: TakeAdagrad(o.adagrad(), &r); break;
    case v1::Optimizer::kRmsprop: TakeRmsProp(o.rmsprop(), &r); break;
    case v1::Optimizer::kAdam:
      TakeAdam(UpdateRule::kAdam, o.adam(), &r);
      r.amsgrad = o.adam().amsgrad();
      r.corrected_epsilon = o.adam().corrected_epsilon();
      break;
    case v1::Optimizer::kAdamw:
      TakeAdam(UpdateRule::kAdamW, o.adamw(), &r);
      r.amsgrad = o.adamw().amsgrad();
      r.corrected_epsilon = o.adamw().corrected_epsilon();
      break;
    case v1::Optimizer::kAdadelta: TakeAdadelta(o.adadelta(), &r); break;
    case v1::Optimizer::kAdamax: TakeAdam(UpdateRule::kAdamax, o.adamax(), &r); break;
    case v1::Optimizer::kNadam: TakeAdam(UpdateRule::kNadam, o.nadam(), &r); break;
    case v1::Optimizer::kFtrl: TakeFtrl(o.ftrl(), &r); break;
    case v1::Optimizer::kLion: TakeLion(o.lion(), &r); break;
    case v1::Optimizer::kLamb: TakeAdam(UpdateRule::kLamb, o.lamb(), &r); break;
    case v1::Optimizer::kAdafactor: TakeAdafactor(o.adafactor(), &r); break;
    case v1::Optimizer::kMuon: TakeMuon(o.muon(), &r); break;
    case v1::Optimizer::kScheduleFreeAdamw: TakeScheduleFree(o.schedule_free_adamw(), &r); break;
    default: break;
  }
  const bool own_default =
      (o.has_adamw() && !o.adamw().has_weight_decay()) || (o.has_muon() && !o.muon().has_weight_decay());
  r.weight_decay = own_default ? 0.004 : Decimal(WeightDecayOf(o));
  r.clipvalue = o.clipvalue();
  r.ema = o.has_ema();
  r.ema_momentum = o.ema().has_momentum() ? Decimal(o.ema().momentum()) : 0.99;
  return r;
}

int OptimizerRule::rule_slots() const {
  switch (rule) {
    case UpdateRule::kSgd: return 0;
    case UpdateRule::kMomentum:
    case UpdateRule::kNesterov:
    case UpdateRule::kAdagrad: return 1;
    case UpdateRule::kRmsProp: return 1 + (momentum > 0 ? 1 : 0) + (centered ? 1 : 0);
    case UpdateRule::kAdam:
    case UpdateRule::kAdamW: return amsgrad ? 3 : 2;
    case UpdateRule::kAdadelta:
    case UpdateRule::kAdamax:
    case UpdateRule::kNadam:
    case UpdateRule::kFtrl:
    case UpdateRule::kLamb:
    case UpdateRule::kMuon:
    case UpdateRule::kScheduleFreeAdamW: return 2;
    case UpdateRule::kLion:
    case UpdateRule::kAdafactor: return 1;
  }
  return 0;
}

}  // namespace cairn
