// OptimizerRule: a job's optimizer with Keras' defaults.
#include "common/base/decimal.h"
#include "common/model/optimizer_check.h"
#include "server/core/optimizer.h"

namespace cairn {
namespace {

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

OptimizerRule OptimizerRule::From(const v1::Optimizer& optimizer) {
  OptimizerRule r;
  const auto betas = [&r](const auto& a, double default_beta_2) {
    r.beta_1 = a.has_beta_1() ? Decimal(a.beta_1()) : 0.9;
    r.beta_2 = a.has_beta_2() ? Decimal(a.beta_2()) : default_beta_2;
  };
  const auto adam = [&](const auto& a) {
    betas(a, 0.999);
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
      break;
    case v1::Optimizer::kAdadelta:
      r.rule = UpdateRule::kAdadelta;
      r.rho = optimizer.adadelta().has_rho() ? Decimal(optimizer.adadelta().rho()) : 0.95;
      r.epsilon = optimizer.adadelta().has_epsilon() ? Decimal(optimizer.adadelta().epsilon()) : 1e-7;
      break;
    case v1::Optimizer::kAdamax:
      r.rule = UpdateRule::kAdamax;
      betas(optimizer.adamax(), 0.999);
      r.epsilon = optimizer.adamax().has_epsilon() ? Decimal(optimizer.adamax().epsilon()) : 1e-7;
      break;
    case v1::Optimizer::kNadam:
      r.rule = UpdateRule::kNadam;
      betas(optimizer.nadam(), 0.999);
      r.epsilon = optimizer.nadam().has_epsilon() ? Decimal(optimizer.nadam().epsilon()) : 1e-7;
      break;
    case v1::Optimizer::kFtrl: TakeFtrl(optimizer.ftrl(), &r); break;
    case v1::Optimizer::kLion:
      r.rule = UpdateRule::kLion;
      betas(optimizer.lion(), 0.99);
      break;
    case v1::Optimizer::kLamb:
      r.rule = UpdateRule::kLamb;
      betas(optimizer.lamb(), 0.999);
      r.epsilon = optimizer.lamb().has_epsilon() ? Decimal(optimizer.lamb().epsilon()) : 1e-7;
      break;
    case v1::Optimizer::kAdafactor: TakeAdafactor(optimizer.adafactor(), &r); break;
    case v1::Optimizer::kMuon: TakeMuon(optimizer.muon(), &r); break;
    case v1::Optimizer::kScheduleFreeAdamw: {
      const v1::ScheduleFreeAdamW& a = optimizer.schedule_free_adamw();
      r.rule = UpdateRule::kScheduleFreeAdamW;
      betas(a, 0.999);
      r.epsilon = a.has_epsilon() ? Decimal(a.epsilon()) : 1e-8;
      r.own.warmup_steps = static_cast<uint64_t>(a.warmup_steps());
      break;
    }
    default: break;
  }
  const bool own_default = (optimizer.has_adamw() && !optimizer.adamw().has_weight_decay()) ||
                           (optimizer.has_muon() && !optimizer.muon().has_weight_decay());
  r.weight_decay = own_default ? 0.004 : Decimal(WeightDecayOf(optimizer));
  r.clipvalue = optimizer.clipvalue();
  r.ema = optimizer.has_ema();
  r.ema_momentum = optimizer.ema().has_momentum() ? Decimal(optimizer.ema().momentum()) : 0.99;
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
