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

// Calls the C function: the C++ one would build the list of arguments at each call.
void Call::operator()(const Run& run) const {
  dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive_.get(), run.stream.get(),
                                                 static_cast<int>(arguments_.size()), arguments_.data()),
                          "could not execute a primitive");
}

double Plan::penalty() const {
  double sum = 0;
  for (const double* const penalty : penalties_) sum += *penalty;
  return sum;
}

void Bindings::Point(const float* space) {
  if (space == space_) return;
  for (Binding& b : bindings_) b.memory.set_data_handle(const_cast<float*>(space) + b.offset);
  space_ = space;
}

void PlanTensors::Place() {
  std::vector<ArenaBuffer*> buffers;
  for (const auto& tensor : tensors_) {
    if (tensor->offset >= 0) buffers.push_back(tensor.get());
  }
  arena_bytes_ = PlaceBuffers(buffers, 64);
}

void PlanTensors::Bind(uint8_t* arena) {
  for (const auto& tensor : tensors_) {
    if (tensor->offset < 0) continue;  // outside the arena
    tensor->memory.set_data_handle(arena + tensor->offset);
    for (dnnl::memory& view : tensor->views) view.set_data_handle(arena + tensor->offset);
  }
}

// Waits for the values that the step reads, and requests those of the next step that reads any.
absl::Status Plan::Enter(WeightSource* source, int step, int direction) {
  if (source == nullptr || !Reads(step, direction)) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(source->Acquire(steps_[step].reads_begin, steps_[step].reads_end));
  const int count = static_cast<int>(steps_.size());
  int next = step + direction;
  while (next >= 0 && next < count && !Reads(next, direction)) next += direction;
  if (next == count && output_.gradient != nullptr) {  // backward comes next
    for (--next; next >= 0 && !Reads(next, -1);) --next;
  }
  if (next >= 0 && next < count) source->Prefetch(steps_[next].reads_begin, steps_[next].reads_end);
  return absl::OkStatus();
}

void Plan::Leave(WeightSource* source, int step, int direction) {
  const Step& s = steps_[step];
  if (source != nullptr && Reads(step, direction)) source->Release(s.reads_begin, s.reads_end);
}

absl::Status Plan::Forward(const Run& run, const float* inputs, const float* values, WeightSource* source) {
  input_bindings_.Point(inputs);
  value_bindings_.Point(values);
  absl::Status error;
  const Run checked{run.stream, run.info, run.bytes, &error};
  for (int i = 0; i < static_cast<int>(steps_.size()); ++i) {
    const TraceTimer timer(run.info.trace, TraceKind::kForward, steps_[i].layer);
    CAIRN_RETURN_IF_ERROR(Enter(source, i, 1));
    steps_[i].op->Forward(checked);
    Leave(source, i, 1);
  }
  return error;
}

absl::Status Plan::Backward(const Run& run, float* gradients, const GradientReady& ready, WeightSource* source) {
  gradient_bindings_.Point(gradients);
  for (int i = static_cast<int>(steps_.size()) - 1; i >= 0; --i) {
    const Step& step = steps_[i];
    const TraceTimer timer(step.backward ? run.info.trace : nullptr, TraceKind::kBackward, step.layer);
    CAIRN_RETURN_IF_ERROR(Enter(source, i, -1));
    if (step.backward) step.op->BackwardVariables(run);
    for (const GradientPart& part : step.parts) AddTo(part.part->data(), gradients + part.offset, part.size);
    if (step.begin < step.end) {
      for (const auto& [begin, end] : step.gaps) std::fill(gradients + begin, gradients + end, 0.0f);
      if (ready) ready(step.begin, step.end);
    }
    if (step.backward) step.op->BackwardInputs(run);
    Leave(source, i, -1);
  }
  return absl::OkStatus();
}

}  // namespace cairn::onednn
