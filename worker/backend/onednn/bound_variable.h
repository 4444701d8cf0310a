// BoundVariable: a variable of a layer as an operation uses it: it reads the value and writes the gradient.
//
// Part of an Op: made while the operation is compiled, used while it runs. Each run may move the memory, so the
// pointers are valid only until it ends.
#pragma once

#include "worker/backend/onednn/builder.h"

namespace cairn::onednn {

class BoundVariable {
 public:
  // A variable that the layer does not have.
  BoundVariable() = default;
  // variable: may be null. desc: of its value and of its gradient, as they are in the parameter space.
  BoundVariable(PlanBuilder& b, const Variable* variable, const Desc& desc) {
    if (variable == nullptr) return;
    value_ = b.ValueOf(*variable, desc);
    if (b.Trains(*variable)) gradient_ = b.GradientOf(*variable, desc);
  }
  // As one vector of all its numbers.
  BoundVariable(PlanBuilder& b, const Variable* variable)
      : BoundVariable(b, variable, variable == nullptr ? Desc() : MakeDesc({variable->size}, Tag::x)) {}

  bool trains() const { return static_cast<bool>(gradient_); }
  // Null: the layer does not have the variable.
  const float* value() const { return Handle(value_); }
  // Null: the gradient is not needed.
  float* gradient() const { return Handle(gradient_); }

 private:
  static float* Handle(const dnnl::memory& memory) {
    return memory ? static_cast<float*>(memory.get_data_handle()) : nullptr;
  }

  dnnl::memory value_, gradient_;
};

}  // namespace cairn::onednn
