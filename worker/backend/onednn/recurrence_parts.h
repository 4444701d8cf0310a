// The parts of a recurrence (recurrence.h) that own buffers: StepBuffer, RecurrentDropout, PackedInput, States,
// ProductRows.
//
// Parts of RecurrenceRun: compiled, then run, on one thread at a time. Invariant: what a run reads it has written
// before.
#pragma once

#include <cstdint>
#include <optional>

#include "worker/backend/onednn/builder.h"
#include "worker/backend/onednn/plan.h"
#include "worker/backend/onednn/window_rows.h"
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

// The input of a recurrence after dropout, ordered by step: [steps, examples, features].
class PackedInput {
 public:
  PackedInput(PlanBuilder& b, const Node& node, const RecurrenceShape& shape)
      : s_(shape), dropout_(b, node, shape, RecurrentDropout::Of::kInput), packed_(b, shape.steps, shape.features) {}
  void CompileBackward(PlanBuilder& b);

  // x: [examples, steps, features].
  void Pack(const Run& run, const float* x) const;
  const float* At(int64_t step) const { return packed_.At(step); }
  // The gradient of At(step). The caller writes that of all steps before AddGradient.
  float* gradient(int64_t step) const { return gradient_.At(step); }
  // dx += gradient, in the order of the input.
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

  // from: the first state, [examples, state_numbers()]; null: zeros.
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

// The rows of the input, or of the states, that are multiplied with a kernel: themselves, for all steps at once; or, of
// a ConvLSTM, those of the windows over them, one step at a time: those of all steps would take the memory of as many
// inputs as the window has places.
class ProductRows {
 public:
  enum class Of { kInput, kState };
  ProductRows(PlanBuilder& b, const RecurrenceShape& shape, Of of);
  void Use(PlanBuilder& b) const { rows_.Use(b); }

  int64_t width() const { return width_; }    // of a row: the rows of the kernel
  int64_t blocks() const { return blocks_; }  // in how many products of equal size all steps are computed
  // The rows of a block. from: what it begins with.
  const float* Make(const float* from) const;
  // Where the caller writes the gradient of a block's rows, and, after that, what makes it that of `to`.
  float* gradient(float* to) const { return windows_.has_value() ? rows_.data() : to; }
  void Finish(float* to) const;

 private:
  const int64_t examples_;
  std::optional<WindowRows> windows_;
  int64_t width_ = 0, blocks_ = 1;
  StepBuffer rows_;  // of a ConvLSTM
};

// Sets the first of the states: to `from`, or to zeros if that is null.
void BeginStates(const StepBuffer& states, const float* from);

}  // namespace cairn::onednn
