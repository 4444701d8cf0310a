// Plan: a graph compiled for one batch size and one purpose: the operations in order, their primitives and buffers.
//
// Not thread-safe: one plan runs at a time, on one thread, in an arena that all plans of a Program share. Invariants:
//   1. Every buffer is in the arena, except the batch's inputs; two buffers overlap only if they are never in use at
//      the same time.
//   2. A run allocates nothing and keeps nothing for the next one: it does not depend on the contents of the arena.
//   3. The gradient of a value has the layout of the value.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/model/graph.h"
#include "dnnl.hpp"
#include "worker/backend/arena.h"
#include "worker/backend/backend.h"
#include "worker/backend/loss.h"
#include "worker/backend/onednn/kernels.h"

namespace cairn::onednn {

enum class Mode {
  kTrain,
  kEvaluate,  // the outputs as the loss wants them (LossPlan)
  kPredict,   // the outputs as the user wants them
};

// A buffer of the arena. Its uses count the steps: forward 0 .. n - 1, the loss n, backward n + 1 .. 2 n. offset -1:
// the batch's inputs, outside the arena.
struct Tensor : ArenaBuffer {
  dnnl::memory::desc desc;
  dnnl::memory memory;
  std::vector<dnnl::memory> views;  // the same bytes under other descriptions

  float* data() const { return static_cast<float*>(memory.get_data_handle()); }
  int64_t numbers() const { return bytes / static_cast<int64_t>(sizeof(float)); }  // with the padding of the layout
};

// The output of a node, or of several nodes of which all but the first change nothing (as a Flatten). An image has four
// dimensions (examples, channels, height, width) in any layout, even after a Flatten; vectors are [examples, features].
struct Value {
  Tensor* data = nullptr;
  Tensor* gradient = nullptr;     // made when the backward pass of the first reader is compiled
  bool gradient_written = false;  // while backward is compiled: it has the share of some reader
  bool needs_gradient = false;    // it depends on a trainable variable
  int readers = 0;
  // The activation that the producer applied; its derivative is computed from `data`.
  Activation activation;
  bool activation_undone = false;  // the only reader multiplies by that derivative, where this is cheaper
  bool may_overwrite = true;       // the only reader may write its own output to `data`
};

struct Run {
  dnnl::stream& stream;
  const StepInfo& info;
  const uint8_t* bytes = nullptr;  // in Forward: the batch's inputs, if they are bytes and the plan copies_inputs()
  absl::Status* error = nullptr;   // in Forward: set by the first operation that cannot use its input
};

// A primitive with its arguments.
class Call {
 public:
  Call() = default;
  Call(dnnl::primitive primitive, std::vector<std::pair<int, dnnl::memory>> arguments);
  void operator()(const Run& run) const;
  explicit operator bool() const { return static_cast<bool>(primitive_); }

 private:
  dnnl::primitive primitive_;
  std::vector<dnnl_exec_arg_t> arguments_;
  std::vector<dnnl::memory> kept_;
};

// The operation of a step. The constructor compiles its forward pass, CompileBackward (called in reverse order) its
// backward pass.
class Op {
 public:
  virtual ~Op() = default;
  virtual void CompileBackward(class PlanBuilder&) {}
  virtual void Forward(const Run& run) = 0;
  // Computes the gradients of the variables, which are complete when it returns. Then BackwardInputs computes those of
  // the inputs.
  virtual void BackwardVariables(const Run&) {}
  virtual void BackwardInputs(const Run&) {}
};

// Memory objects that point into memory of the caller: the batch's inputs, the values of the parameter space, or its
// gradients.
class Bindings {
 public:
  // offset: the place of the memory, in numbers from the beginning of the caller's.
  void Add(dnnl::memory memory, int64_t offset = 0) { bindings_.push_back({std::move(memory), offset}); }
  // Points all of them into `space`. Costs nothing if that is where they point.
  void Point(const float* space);

