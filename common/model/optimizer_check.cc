#include "common/model/optimizer_check.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

template <typename... Args>
absl::Status Bad(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}

absl::Status InUnitInterval(const char* field, float value, float usual) {
  if (value >= 0 && value < 1) return absl::OkStatus();
  return Bad("optimizer.", field, ": ", value, " is outside [0, 1); use a number such as ", usual);
}

absl::Status Positive(const char* field, float value, float usual) {
  if (value > 0 && std::isfinite(value)) return absl::OkStatus();
  return Bad("optimizer.", field, ": ", value, value > 0 ? " is not finite" : " is not positive",
             "; use a number such as ", usual);
}

absl::Status NotNegative(const char* field, float value, float usual) {
  if (value >= 0 && std::isfinite(value)) return absl::OkStatus();
  return Bad("optimizer.", field, ": ", value, " is negative or not finite; use a number such as ", usual);
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

// Adam and AdamW.
template <typename AdamLike>
absl::Status ResolveAdam(const std::string& name, AdamLike* adam) {
  if (!adam->has_beta_1()) adam->set_beta_1(0.9f);
  if (!adam->has_beta_2()) adam->set_beta_2(0.999f);
  if (!adam->has_epsilon()) adam->set_epsilon(1e-7f);
  CAIRN_RETURN_IF_ERROR(InUnitInterval((name + ".beta_1").c_str(), adam->beta_1(), 0.9f));
  CAIRN_RETURN_IF_ERROR(InUnitInterval((name + ".beta_2").c_str(), adam->beta_2(), 0.999f));
  return Positive((name + ".epsilon").c_str(), adam->epsilon(), 1e-7f);
}

}  // namespace

absl::Status ResolveOptimizer(v1::Optimizer* optimizer, std::vector<std::string>* warnings) {
  float learning_rate = 0.001f;
  switch (optimizer->kind_case()) {
    case v1::Optimizer::kSgd:
      learning_rate = 0.01f;
      CAIRN_RETURN_IF_ERROR(ResolveSgd(optimizer->sgd(), warnings));
      break;
    case v1::Optimizer::kAdagrad:
      CAIRN_RETURN_IF_ERROR(ResolveAdagrad(optimizer->mutable_adagrad()));
      break;
    case v1::Optimizer::kRmsprop:
      CAIRN_RETURN_IF_ERROR(ResolveRmsProp(optimizer->mutable_rmsprop()));
      break;
    case v1::Optimizer::kAdam:
      CAIRN_RETURN_IF_ERROR(ResolveAdam("adam", optimizer->mutable_adam()));
      break;
    case v1::Optimizer::kAdamw: {
      v1::AdamW* adamw = optimizer->mutable_adamw();
      if (!adamw->has_weight_decay()) adamw->set_weight_decay(0.004f);
      CAIRN_RETURN_IF_ERROR(ResolveAdam("adamw", adamw));
      CAIRN_RETURN_IF_ERROR(NotNegative("adamw.weight_decay", adamw->weight_decay(), 0.004f));
      break;
    }
    case v1::Optimizer::KIND_NOT_SET:
      return Bad("optimizer: missing; use optimizer { adam {} }, say");
  }
  if (!optimizer->has_learning_rate()) optimizer->set_learning_rate(learning_rate);
  return Positive("learning_rate", optimizer->learning_rate(), learning_rate);
}

}  // namespace cairn
