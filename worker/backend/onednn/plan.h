// Plan: a graph compiled for one batch size and one purpose: the operations in order, their primitives and buffers.
//
// Not thread-safe: one plan runs at a time, on one thread, in an arena that all plans of a Program share.
// Invariants:
//   1. Every buffer lies in the arena; two buffers overlap only if the spans of time in which they are used do not.
//   2. A run allocates nothing and keeps nothing for the next one: the arena's contents before it do not matter.
//   3. A value's gradient has the layout of the value.
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

// A buffer of the arena. Times count the operations: forward 0 .. n - 1, the loss n, backward n + 1 .. 2 n.
// offset -1: the batch's inputs.
struct Tensor : ArenaBuffer {
  dnnl::memory::desc desc;
  dnnl::memory memory;
  std::vector<dnnl::memory> views;  // the same bytes under other descriptions

  float* data() const { return static_cast<float*>(memory.get_data_handle()); }
  int64_t numbers() const { return bytes / static_cast<int64_t>(sizeof(float)); }  // of the layout, padding included
};

// The output of a node, or of several of which all but the first change nothing (a Flatten, say). Images have four
// dimensions here (examples, channels, height, width) in any layout, also after a Flatten; vectors are [examples,
// features].
struct Value {
  Tensor* data = nullptr;
  Tensor* gradient = nullptr;     // from the first reader's backward on
  bool gradient_written = false;  // while compiling backward: some reader's share is in it
  bool needs_gradient = false;    // a trainable variable stands before it
  int readers = 0;
  // The activation that the producer applied and whose derivative it takes from `data`.
  Activation activation;
  bool activation_undone = false;  // the only reader takes that derivative, where it is cheaper
  bool may_overwrite = true;       // the only reader may put its own output into `data`
};

struct Run {
  dnnl::stream& stream;
  const StepInfo& info;
  const uint8_t* bytes = nullptr;  // of Forward: the batch's inputs, where they are bytes and the plan copies_inputs
  absl::Status* error = nullptr;   // Forward: set by the first operation that cannot use its input
};

// A primitive with its arguments in place.
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

// A step of the plan. The constructor compiles forward, CompileBackward (called in reverse order) backward.
class Op {
 public:
  virtual ~Op() = default;
  virtual void CompileBackward(class PlanBuilder&) {}
  virtual void Forward(const Run& run) = 0;
  // The gradients of the variables, complete when it returns; then those of the inputs.
  virtual void BackwardVariables(const Run&) {}
  virtual void BackwardInputs(const Run&) {}
};

// Memory that stands outside the arena: a variable in the caller's values or gradients.
struct Binding {
  dnnl::memory memory;
  int64_t offset = 0;  // numbers
};

class Plan {
 public:
  int64_t examples() const { return examples_; }
  int64_t arena_bytes() const { return arena_bytes_; }
  // Where the buffers are from now on; arena: arena_bytes() bytes, aligned to 64.
  void Bind(uint8_t* arena);

  // Whether its first operation makes other numbers of the inputs, or puts them elsewhere, and so takes bytes too
  // (Run::bytes).
  bool copies_inputs() const { return copies_inputs_; }
  // inputs: null with Run::bytes. source: null, or where the values come from, range by range. Errors: its own;
  // INVALID_ARGUMENT, an id that an Embedding does not have.
  absl::Status Forward(const Run& run, const float* inputs, const float* values, WeightSource* source);
  // Of the last op, plain: [examples, outputs], channels last.
  absl::Span<const float> outputs() const { return {output_.data->data(), static_cast<size_t>(outputs_)}; }
  // Of a masked output: 1 for each step of each example that counts, else 0; empty: every step counts.
  absl::Span<const float> output_mask() const {
    if (output_mask_ == nullptr) return {};
    return {output_mask_->data(), static_cast<size_t>(output_mask_->numbers())};
  }
  absl::Span<float> output_gradients() const { return {output_.gradient->data(), static_cast<size_t>(outputs_)}; }
  // What layers have added to the loss in the last Forward, a sum over its examples.
  double penalty() const;
  // After Backward of a plan that finds it (PlanBuilder::DifferentiateInput): of the inputs, in their order.
  const float* input_gradient() const { return input_gradient_->data(); }
  // After Forward and the filling of output_gradients. gradients: the whole space.
  absl::Status Backward(const Run& run, float* gradients, const GradientReady& ready, WeightSource* source);

 private:
  friend class PlanBuilder;

  // Of a variable that several nodes use: what one of them adds to its gradient.
  struct GradientPart {
    Tensor* part = nullptr;
    int64_t offset = 0, size = 0;  // numbers
  };
  struct Step {
    std::unique_ptr<Op> op;
    int node = 0;
    std::vector<GradientPart> parts;
    std::string layer;                              // for errors
    std::vector<int> variables;                     // whose gradients it computes, or, frozen ones, are zero
    bool backward = false;                          // something that is trained is in it, or before it
    int64_t begin = 0, end = 0;                     // of its variables in the parameter space, padding included
    int64_t reads_begin = 0, reads_end = 0;         // of those whose values it uses; empty: none
    std::vector<std::pair<int64_t, int64_t>> gaps;  // where gradients are zero, the padding: begin, end
  };

  // Whether the step, on its way forward (1) or backward (-1), uses any values.
  bool Reads(int step, int direction) const {
    const Step& s = steps_[step];
    return s.reads_begin < s.reads_end && (direction > 0 || s.backward);
  }
  absl::Status Enter(WeightSource* source, int step, int direction);
  void Leave(WeightSource* source, int step, int direction);

  int64_t examples_ = 0;
  int64_t outputs_ = 0;  // numbers, of all examples
  int64_t arena_bytes_ = 0;
  bool copies_inputs_ = false;
  std::vector<std::unique_ptr<Tensor>> tensors_;
  std::vector<std::unique_ptr<Value>> values_;
  std::vector<std::unique_ptr<Node>> inner_nodes_;  // of layers within others; operations refer to them
  std::vector<Step> steps_;
  std::vector<dnnl::memory> input_bindings_;
  std::vector<Binding> value_bindings_, gradient_bindings_;
  const float* bound_inputs_ = nullptr;
  const float* bound_values_ = nullptr;
  float* bound_gradients_ = nullptr;
  Value output_;
  std::vector<const double*> penalties_;  // of operations
  Tensor* input_gradient_ = nullptr;
  Tensor* output_mask_ = nullptr;  // null: every step counts
};

}  // namespace cairn::onednn
