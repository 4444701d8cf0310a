#include "common/model/optimizer_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/model/limits.h"
#include "common/model/number_check.h"
#include "common/model/optimizer_variables.h"
#include "common/model/schedule_check.h"

namespace cairn {
namespace {

absl::Status InUnitInterval(const char* field, float value, float usual) {
  if (value >= 0 && value < 1) return absl::OkStatus();
  return Bad("optimizer.", field, ": ", value, " is outside [0, 1); use a number such as ", usual);
}

absl::Status Positive(const char* field, float value, float usual) {
  return CheckPositive(absl::StrCat("optimizer.", field), value, usual);
}

absl::Status NotNegative(const char* field, float value, float usual) {
  return CheckNotNegative(absl::StrCat("optimizer.", field), value, usual);
}

absl::Status ResolveSgd(const v1::Sgd& sgd, std::vector<std::string>* warnings) {
  if (sgd.nesterov() && sgd.momentum() == 0) {
    warnings->push_back("optimizer.sgd.nesterov: it has no effect without momentum; set momentum: 0.9, say");
  }
  return InUnitInterval("sgd.momentum", sgd.momentum(), 0.9f);
}

absl::Status ResolveAdagrad(v1::Adagrad* adagrad) {
  if (!adagrad->has_initial_accumulator_value()) adagrad->set_initial_accumulator_value(0.1f);
  if (!adagrad->has_epsilon()) adagrad->set_epsilon(1e-7f);
  CAIRN_RETURN_IF_ERROR(NotNegative("adagrad.initial_accumulator_value", adagrad->initial_accumulator_value(), 0.1f));
  return Positive("adagrad.epsilon", adagrad->epsilon(), 1e-7f);
}

absl::Status ResolveRmsProp(v1::RmsProp* rmsprop) {
  if (!rmsprop->has_rho()) rmsprop->set_rho(0.9f);
  if (!rmsprop->has_epsilon()) rmsprop->set_epsilon(1e-7f);
  CAIRN_RETURN_IF_ERROR(InUnitInterval("rmsprop.rho", rmsprop->rho(), 0.9f));
  CAIRN_RETURN_IF_ERROR(InUnitInterval("rmsprop.momentum", rmsprop->momentum(), 0.9f));
  return Positive("rmsprop.epsilon", rmsprop->epsilon(), 1e-7f);
}

absl::Status ResolveAdadelta(v1::Adadelta* adadelta) {
  if (!adadelta->has_rho()) adadelta->set_rho(0.95f);
  if (!adadelta->has_epsilon()) adadelta->set_epsilon(1e-7f);
  CAIRN_RETURN_IF_ERROR(InUnitInterval("adadelta.rho", adadelta->rho(), 0.95f));
  return Positive("adadelta.epsilon", adadelta->epsilon(), 1e-7f);
}

absl::Status ResolveLion(v1::Lion* lion) {
  if (!lion->has_beta_1()) lion->set_beta_1(0.9f);
  if (!lion->has_beta_2()) lion->set_beta_2(0.99f);
  CAIRN_RETURN_IF_ERROR(InUnitInterval("lion.beta_1", lion->beta_1(), 0.9f));
  return InUnitInterval("lion.beta_2", lion->beta_2(), 0.99f);
}

absl::Status ResolveFtrl(v1::Ftrl* ftrl) {
  if (!ftrl->has_learning_rate_power()) ftrl->set_learning_rate_power(-0.5f);
  if (!ftrl->has_initial_accumulator_value()) ftrl->set_initial_accumulator_value(0.1f);
  const float power = ftrl->learning_rate_power();
  if (power != 0 && power != -0.5f && power != -1) {
    return Bad("optimizer.ftrl.learning_rate_power: ", power,
               " is not 0, -0.5 or -1, whose powers are roots: the same bits on every processor; use -0.5");
  }
  CAIRN_RETURN_IF_ERROR(NotNegative("ftrl.initial_accumulator_value", ftrl->initial_accumulator_value(), 0.1f));
  CAIRN_RETURN_IF_ERROR(NotNegative("ftrl.l1_regularization_strength", ftrl->l1_regularization_strength(), 0.01f));
  CAIRN_RETURN_IF_ERROR(NotNegative("ftrl.l2_regularization_strength", ftrl->l2_regularization_strength(), 0.01f));
  CAIRN_RETURN_IF_ERROR(
      NotNegative("ftrl.l2_shrinkage_regularization_strength", ftrl->l2_shrinkage_regularization_strength(), 0.01f));
  return NotNegative("ftrl.beta", ftrl->beta(), 1);
}

// Adam and the optimizers with the same parameters.
template <typename AdamLike>
absl::Status ResolveAdam(const std::string& name, AdamLike* adam) {
  if (!adam->has_beta_1()) adam->set_beta_1(0.9f);
  if (!adam->has_beta_2()) adam->set_beta_2(0.999f);
  if (!adam->has_epsilon()) adam->set_epsilon(1e-7f);
  CAIRN_RETURN_IF_ERROR(InUnitInterval((name + ".beta_1").c_str(), adam->beta_1(), 0.9f));
  CAIRN_RETURN_IF_ERROR(InUnitInterval((name + ".beta_2").c_str(), adam->beta_2(), 0.999f));
  return Positive((name + ".epsilon").c_str(), adam->epsilon(), 1e-7f);
}

absl::Status ResolveAdafactor(v1::Adafactor* adafactor) {
  if (!adafactor->has_beta_2_decay()) adafactor->set_beta_2_decay(-0.8f);
  if (!adafactor->has_epsilon_1()) adafactor->set_epsilon_1(1e-30f);
  if (!adafactor->has_epsilon_2()) adafactor->set_epsilon_2(1e-3f);
  if (!adafactor->has_clip_threshold()) adafactor->set_clip_threshold(1);
  if (!adafactor->has_relative_step()) adafactor->set_relative_step(true);
  if (const float decay = adafactor->beta_2_decay(); !(decay < 0 && decay >= -kBeta2DecayMax)) {
    return Bad("optimizer.adafactor.beta_2_decay: ", decay, " is outside [-", kBeta2DecayMax,
               ", 0); use a number such as -0.8");
  }
  CAIRN_RETURN_IF_ERROR(Positive("adafactor.epsilon_1", adafactor->epsilon_1(), 1e-30f));
  CAIRN_RETURN_IF_ERROR(NotNegative("adafactor.epsilon_2", adafactor->epsilon_2(), 1e-3f));
  return Positive("adafactor.clip_threshold", adafactor->clip_threshold(), 1);
}

void FillIn(v1::Muon* muon) {
  if (!muon->has_weight_decay()) muon->set_weight_decay(0.004f);
  if (!muon->has_adam_weight_decay()) muon->set_adam_weight_decay(0.004f);
  if (!muon->has_adam_beta_1()) muon->set_adam_beta_1(0.9f);
  if (!muon->has_adam_beta_2()) muon->set_adam_beta_2(0.999f);
  if (!muon->has_epsilon()) muon->set_epsilon(1e-7f);
  if (!muon->has_adam_lr_ratio()) muon->set_adam_lr_ratio(1);
  if (!muon->has_momentum()) muon->set_momentum(0.95f);
  if (!muon->has_nesterov()) muon->set_nesterov(true);
  if (!muon->has_ns_steps()) muon->set_ns_steps(5);
  if (!muon->has_muon_a()) muon->set_muon_a(3.4445f);
  if (!muon->has_muon_b()) muon->set_muon_b(-4.775f);
  if (!muon->has_muon_c()) muon->set_muon_c(2.0315f);
  if (!muon->has_rms_rate()) muon->set_rms_rate(0.2f);
  if (!muon->has_exclude_embeddings()) muon->set_exclude_embeddings(true);
}

absl::Status ResolveMuon(v1::Muon* muon) {
  FillIn(muon);
  CAIRN_RETURN_IF_ERROR(NotNegative("muon.weight_decay", muon->weight_decay(), 0.004f));
  CAIRN_RETURN_IF_ERROR(NotNegative("muon.adam_weight_decay", muon->adam_weight_decay(), 0.004f));
  CAIRN_RETURN_IF_ERROR(InUnitInterval("muon.adam_beta_1", muon->adam_beta_1(), 0.9f));
  CAIRN_RETURN_IF_ERROR(InUnitInterval("muon.adam_beta_2", muon->adam_beta_2(), 0.999f));
  CAIRN_RETURN_IF_ERROR(Positive("muon.epsilon", muon->epsilon(), 1e-7f));
  CAIRN_RETURN_IF_ERROR(NotNegative("muon.adam_lr_ratio", muon->adam_lr_ratio(), 1));
  CAIRN_RETURN_IF_ERROR(InUnitInterval("muon.momentum", muon->momentum(), 0.95f));
  CAIRN_RETURN_IF_ERROR(NotNegative("muon.rms_rate", muon->rms_rate(), 0.2f));
  if (muon->ns_steps() < 1 || muon->ns_steps() > kNewtonSchulzStepsMax) {
    return Bad("optimizer.muon.ns_steps: ", muon->ns_steps(), " is not within 1 .. ", kNewtonSchulzStepsMax,
               "; use 5, say");
  }
  const std::pair<const char*, float> factors[] = {
      {"muon_a", muon->muon_a()}, {"muon_b", muon->muon_b()}, {"muon_c", muon->muon_c()}};
  for (const auto& [field, value] : factors) {
    if (!std::isfinite(value)) return Bad("optimizer.muon.", field, ": ", value, " is not finite; leave it out");
  }
  return ExcludedLayersOf(*muon).status();
}

absl::Status ResolveScheduleFree(v1::ScheduleFreeAdamW* adamw) {
  if (!adamw->has_epsilon()) adamw->set_epsilon(1e-8f);
  CAIRN_RETURN_IF_ERROR(ResolveAdam("schedule_free_adamw", adamw));
  if (adamw->beta_1() == 0) {
    return Bad("optimizer.schedule_free_adamw.beta_1: is 0, but the average is divided by it; use 0.9, say");
  }
  if (adamw->warmup_steps() >= 0 && adamw->warmup_steps() <= kScheduleStepsMax) return absl::OkStatus();
  return Bad("optimizer.schedule_free_adamw.warmup_steps: ", adamw->warmup_steps(), " is not within 0 .. ",
             kScheduleStepsMax, "; use a number of steps such as 1000");
}

absl::Status CheckWeightDecay(const v1::Optimizer& optimizer) {
  CAIRN_RETURN_IF_ERROR(NotNegative("weight_decay", optimizer.weight_decay(), 0.004f));
  if (optimizer.has_adamw() && optimizer.weight_decay() != 0) {
    return Bad("optimizer.weight_decay: adamw has its own; set optimizer.adamw.weight_decay");
  }
  if (optimizer.has_muon() && optimizer.weight_decay() != 0) {
    return Bad("optimizer.weight_decay: muon has its own; set optimizer.muon.weight_decay and adam_weight_decay");
  }
  for (const std::string& text : optimizer.exclude_from_weight_decay()) {
    if (text.empty()) {
      return Bad("optimizer.exclude_from_weight_decay: an empty text is part of every name; use one such as \"bias\"");
    }
  }
  const bool decays = WeightDecayOf(optimizer) != 0 || optimizer.muon().adam_weight_decay() != 0;
  if (!optimizer.exclude_from_weight_decay().empty() && !decays) {
    return Bad(
        "optimizer.exclude_from_weight_decay: there is no weight decay to exclude from; set optimizer.weight_decay");
  }
  return absl::OkStatus();
}

absl::Status CheckClipping(const v1::Optimizer& optimizer) {
  const int given = optimizer.has_clipvalue() + optimizer.has_clipnorm() + optimizer.has_global_clipnorm();
  if (given > 1) {
    return Bad("optimizer.", optimizer.has_clipnorm() ? "clipnorm" : "clipvalue",
               ": at most one of clipvalue, clipnorm and global_clipnorm can be given; leave the others out");
  }
  if (optimizer.has_clipvalue()) return Positive("clipvalue", optimizer.clipvalue(), 1);
  if (optimizer.has_clipnorm()) return Positive("clipnorm", optimizer.clipnorm(), 1);
  return optimizer.has_global_clipnorm() ? Positive("global_clipnorm", optimizer.global_clipnorm(), 1)
                                         : absl::OkStatus();
}

absl::Status ResolveEma(v1::Optimizer* optimizer) {
  if (!optimizer->has_ema()) return absl::OkStatus();
  v1::Ema* ema = optimizer->mutable_ema();
  if (!ema->has_momentum()) ema->set_momentum(0.99f);
  CAIRN_RETURN_IF_ERROR(InUnitInterval("ema.momentum", ema->momentum(), 0.99f));
  if (ema->overwrite_frequency() >= 0) return absl::OkStatus();
  return Bad("optimizer.ema.overwrite_frequency: ", ema->overwrite_frequency(),
             " is negative; use a number of steps such as 100, or 0 for only the end");
}

}  // namespace

float WeightDecayOf(const v1::Optimizer& optimizer) {
  if (optimizer.has_muon()) return optimizer.muon().weight_decay();
  return optimizer.has_adamw() ? optimizer.adamw().weight_decay() : optimizer.weight_decay();
}

bool ExcludedFromWeightDecay(const v1::Optimizer& optimizer, const std::string& variable) {
  const auto& texts = optimizer.exclude_from_weight_decay();
  return std::any_of(texts.begin(), texts.end(),
                     [&](const std::string& text) { return variable.find(text) != std::string::npos; });
}

absl::Status CheckOptimizerAgainstJob(const v1::JobSpec& spec, const Graph& graph) {
  const v1::Optimizer& optimizer = spec.optimizer();
  const bool may_stop = std::any_of(spec.callbacks().begin(), spec.callbacks().end(),
                                    [](const v1::Callback& c) { return c.has_early_stopping(); });
  if (may_stop && optimizer.has_ema() && optimizer.ema().overwrite_frequency() == 0) {
    return Bad(
        "optimizer.ema: early_stopping ends the job at a step that is not known beforehand, at which the average "
        "should become "
        "the weights; set ema.overwrite_frequency to the steps of an epoch, or leave one of the two out");
  }
  for (const std::string& text : optimizer.exclude_from_weight_decay()) {
    const Variable* first = nullptr;
    bool found = false;
    for (const Variable& v : graph.variables()) {
      if (v.kind != VariableKind::kTrainable) continue;
      if (first == nullptr) first = &v;
      found = found || v.name.find(text) != std::string::npos;
    }
    if (found || first == nullptr) continue;
    return Bad("optimizer.exclude_from_weight_decay: \"", text,
               "\" is part of no trainable variable's name; they are like \"", first->name, "\"");
  }
  return CheckVariablesOf(optimizer, graph);
}

absl::Status ResolveOptimizer(v1::Optimizer* optimizer, std::vector<std::string>* warnings) {
  float learning_rate = 0.001f;
  switch (optimizer->kind_case()) {
    case v1::Optimizer::kSgd:
      learning_rate = 0.01f;
      CAIRN_RETURN_IF_ERROR(ResolveSgd(optimizer->sgd(), warnings));
      break;
    case v1::Optimizer::kAdagrad: CAIRN_RETURN_IF_ERROR(ResolveAdagrad(optimizer->mutable_adagrad())); break;
    case v1::Optimizer::kRmsprop: CAIRN_RETURN_IF_ERROR(ResolveRmsProp(optimizer->mutable_rmsprop())); break;
    case v1::Optimizer::kAdam: CAIRN_RETURN_IF_ERROR(ResolveAdam("adam", optimizer->mutable_adam())); break;
    case v1::Optimizer::kAdamw: {
      v1::AdamW* adamw = optimizer->mutable_adamw();
      if (!adamw->has_weight_decay()) adamw->set_weight_decay(0.004f);
      CAIRN_RETURN_IF_ERROR(ResolveAdam("adamw", adamw));
      CAIRN_RETURN_IF_ERROR(NotNegative("adamw.weight_decay", adamw->weight_decay(), 0.004f));
      break;
    }
    case v1::Optimizer::KIND_NOT_SET: return Bad("optimizer: missing; use optimizer { adam {} }, say");
    case v1::Optimizer::kAdadelta: CAIRN_RETURN_IF_ERROR(ResolveAdadelta(optimizer->mutable_adadelta())); break;
    case v1::Optimizer::kAdamax: CAIRN_RETURN_IF_ERROR(ResolveAdam("adamax", optimizer->mutable_adamax())); break;
    case v1::Optimizer::kNadam: CAIRN_RETURN_IF_ERROR(ResolveAdam("nadam", optimizer->mutable_nadam())); break;
    case v1::Optimizer::kFtrl: CAIRN_RETURN_IF_ERROR(ResolveFtrl(optimizer->mutable_ftrl())); break;
    case v1::Optimizer::kLion: CAIRN_RETURN_IF_ERROR(ResolveLion(optimizer->mutable_lion())); break;
    case v1::Optimizer::kLamb: CAIRN_RETURN_IF_ERROR(ResolveAdam("lamb", optimizer->mutable_lamb())); break;
    case v1::Optimizer::kAdafactor: CAIRN_RETURN_IF_ERROR(ResolveAdafactor(optimizer->mutable_adafactor())); break;
    case v1::Optimizer::kMuon: CAIRN_RETURN_IF_ERROR(ResolveMuon(optimizer->mutable_muon())); break;
    case v1::Optimizer::kScheduleFreeAdamw:
      learning_rate = 0.0025f;
      CAIRN_RETURN_IF_ERROR(ResolveScheduleFree(optimizer->mutable_schedule_free_adamw()));
      break;
    default:
      return Bad(
          "optimizer: this one is not supported; use adam, adamw, adadelta, adamax, nadam, lion, lamb, adafactor, "
          "muon, "
          "schedule_free_adamw, ftrl, sgd, rmsprop or adagrad");
  }
  CAIRN_RETURN_IF_ERROR(ResolveSchedule(optimizer));
  if (!optimizer->has_learning_rate()) optimizer->set_learning_rate(learning_rate);
  CAIRN_RETURN_IF_ERROR(MayBeginAtZero(*optimizer)
                            ? NotNegative("learning_rate", optimizer->learning_rate(), learning_rate)
                            : Positive("learning_rate", optimizer->learning_rate(), learning_rate));
  CAIRN_RETURN_IF_ERROR(CheckWeightDecay(*optimizer));
  CAIRN_RETURN_IF_ERROR(CheckClipping(*optimizer));
  return ResolveEma(optimizer);
}

}  // namespace cairn