 private:
  struct Binding {
    dnnl::memory memory;
    int64_t offset = 0;
  };
  std::vector<Binding> bindings_;
  const float* space_ = nullptr;
};

// The buffers of a plan. Invariant: a Tensor object never moves; only its memory does.
class PlanTensors {
 public:
  Tensor* Add() { return tensors_.emplace_back(std::make_unique<Tensor>()).get(); }
  // Places the buffers in the arena. All of them and all their uses must be known.
  void Place();
  // Moves the buffers to this arena.
  void Bind(uint8_t* arena);
  int64_t arena_bytes() const { return arena_bytes_; }

 private:
  std::vector<std::unique_ptr<Tensor>> tensors_;
  int64_t arena_bytes_ = 0;
};

class Plan {
 public:
  // One node's part of the gradient of a variable that several nodes use.
  struct GradientPart {
    Tensor* part = nullptr;
    int64_t offset = 0, size = 0;  // numbers
  };
  // An operation and the variables that it uses.
  struct Step {
    std::unique_ptr<Op> op;
    int node = 0;
    std::string layer;                              // for errors
    std::vector<GradientPart> parts;                // of gradients that other nodes complete
    std::vector<int> variables;                     // those whose gradients are complete after the step
    bool backward = false;                          // it has a backward pass
    int64_t begin = 0, end = 0;                     // the range of those variables in the space, with padding
    int64_t reads_begin = 0, reads_end = 0;         // the range of the variables whose values it reads; may be empty
    std::vector<std::pair<int64_t, int64_t>> gaps;  // padding and frozen variables, whose gradients are zeros
  };

  int64_t examples() const { return examples_; }
  int64_t arena_bytes() const { return tensors_.arena_bytes(); }
  // Moves the buffers to this arena of arena_bytes() bytes, aligned to 64.
  void Bind(uint8_t* arena) { tensors_.Bind(arena); }

  // Whether the first operation copies the inputs, and so accepts bytes, too (Run::bytes).
  bool copies_inputs() const { return copies_inputs_; }
  // inputs: null with Run::bytes. source: brings the values range by range; null: all are there. Errors: those of the
  // source; INVALID_ARGUMENT for an id that an Embedding does not have.
  absl::Status Forward(const Run& run, const float* inputs, const float* values, WeightSource* source);
  // The output of the last operation: [examples, outputs], channels last.
  absl::Span<const float> outputs() const { return {output_.data->data(), static_cast<size_t>(outputs_)}; }
  // The mask of a masked output: 1 for each step of each example that counts, else 0; empty: every step counts.
  absl::Span<const float> output_mask() const {
    if (output_mask_ == nullptr) return {};
    return {output_mask_->data(), static_cast<size_t>(output_mask_->numbers())};
  }
  absl::Span<float> output_gradients() const { return {output_.gradient->data(), static_cast<size_t>(outputs_)}; }
  // The terms that layers added to the loss in the last Forward, as a sum over its examples.
  double penalty() const;
  // The gradient of the inputs, in their order, after Backward of a plan that computes it
  // (PlanBuilder::DifferentiateInput).
  const float* input_gradient() const { return input_gradient_->data(); }
  // Called after Forward, with output_gradients() filled in. gradients: the whole parameter space.
  absl::Status Backward(const Run& run, float* gradients, const GradientReady& ready, WeightSource* source);

 private:
  friend class PlanBuilder;

  // Whether the step reads any values in the forward pass (direction 1) or in the backward pass (-1).
  bool Reads(int step, int direction) const {
    const Step& s = steps_[step];
    return s.reads_begin < s.reads_end && (direction > 0 || s.backward);
  }
  absl::Status Enter(WeightSource* source, int step, int direction);
  void Leave(WeightSource* source, int step, int direction);

  int64_t examples_ = 0;
  int64_t outputs_ = 0;  // numbers, of all examples
  bool copies_inputs_ = false;
  PlanTensors tensors_;
  std::vector<std::unique_ptr<Value>> values_;
  std::vector<std::unique_ptr<Node>> inner_nodes_;  // nodes within others; operations refer to them
  std::vector<Step> steps_;
  Bindings input_bindings_, value_bindings_, gradient_bindings_;
  Value output_;
  std::vector<const double*> penalties_;  // in operations
  Tensor* input_gradient_ = nullptr;
  Tensor* output_mask_ = nullptr;  // null: every step counts
};

}  // namespace cairn::onednn
