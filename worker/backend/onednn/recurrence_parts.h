// The parts of a recurrence (recurrence.h) that own buffers: StepBuffer, RecurrentDropout, PackedInput, States.
//
// Parts of RecurrenceRun: compiled, then run, on one thread at a time. Invariant: what a run reads it has written
// before.
#pragma once

#include <cstdint>

#include "worker/backend/onednn/builder.h"
#include "worker/backend/onednn/plan.h"
#include "worker/backend/recurrence_shape.h"

namespace cairn::onednn {

// A buffer ordered by step first, in the order in which steps are computed: [steps, examples, numbers].
class StepBuffer {
 public:
  StepBuffer() = default;  // none
  StepBuffer(PlanBuilder& b, int64_t steps, int64_t numbers)
      : tensor_(b.New(MakeDesc({steps * b.examples(), numbers}, Tag::nc))), step_numbers_(b.examples() * numbers) {}

  void Use(PlanBuilder& b) const {
    if (tensor_ != nullptr) b.Use(tensor_);
  }
  explicit operator bool() const { return tensor_ != nullptr; }
  // Null: there is no such buffer.
  float* At(int64_t step) const { return tensor_ == nullptr ? nullptr : tensor_->data() + step * step_numbers_; }
  float* data() const { return At(0); }
  int64_t step_numbers() const { return step_numbers_; }

 private:
  Tensor* tensor_ = nullptr;
  int64_t step_numbers_ = 0;
};

// The dropout factors of the input or the state of a recurrence: [examples, numbers], the same in all steps.
class RecurrentDropout {
 public:
  enum class Of { kInput, kState };
  RecurrentDropout(PlanBuilder& b, const Node& node, const RecurrenceShape& shape, Of of);

  bool any() const { return static_cast<bool>(factors_); }
  void Use(PlanBuilder& b) const { factors_.Use(b); }
  // Draws the factors of this run.
  void Draw(const Run& run) const;
  // Null: no dropout.
  const float* factors() const { return factors_.data(); }

 private:
  const int node_;
  const float rate_;
  const int64_t begin_;  // of its factors in the layer's stream of random numbers
  StepBuffer factors_;
};

// The input of a recurrence after dropout, ordered by step, so that its product with the kernel is one product.
class PackedInput {
 public:
  PackedInput(PlanBuilder& b, const Node& node, const RecurrenceShape& shape)
      : s_(shape), dropout_(b, node, shape, RecurrentDropout::Of::kInput), packed_(b, shape.steps, shape.features) {}
  void CompileBackward(PlanBuilder& b);

  // x: [examples, steps, features].
  void Pack(const Run& run, const float* x) const;
  const float* packed() const { return packed_.data(); }
  // The gradient of packed(). The caller writes it before AddGradient.
  float* gradient() const { return gradient_.data(); }
  // dx += gradient(), in the order of the input.
  void AddGradient(float* dx) const;

 private:
  const RecurrenceShape s_;
  const RecurrentDropout dropout_;
  const StepBuffer packed_;
  StepBuffer gradient_;
};

// The states h of a recurrence: before each step and behind the last one; and, where there is dropout of states, h
// times its factors, which is what meets the recurrent kernel.
class States {
 public:
  States(PlanBuilder& b, const Node& node, const RecurrenceShape& shape);
  void CompileBackward(PlanBuilder& b) const;

  // from: the first state, [examples, units]; null: zeros.
  void Begin(const Run& run, const float* from) const;
  float* At(int64_t step) const { return h_.At(step); }
  // What meets the recurrent kernel in this step. Drop computes it from At(step).
  void Drop(int64_t step) const;
  const float* Dropped(int64_t step) const { return dropped_ ? dropped_.At(step) : h_.At(step); }
  // Turns the gradient of Dropped(step) into that of At(step).
  void DropGradient(float* d) const;

 private:
  const RecurrentDropout dropout_;
  const StepBuffer h_;  // [steps + 1, ...]
  StepBuffer dropped_;
};

// Sets the first of the states: to `from`, or to zeros if that is null.
void BeginStates(const StepBuffer& states, const float* from);

}  // namespace cairn::onednn
