#include "worker/backend/onednn/recurrence_parts.h"

#include <cstring>

#include "worker/backend/dropout.h"
#include "worker/backend/onednn/kernels.h"

namespace cairn::onednn {

RecurrentDropout::RecurrentDropout(PlanBuilder& b, const Node& node, const RecurrenceShape& shape, Of of)
    : node_(node.id),
      rate_(of == Of::kState ? shape.r.recurrent_dropout : shape.r.dropout),
      begin_(RecurrentMaskBegin(shape.r, of == Of::kState, shape.examples, shape.features)) {
  const int64_t numbers = of == Of::kState ? shape.state_numbers() : shape.features;
  if (b.groups().Trains(node) && rate_ > 0) factors_ = StepBuffer(b, 1, numbers);
}

void RecurrentDropout::Draw(const Run& run) const {
  if (!factors_) return;
  const size_t count = static_cast<size_t>(factors_.step_numbers());
  DropoutMask(run.info, node_, rate_).Fill(begin_, absl::MakeSpan(factors_.data(), count));
}

void PackedInput::CompileBackward(PlanBuilder& b) {
  dropout_.Use(b);
  packed_.Use(b);
  gradient_ = StepBuffer(b, s_.steps, s_.features);
}

void PackedInput::Pack(const Run& run, const float* x) const {
  dropout_.Draw(run);
  const float* const all_factors = dropout_.factors();
#pragma omp parallel for schedule(static) if (s_.steps * packed_.step_numbers() >= kParallelNumbersMin)
  for (int64_t step = 0; step < s_.steps; ++step) {
    for (int64_t e = 0; e < s_.examples; ++e) {
      const float* const from = x + (e * s_.steps + s_.InputStep(step)) * s_.features;
      float* const to = packed_.At(step) + e * s_.features;
      if (all_factors == nullptr) {
        std::memcpy(to, from, s_.features * sizeof(float));
      } else {
        const float* const factors = all_factors + e * s_.features;
        for (int64_t i = 0; i < s_.features; ++i) to[i] = from[i] * factors[i];
      }
    }
  }
}

void PackedInput::AddGradient(float* dx) const {
  const float* const all_factors = dropout_.factors();
#pragma omp parallel for schedule(static) if (s_.steps * packed_.step_numbers() >= kParallelNumbersMin)
  for (int64_t e = 0; e < s_.examples; ++e) {
    for (int64_t step = 0; step < s_.steps; ++step) {
      const float* const from = gradient_.At(step) + e * s_.features;
      float* const to = dx + (e * s_.steps + s_.InputStep(step)) * s_.features;
      const float* const factors = all_factors == nullptr ? nullptr : all_factors + e * s_.features;
      for (int64_t i = 0; i < s_.features; ++i) to[i] += factors == nullptr ? from[i] : from[i] * factors[i];
    }
  }
}

States::States(PlanBuilder& b, const Node& node, const RecurrenceShape& shape)
    : dropout_(b, node, shape, RecurrentDropout::Of::kState), h_(b, shape.steps + 1, shape.state_numbers()) {
  if (dropout_.any()) dropped_ = StepBuffer(b, shape.steps, shape.state_numbers());
}

void States::CompileBackward(PlanBuilder& b) const {
  dropout_.Use(b);
  h_.Use(b);
  dropped_.Use(b);
}

void States::Begin(const Run& run, const float* from) const {
  dropout_.Draw(run);
  BeginStates(h_, from);
}

void States::Drop(int64_t step) const {
  if (dropped_) Multiply(h_.At(step), dropout_.factors(), dropped_.At(step), h_.step_numbers());
}

void States::DropGradient(float* d) const {
  if (dropped_) Multiply(d, dropout_.factors(), d, h_.step_numbers());
}

ProductRows::ProductRows(PlanBuilder& b, const RecurrenceShape& shape, Of of)
    : examples_(shape.examples), width_(of == Of::kState ? shape.units() : shape.features) {
  const RecurrentWindows& windows = shape.r.windows;
  if (windows.axes == 0) return;
  Shape state = windows.sides;
  state.push_back(shape.units());
  if (of == Of::kInput) {
    windows_.emplace(windows.input, windows.axes, shape.step, windows.sides);
  } else {
    windows_.emplace(windows.state, windows.axes, state, windows.sides);
  }
  width_ = windows_->width();
  blocks_ = shape.steps;
  rows_ = StepBuffer(b, 1, windows_->positions() * width_);
}

const float* ProductRows::Make(const float* from) const {
  if (!windows_.has_value()) return from;
  windows_->Gather(examples_, from, rows_.data());
  return rows_.data();
}

void ProductRows::Finish(float* to) const {
  if (windows_.has_value()) windows_->Scatter(examples_, rows_.data(), to);
}

void BeginStates(const StepBuffer& states, const float* from) {
  const size_t bytes = static_cast<size_t>(states.step_numbers()) * sizeof(float);
  if (from != nullptr) std::memcpy(states.data(), from, bytes);
  if (from == nullptr) std::memset(states.data(), 0, bytes);
}

}  // namespace cairn::onednn
