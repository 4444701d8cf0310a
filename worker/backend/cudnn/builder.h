// Builder: lowers a graph to a Plan: which launches, in which order, in which buffers.
//
// Pure host code: it asks the machine only which workspaces its products and convolutions need. One Build each; not
// thread-safe.
//
// What it does besides one launch a layer: nodes that are computed together have the launches of one (node_groups.h); a
// pointwise convolution is a matrix product, on what its strides leave; a value that several layers read collects its
// gradient in place.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/model/graph.h"
#include "worker/backend/cudnn/lowering_options.h"
#include "worker/backend/cudnn/node_groups.h"
#include "worker/backend/cudnn/plan.h"

namespace cairn::cudnn {

// The output of a node, or of several of which all but the first only rename it.
struct Value {
  Ref data;
  Ref gradient;                   // in training, from the first reader's backward on
  bool gradient_written = false;  // some reader's share is in it
  bool needs_gradient = false;    // a trainable variable stands before it
  int64_t numbers = 0;            // of the whole batch
  DType type = DType::kFloat32;
};

class Builder {
 public:
  Builder(const Graph& graph, const LoweringOptions& options, Machine& machine);

  // Errors: UNIMPLEMENTED names the layer and what it cannot do.
  absl::StatusOr<std::unique_ptr<Plan>> Build();

  // ---- for layers (layer.h) ----
  using Fn = std::function<kernels::Error(const Run&)>;
  using Refs = std::initializer_list<Ref>;
  struct Sink {
    Ref ref;
    bool add = false;
  };

  // ---- values and the order of things ----
  Value* Out(const Node& node) const { return node_values_[node.id]; }
  Value* In(const Node& node, size_t input = 0) const { return node_values_[node.inputs[input]]; }
  Value* ValueAt(int node) const { return node_values_[node]; }
  const Node& NodeAt(int node) const { return graph_.nodes()[node]; }
  // A node that lives as long as the builder.
  const Node& Keep(Node node) { return *inner_nodes_.emplace_back(std::make_unique<Node>(std::move(node))); }
  const Node& current() const { return *current_; }  // that is being lowered
  const NodeGroups& groups() const { return groups_; }
  const Graph& graph() const { return graph_; }
  const Variable& VariableAt(int variable) const { return graph_.variables()[variable]; }
  const LoweringOptions& options() const { return options_; }
  Machine& machine() { return machine_; }
  const Shape& ShapeOf(const Node& node, size_t input = 0) const { return graph_.nodes()[node.inputs[input]].output; }
  const Variable* BiasOf(const Node& node) const {
    return groups_.BiasGoesToNormalization(node) ? nullptr : Find(node, "bias");
  }
  void Backward(std::function<void()> fn) { backward_.push_back({current_, std::move(fn)}); }
  bool Frozen(const Node& node) const { return !node.trainable; }
  bool training() const { return options_.mode == Mode::kTrain; }
  DType type() const { return options_.precision.type; }
  int64_t examples() const { return options_.examples; }

  // ---- buffers, steps, what several layers are made of ----
  Ref New(int64_t bytes);
  Ref NewNumbers(int64_t numbers, DType type) { return New(numbers * SizeOf(type)); }
  Ref NewLike(const Value& v) { return NewNumbers(v.numbers, v.type); }
  Ref Scratch(int64_t floats) { return floats > 0 ? New(floats * 4) : Ref{}; }
  Value* NewValue(int64_t numbers, bool needs_gradient, DType type);
  const Variable* Find(const Node& node, const char* name) const;  // "kernel"; null if it has none
  Ref ValueOf(const Variable* variable) const;                     // none of null
  Ref GradientOf(const Variable* variable) const;
  std::string NameOf(const Ref& ref) const;
  // The value in `type`: itself, or a copy.
  Ref Read(const Value& v, DType type);
  Sink GradientSink(Value* v);
  // Keeps the first error: layers go on without looking at it.
  void Fail(const absl::Status& status);

  void Emit(std::string what, std::vector<Ref> reads, std::vector<Ref> writes, Fn fn);
  void EmitChecked(std::string what, std::vector<Ref> reads, std::vector<Ref> writes,
                   std::function<absl::Status(const Run&)> fn, double flop = 0);
  int64_t BytesOf(const Ref& ref) const;  // of the tensor there; of few bytes, such as labels, 0

  // ---- what layers keep for others ----
  // One of the two that a launch may normalize.
  struct Normalization {
    Value* in = nullptr;  // null: there is none
    Ref x, mean, variance, scale, offset;
    Ref dgamma, dbeta;  // backward
    float epsilon = 0;
    kernels::Normalized At(const Run& r) const;
    std::vector<Ref> Reads() const { return {x, mean, variance, scale, offset}; }
  };
  std::map<int, Normalization>& postponed() { return postponed_; }  // of the nodes NormalizedByOther
  // Which steps of the node's output count, of 1 and 0, float32 [examples, steps]; none: all.
  Ref StepMaskOf(int node) const {
    const int maker = graph_.nodes()[node].mask;
    return maker < 0 ? Ref{} : step_masks_.at(maker);
  }
  void SetStepMask(const Node& node, const Ref& mask) { step_masks_[node.id] = mask; }  // of the node that makes it
  // What a pointwise window with strides reads of the value, for all that read the same; null: not made yet.
  Value*& ThinnedAt(Value* in, int64_t row_stride, int64_t column_stride) {
    return thinned_[{in, row_stride, column_stride}];
  }

 private:
  void MakeValues();
  absl::Status LowerLoss();
  void LowerBackward();
  void MakeSegments();

  const Graph& graph_;
  const LoweringOptions options_;
  const NodeGroups groups_;
  Machine& machine_;
  std::unique_ptr<Plan> plan_;
  absl::Status error_;
  const Node* current_ = nullptr;
  std::vector<std::unique_ptr<Value>> values_;
  std::vector<Value*> node_values_;
  std::vector<bool> exact_;                                         // float32 whatever the precision: ids
  std::vector<std::unique_ptr<Node>> inner_nodes_;                  // of layers within others
  std::map<int, Ref> step_masks_;                                   // by the node that makes it
  std::map<int, Normalization> postponed_;                          // of the nodes NormalizedByOther
  std::map<std::tuple<Value*, int64_t, int64_t>, Value*> thinned_;  // by strides
  struct Back {
    const Node* node = nullptr;
    std::function<void()> fn;
  };
  std::vector<Back> backward_;
};

// Lowers `graph`.
absl::StatusOr<std::unique_ptr<Plan>> LowerGraph(const Graph& graph, const LoweringOptions& options, Machine& machine);

}  // namespace cairn::cudnn
