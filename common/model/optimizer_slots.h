// The names of the optimizer's slots: how files name the state that belongs to a variable.
#pragma once

#include <string>
#include <vector>

#include "cairn/v1/optimizer.pb.h"

namespace cairn {

// Keras 3's names, in the order in which a ps keeps the slots (server/core/optimizer.h):
//   sgd      momentum (where momentum > 0)
//   adagrad  accumulator
//   rmsprop  velocity, momentum (where momentum > 0), average_gradient (centered)
//   adam(w)  momentum, velocity, velocity_hat (amsgrad)
//   adadelta accumulated_grad, accumulated_delta_var
//   adamax   momentum, norm
//   nadam    momentum, velocity
//   ftrl     accumulator, linear
//   lion     momentum
//   lamb     momentum, velocity
//   adafactor velocity (what it holds of a matrix: common/model/optimizer_variables.h)
//   muon     momentum, velocity (used of what is updated as by AdamW, else 0)
//   schedule_free_adamw momentum, velocity
// followed by "ema" if there is a moving average of the weights (optimizer.ema). `optimizer` must be resolved
// (ResolveOptimizer).
std::vector<std::string> SlotNames(const v1::Optimizer& optimizer);

// The value of a slot (its index in SlotNames) before the first update. The first update writes "ema", and the
// "momentum" of schedule_free_adamw, without reading it.
float InitialSlotValue(const v1::Optimizer& optimizer, int slot);

}  // namespace cairn
