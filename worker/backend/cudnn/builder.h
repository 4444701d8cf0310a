// Builder: lowers a graph to a Plan: the launches, their order and their buffers.
//
// Not thread-safe; one Build each. Runs on the host: it asks the machine only for the workspaces of products and
// convolutions.
//
// Beyond one launch for each layer: nodes that are computed together share the launches of one of them (node_groups.h);
// a pointwise convolution is a matrix product on the pixels that its strides select; the gradient of a value with
// several readers is accumulated in place; nodes that share variables each compute a part of their gradient.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/model/graph.h"
#include "worker/backend/cudnn/layer_handover.h"
#include "worker/backend/cudnn/lowering_options.h"
#include "worker/backend/cudnn/node_groups.h"
#include "worker/backend/cudnn/plan.h"

namespace cairn::cudnn {

// The output of a node, or of several nodes of which all but the first only rename it.
struct Value {
  Ref data;
  Ref gradient;                   // in training, once the backward pass of the first reader was lowered
  bool gradient_written = false;  // it has the share of some reader
  bool needs_gradient = false;    // it depends on a trainable variable
  int64_t numbers = 0;            // of the whole batch
  DType type = DType::kFloat32;
};

class Builder {
 public:
  Builder(const Graph& graph, const LoweringOptions& options, Machine& machine);
  // Of a layer within another one, as a graph of one step (StepGraph): the launches, buffers and variables are those of
  // the outer builder, and its examples are the steps of all examples. What it refers to outlives it.
  Builder(const Graph& step, Builder& outer, const Node& node);

  // Errors: UNIMPLEMENTED names the layer and what it cannot do.
  absl::StatusOr<std::unique_ptr<Plan>> Build();

  // ---- for layers (layer.h) ----
  using Fn = std::function<kernels::Error(const Run&)>;
  using Refs = std::initializer_list<Ref>;
  struct Sink {
    Ref ref;
    bool add = false;
  };

  // ---- values and nodes ----
  Value* Out(const Node& node) const { return node_values_[node.id]; }
  Value* In(const Node& node, size_t input = 0) const { return node_values_[node.inputs[input]]; }
  Value* ValueAt(int node) const { return node_values_[node]; }
  const Node& NodeAt(int node) const { return graph_.nodes()[node]; }
  const Node& current() const { return *current_; }  // the node that is being lowered
  const NodeGroups& groups() const { return groups_; }
  const Graph& graph() const { return graph_; }
  const LoweringOptions& options() const { return options_; }
  Machine& machine() { return machine_; }
  const Shape& ShapeOf(const Node& node, size_t input = 0) const { return graph_.nodes()[node.inputs[input]].output; }
  void Backward(std::function<void()> fn) { backward_.push_back({current_, std::move(fn)}); }
  bool Frozen(const Node& node) const { return !node.trainable; }
  bool training() const { return options_.mode == Mode::kTrain; }
  DType type() const { return options_.precision.type; }
  int64_t examples() const { return options_.examples; }
  // The layer around this graph; null: it is a whole model.
  struct Outside {
    Builder* builder = nullptr;
    const Node* node = nullptr;
    Ref key;  // KeyOf
  };
  Outside* outside() { return outside_.get(); }
  // Lowers the layer within a TimeDistributed whose steps are folded into the batch.
  void LowerWithin(const Node& node);

  // ---- buffers, variables, steps ----
  Ref New(int64_t bytes);
  Ref NewNumbers(int64_t numbers, DType type) { return New(numbers * SizeOf(type)); }
  Ref NewLike(const Value& v) { return NewNumbers(v.numbers, v.type); }
  Ref Scratch(int64_t floats) { return floats > 0 ? New(floats * 4) : Ref{}; }
  Value* NewValue(int64_t numbers, bool needs_gradient, DType type);
  const Variable* Find(const Node& node, const char* name) const;  // "kernel"; null if the node has none
  Ref ValueOf(const Variable* variable) const;                     // null: none
  // Of a node that shares another one's variables: the place of its part of the gradient.
  Ref GradientOf(const Variable* variable);
  Ref Constant(const std::vector<float>& numbers);
  // A place for the record of `numbers` float64 that the next step writes (Plan::Check).
  Ref AddCheck(int64_t numbers, std::function<absl::Status(const double*)> error);
  // The value in this type: itself, or a copy.
  Ref Read(const Value& v, DType type);
  Sink GradientSink(Value* v);
  // Records the first error. Lowering of the node goes on; Build returns the error afterwards.
  void Fail(const absl::Status& status);

  void Emit(std::string what, std::vector<Ref> reads, std::vector<Ref> writes, Fn fn);
  void EmitChecked(std::string what, std::vector<Ref> reads, std::vector<Ref> writes,
                   std::function<absl::Status(const Run&)> fn, double flop = 0);

  LayerHandover& handover() { return handover_; }

 private:
  void MakeValues();
  absl::Status LowerLoss();
  void LowerBackward();
  void LowerBackwardOf(const Node& node);

  const Graph& graph_;
  const LoweringOptions options_;
  const NodeGroups groups_;
  Machine& machine_;
  std::unique_ptr<Plan> plan_;
  absl::Status error_;
  const Node* current_ = nullptr;
  std::vector<std::unique_ptr<Value>> values_;
  std::vector<Value*> node_values_;
  LayerHandover handover_;
  struct Back {
    const Node* node = nullptr;
    std::function<void()> fn;
  };
  std::vector<Back> backward_;
  std::unique_ptr<Outside> outside_;
};

// The bias that the node's launches add; null: there is none, or it goes to the batch normalization behind the node.
inline const Variable* BiasOf(const Builder& builder, const Node& node) {
  return builder.groups().BiasGoesToNormalization(node) ? nullptr : builder.Find(node, "bias");
}

// Lowers the graph. Errors: as Builder::Build.
absl::StatusOr<std::unique_ptr<Plan>> LowerGraph(const Graph& graph, const LoweringOptions& options, Machine& machine);

}  // namespace cairn::cudnn
