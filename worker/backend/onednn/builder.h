// PlanBuilder: compiles a graph to a Plan, and provides operations with what they ask for while they are compiled:
// buffers, variables, primitives.
//
// Not thread-safe; one Build each. oneDNN's exceptions pass through; the caller makes a status of them, with
// current_layer().
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/model/call_mode.h"
#include "common/model/graph.h"
#include "dnnl.hpp"
#include "worker/backend/onednn/node_groups.h"
#include "worker/backend/onednn/plan.h"
#include "worker/backend/onednn/step_variables.h"

namespace cairn::onednn {

using Desc = dnnl::memory::desc;
using Tag = dnnl::memory::format_tag;

Desc MakeDesc(const dnnl::memory::dims& dims, Tag tag);
// The dimensions of a batch of `examples`, each of a shape without the batch axis, as oneDNN orders them: {n, f}, or
// {n, c, h, w}. A volume is an image of its planes, one below the other, and so are volumes in steps; operations that
// need the depth view the same numbers as a volume.
dnnl::memory::dims MakeDims(int64_t examples, const Shape& shape);
// The image of a volume of `shape` viewed as {n, c, d, h, w}, and back. Other images are returned unchanged.
Desc VolumeOf(const Desc& image, const Shape& shape);
Desc ImageOf(const Desc& volume);
// The dimensions of that volume.
dnnl::memory::dims VolumeDims(int64_t examples, const Shape& shape);
// The plain layout of such a batch: channels last, as in Keras.
Desc PlainDesc(int64_t examples, const Shape& shape);
bool IsPlain(const Desc& desc);  // two dimensions, or channels last without blocks

// A value in the layout that an operation wants: the value itself, or a copy that Prepare makes.
struct Source {
  Tensor* tensor = nullptr;
  Call reorder;
  void Prepare(const Run& run) const {
    if (reorder) reorder(run);
  }
};

// Where an operation writes its share of a value's gradient. Finish adds it, or copies it, to the gradient.
struct Sink {
  Tensor* tensor = nullptr;
  Tensor* sum = nullptr;  // Finish adds `tensor` to it; or null
  Call reorder;           // Finish reorders (and adds); or none
  void Finish(const Run& run) const;
};

class PlanBuilder {
 public:
  PlanBuilder(const Graph& graph, const LossPlan& loss_plan, int64_t examples, Mode mode, const dnnl::engine& engine,
              bool bfloat16 = false);

  // Before Build: the plan computes the gradient of the inputs, too (Plan::input_gradient). Only for a model with one
  // input.
  void DifferentiateInput() { differentiates_input_ = true; }
  std::unique_ptr<Plan> Build();
  const std::string& current_layer() const { return current_layer_; }

  // ---- for operations ----
  const Graph& graph() const { return graph_; }
  const NodeGroups& groups() const { return groups_; }
  const dnnl::engine& engine() const { return engine_; }
  int64_t examples() const { return plan_->examples_; }
  Mode mode() const { return mode_; }
  bool training() const { return mode_ == Mode::kTrain; }
  bool bfloat16() const { return bfloat16_; }  // JobSpec.compute_dtype
  dnnl::prop_kind forward_kind() const {
    return training() ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
  }
  // The attributes of every primitive: its scratchpad is in the arena.
  dnnl::primitive_attr Attributes() const;

  // A new buffer, in use at the current step. Use: an existing buffer is in use at the current step, too.
  Tensor* New(const Desc& desc);
  Tensor* NewBytes(int64_t bytes);
  void InputsAreCopied() { plan_->copies_inputs_ = true; }
  // Adds a term of the loss that the operation writes in its forward pass.
  void AddPenalty(const double* penalty) { plan_->penalties_.push_back(penalty); }
  Tensor* NewInputs(const Desc& desc);  // the batch's inputs: read only, outside the arena
  dnnl::memory Use(Tensor* tensor);
  dnnl::memory Use(Tensor* tensor, const Desc& view);

  // ---- variables, in the caller's memory ----
  const Variable* FindVariable(const Node& node, const char* name) const;  // "kernel"; null if the node has none
  // Whether the gradient of the variable is needed.
  bool Trains(const Variable& variable) const { return training() && variable.kind != VariableKind::kFrozen; }
  dnnl::memory ValueOf(const Variable& variable, const Desc& desc);
  dnnl::memory GradientOf(const Variable& variable, const Desc& desc);

  // Adds the scratchpad to the arguments.
  template <typename PrimitiveDesc, typename Primitive>
  Call MakeCall(const PrimitiveDesc& desc, const Primitive& primitive,
                std::vector<std::pair<int, dnnl::memory>> arguments) {
    return CallOf(primitive, desc.scratchpad_desc(), std::move(arguments));
  }
  // to = from, or to += from if `add`.
  Call Reorder(const dnnl::memory& from, const dnnl::memory& to, bool add = false);

  Source Read(Tensor* tensor, const Desc& wanted);
  Sink WriteGradient(Value* value, const Desc& wanted);

  // Keeps a node for as long as the plan lives.
  const Node& Keep(Node node) { return *plan_->inner_nodes_.emplace_back(std::make_unique<Node>(std::move(node))); }

  // Which steps of the node's output count: [examples, steps] of 1 and 0; null: all. The caller must Use it.
  Tensor* StepMaskOf(int node) const;
  void SetStepMask(const Node& node, Tensor* mask) { step_masks_[node.id] = mask; }  // for the node that makes it

  // variables: those whose gradients the operation computes; out: the value that it writes.
  void AddOp(std::vector<int> variables, const Value* out, std::unique_ptr<Op> op);
  Value* NewInnerValue(bool needs_gradient);  // a value between two operations of one node
  void CompileInput(const Node& node);

 private:
  Call CallOf(const dnnl::primitive& primitive, const Desc& scratchpad,
              std::vector<std::pair<int, dnnl::memory>> arguments);
  void MakeValues();
  Value* NewValue(bool needs_gradient);
  void CompileNode(const Node& node);
  Value* FlatIfNeeded(const Node& node, int input);

  const Graph& graph_;
  const Mode mode_;
  const bool bfloat16_;
  bool differentiates_input_ = false;
  const dnnl::engine engine_;
  const NodeGroups groups_;
  std::unique_ptr<Plan> plan_;
  std::vector<Value*> node_values_;
  std::map<int, Tensor*> step_masks_;  // by the node that makes it
  StepVariables variables_;
  int now_ = 0;
  std::string current_layer_;
  int current_node_ = 0;
};

}  // namespace cairn::onednn
