#include "worker/backend/onednn/plan.h"

#include <algorithm>

namespace cairn::onednn {

Call::Call(dnnl::primitive primitive, std::vector<std::pair<int, dnnl::memory>> arguments)
    : primitive_(std::move(primitive)) {
  for (auto& [argument, memory] : arguments) {
    arguments_.push_back({argument, memory.get()});
    kept_.push_back(std::move(memory));
  }
}

// The C function: the C++ one would build its list of arguments anew each time.
void Call::operator()(const Run& run) const {
  dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive_.get(), run.stream.get(),
                                                 static_cast<int>(arguments_.size()), arguments_.data()),
                          "could not execute a primitive");
}

void Plan::Bind(uint8_t* arena) {
  for (const auto& tensor : tensors_) {
    if (tensor->offset < 0) continue;  // outside the arena
    tensor->memory.set_data_handle(arena + tensor->offset);
    for (dnnl::memory& view : tensor->views) view.set_data_handle(arena + tensor->offset);
  }
}

void Plan::Forward(const Run& run, const float* inputs, const float* values) {
  if (inputs != bound_inputs_) {
    for (dnnl::memory& memory : input_bindings_) memory.set_data_handle(const_cast<float*>(inputs));
    bound_inputs_ = inputs;
  }
  if (values != bound_values_) {
    for (Binding& b : value_bindings_) b.memory.set_data_handle(const_cast<float*>(values) + b.offset);
    bound_values_ = values;
  }
  for (const Step& step : steps_) step.op->Forward(run);
}

void Plan::Backward(const Run& run, float* gradients, const GradientReady& ready) {
  if (gradients != bound_gradients_) {
    for (Binding& b : gradient_bindings_) b.memory.set_data_handle(gradients + b.offset);
    bound_gradients_ = gradients;
  }
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    step->op->BackwardVariables(run);
    if (step->begin < step->end) {
      for (const auto& [begin, end] : step->gaps) std::fill(gradients + begin, gradients + end, 0.0f);
      if (ready) ready(step->begin, step->end);
    }
    step->op->BackwardInputs(run);
  }
}

}  // namespace cairn::onednn
