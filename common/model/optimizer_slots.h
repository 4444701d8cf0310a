// The optimizer's slots by name: what the state beside a variable is called in a file.
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
// and, with the moving average of the weights (optimizer.ema), "ema" as the last.
// `optimizer` is resolved (ResolveOptimizer).
std::vector<std::string> SlotNames(const v1::Optimizer& optimizer);

// What a slot, by its place in SlotNames, holds before the first update, which writes "ema" without reading it.
float InitialSlotValue(const v1::Optimizer& optimizer, int slot);

}  // namespace cairn
