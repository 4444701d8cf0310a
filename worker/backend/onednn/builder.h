// PlanBuilder: what an operation may ask for while it is compiled.
//
// Not thread-safe. oneDNN's exceptions pass through; the caller turns them into a status with current_layer().
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

namespace cairn::onednn {

using Desc = dnnl::memory::desc;
using Tag = dnnl::memory::format_tag;

Desc MakeDesc(const dnnl::memory::dims& dims, Tag tag);
// [examples] and a shape without the batch dimension, as oneDNN orders it: {n, f}, or {n, c, h, w}. A volume's planes
// stand one below the other, as one image; what needs its depth looks at the same numbers as at a volume.
dnnl::memory::dims MakeDims(int64_t examples, const Shape& shape);
// The image of a volume of `shape` (others: itself) as {n, c, d, h, w}, and back.
Desc VolumeOf(const Desc& image, const Shape& shape);
Desc ImageOf(const Desc& volume);
// The dimensions of that volume.
dnnl::memory::dims VolumeDims(int64_t examples, const Shape& shape);
// The plain layout of those: channels last, as Keras has it.
Desc PlainDesc(int64_t examples, const Shape& shape);
bool IsPlain(const Desc& desc);  // two dimensions, or channels last without blocks

// Where an operation reads a value in the layout it wants: the value itself, or a copy that Prepare makes.
struct Source {
  Tensor* tensor = nullptr;
  Call reorder;
  void Prepare(const Run& run) const {
    if (reorder) reorder(run);
  }
};

// Where an operation writes its share of a value's gradient; Finish brings it to its place.
struct Sink {
  Tensor* tensor = nullptr;
  Tensor* sum = nullptr;  // add `tensor` to it
  Call reorder;           // or reorder (and add)
  void Finish(const Run& run) const;
};

class PlanBuilder {
 public:
  PlanBuilder(const Graph& graph, const LossPlan& loss_plan, int64_t examples, Mode mode, const dnnl::engine& engine,
              bool bfloat16 = false);

  // Before Build: the plan finds the gradient of the inputs, too (Plan::input_gradient). Of a model with one input.
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
  // Attributes that every primitive has: the scratchpad is the arena's.
  dnnl::primitive_attr Attributes() const;

  // A buffer, in use now. Use: it is in use now, too.
  Tensor* New(const Desc& desc);
  Tensor* NewBytes(int64_t bytes);
  void InputsAreCopied() { plan_->copies_inputs_ = true; }
  // The operation writes it on the way forward; it is part of the loss.
  void AddPenalty(const double* penalty) { plan_->penalties_.push_back(penalty); }
  Tensor* NewInputs(const Desc& desc);  // the batch's inputs: read only, outside the arena
  dnnl::memory Use(Tensor* tensor);
  dnnl::memory Use(Tensor* tensor, const Desc& view);

  // Variables in the caller's spaces.
  const Variable* FindVariable(const Node& node, const char* name) const;  // "kernel"; null if it has none
  // Whether its gradient is wanted.
  bool Trains(const Variable& variable) const { return training() && variable.kind != VariableKind::kFrozen; }
  dnnl::memory ValueOf(const Variable& variable, const Desc& desc);
  dnnl::memory GradientOf(const Variable& variable, const Desc& desc);

  // With a scratchpad added.
  template <typename PrimitiveDesc, typename Primitive>
  Call MakeCall(const PrimitiveDesc& desc, const Primitive& primitive,
                std::vector<std::pair<int, dnnl::memory>> arguments) {
    return CallOf(primitive, desc.scratchpad_desc(), std::move(arguments));
  }
  // to = from, or to += from. No call if they are one memory.
  Call Reorder(const dnnl::memory& from, const dnnl::memory& to, bool add = false);

  Source Read(Tensor* tensor, const Desc& wanted);
  Sink WriteGradient(Value* value, const Desc& wanted);

  // A node that lives as long as the plan.
  const Node& Keep(Node node) { return *plan_->inner_nodes_.emplace_back(std::make_unique<Node>(std::move(node))); }

  // Which steps of the node's output count, of 1 and 0, [examples, steps]; null: all. In use where it is asked for.
  Tensor* StepMaskOf(int node) const;
  void SetStepMask(const Node& node, Tensor* mask) { step_masks_[node.id] = mask; }  // of the node that makes it

  // variables: whose gradients it computes; out: what it writes.
  void AddOp(std::vector<int> variables, const Value* out, std::unique_ptr<Op> op);
  Value* NewInnerValue(bool needs_gradient);  // one that no node has: between two operations of one node
  void CompileInput(const Node& node);

 private:
  Call CallOf(const dnnl::primitive& primitive, const Desc& scratchpad,
              std::vector<std::pair<int, dnnl::memory>> arguments);
  void MakeValues();
  void FindSharedVariables();
  Value* NewValue(bool needs_gradient);
  void CompileNode(const Node& node);
  Value* FlatIfNeeded(const Node& node, int input);
  void TakeParts(Plan::Step& step);
  void NoteReads(Plan::Step& step);
  void PlanVariables();
  void PlaceTensors();

  const Graph& graph_;
  const Mode mode_;
  const bool bfloat16_;
  bool differentiates_input_ = false;
  const dnnl::engine engine_;
  const NodeGroups groups_;
  std::unique_ptr<Plan> plan_;
  std::vector<Value*> node_values_;
  std::map<int, Tensor*> step_masks_;   // by the node that makes it
  std::vector<const Variable*> reads_;  // whose values were asked for by the operation that is being compiled
  int now_ = 0;
  std::string current_layer_;
  int current_node_ = 0;
  // By variable: the last node that uses it, where several do, whose gradient is written first; else -1.
  std::vector<int> last_users_;
  std::vector<Plan::GradientPart> parts_;  // of the operation that is being compiled
};

}  // namespace cairn::onednn
