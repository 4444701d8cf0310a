#include "common/model/optimizer_slots.h"

namespace cairn {
namespace {

std::vector<std::string> AdamSlots(bool amsgrad) {
  std::vector<std::string> names = {"momentum", "velocity"};
  if (amsgrad) names.push_back("velocity_hat");
  return names;
}

std::vector<std::string> RuleSlots(const v1::Optimizer& optimizer) {
  switch (optimizer.kind_case()) {
    case v1::Optimizer::kSgd:
      if (optimizer.sgd().momentum() > 0) return {"momentum"};
      return {};
    case v1::Optimizer::kAdagrad: return {"accumulator"};
    case v1::Optimizer::kRmsprop: {
      std::vector<std::string> names = {"velocity"};
      if (optimizer.rmsprop().momentum() > 0) names.push_back("momentum");
      if (optimizer.rmsprop().centered()) names.push_back("average_gradient");
      return names;
    }
    case v1::Optimizer::kAdam: return AdamSlots(optimizer.adam().amsgrad());
    case v1::Optimizer::kAdamw: return AdamSlots(optimizer.adamw().amsgrad());
    case v1::Optimizer::kAdadelta: return {"accumulated_grad", "accumulated_delta_var"};
    case v1::Optimizer::kAdamax: return {"momentum", "norm"};
    case v1::Optimizer::kNadam: return {"momentum", "velocity"};
    case v1::Optimizer::kFtrl: return {"accumulator", "linear"};
    case v1::Optimizer::kLion: return {"momentum"};
    case v1::Optimizer::kLamb:
    case v1::Optimizer::kMuon:
    case v1::Optimizer::kScheduleFreeAdamw: return {"momentum", "velocity"};
    case v1::Optimizer::kAdafactor: return {"velocity"};
    default: break;
  }
  return {};
}

}  // namespace

std::vector<std::string> SlotNames(const v1::Optimizer& optimizer) {
  std::vector<std::string> names = RuleSlots(optimizer);
  if (optimizer.has_ema()) names.push_back("ema");
  return names;
}

float InitialSlotValue(const v1::Optimizer& optimizer, int slot) {
  if (slot > 0) return 0;
  if (optimizer.has_ftrl()) {
    return optimizer.ftrl().has_initial_accumulator_value() ? optimizer.ftrl().initial_accumulator_value() : 0.1f;
  }
  if (!optimizer.has_adagrad()) return 0;
  return optimizer.adagrad().has_initial_accumulator_value() ? optimizer.adagrad().initial_accumulator_value() : 0.1f;
}

}  // namespace cairn
