// Builder: lowers a graph to a Plan: which launches, in which order, in which buffers.
//
// Pure host code: it asks the machine only which workspaces its products and convolutions need. One Build each; not
// thread-safe.
//
// What it does besides one launch a layer: the activation goes with the layer before it, bias and relu into the product
// or the convolution; a batch normalization takes the Add and the relu behind it, another one that the Add reads, and
// in training the bias before it; ZeroPadding2D goes into the window that follows; Flatten and Reshape are names; a
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

#include "cairn/v1/optimizer.pb.h"
#include "common/model/call_mode.h"
#include "common/model/graph.h"
#include "worker/backend/cudnn/plan.h"
#include "worker/backend/loss.h"

namespace cairn::cudnn {

struct Activation {
  v1::Activation kind = v1::LINEAR;
  float alpha = 0;  // LEAKY_RELU's slope, ELU's alpha; not negative
  bool linear() const { return kind == v1::LINEAR || kind == v1::ACTIVATION_UNSPECIFIED; }
  bool softmax() const { return kind == v1::SOFTMAX; }
  // Whether the derivative needs x: f(x) does not tell it.
  bool needs_input() const {
    return kind == v1::GELU || kind == v1::GELU_TANH || kind == v1::SILU || kind == v1::SOFTPLUS;
  }
  kernels::Act act() const { return linear() ? kernels::Act::kLinear : static_cast<kernels::Act>(kind); }
};

// The output of a node, or of several of which all but the first only rename it.
struct Value {
  Ref data;
  Ref gradient;                   // in training, from the first reader's backward on
  bool gradient_written = false;  // some reader's share is in it
  bool needs_gradient = false;    // a trainable variable stands before it
  int64_t numbers = 0;            // of the whole batch
  DType type = DType::kFloat32;
};

// Axes of tensors in another order: the examples, then up to three axes; missing ones stand first with the size 1.
struct Permutation {
  struct Axes {
    int64_t dims[4] = {1, 1, 1, 1};
    int64_t strides[4] = {0, 0, 0, 0};  // in the other tensor
  };
  Axes forward, backward;
};
// order: for each axis of the result the one it is of `from`, counted from 1 (keras.layers.Permute).
Permutation PermutationOf(int64_t examples, const Shape& from, absl::Span<const int32_t> order);

struct LoweringOptions {
  int64_t examples = 0;
  int64_t label_size = 1;  // numbers of an example's label
  Mode mode = Mode::kTrain;
  Element inputs = Element::kFloat;  // of the batch's inputs on the device
  Precision precision;
  v1::Loss loss;
  std::vector<v1::Metric> metrics;
  LossPlan loss_plan;
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
  const Node& current() const { return *current_; }                 // that is being lowered
  bool Joined(const Node& node) const { return joined_[node.id]; }  // lowered with another node
  const LoweringOptions& options() const { return options_; }
  Machine& machine() { return machine_; }
  kernels::Window WindowOf(const Node& node) const;  // with the pads of a ZeroPadding2D before it
  const Shape& ShapeOf(const Node& node, size_t input = 0) const { return graph_.nodes()[node.inputs[input]].output; }
  bool TakenByNormalization(const Node& node) const;  // an Add that a batch normalization before it computes
  bool TakesZeros(const Node& node) const;            // a max pooling, of a ZeroPadding2D
  // A batch normalization that the other one of its Add computes.
  bool NormalizedByOther(const Node& node) const;
  // In training a batch normalization takes away again what a bias before it adds: it is a part of the moving mean and
  // has no gradient.
  bool BiasGoesToNormalization(const Node& node) const;
  const Variable* BiasOf(const Node& node) const {
    return BiasGoesToNormalization(node) ? nullptr : Find(node, "bias");
  }
  const Node* OnlyReader(const Node& node) const;  // null: none, or several
  void Backward(std::function<void()> fn) { backward_.push_back({current_, std::move(fn)}); }
  Activation ActivationOf(const Node& node) const;
  Activation JoinedActivation(const Node& node) const;  // its own, or that of the Activation layer that joined it
  bool Frozen(const Node& node) const { return !node.trainable; }
  // Whether the node is computed as in training: it may not be in a step of training.
  bool Trains(const Node& node) const { return training() && !InfersAlways(node); }
  // A batch normalization that takes its batch's statistics; the others have constant ones, the moving statistics.
  bool TakesStatistics(const Node& node) const { return Trains(node) && !Frozen(node); }
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
  void EmitConvert(const Ref& from, DType from_type, const Ref& to, DType to_type, int64_t n, bool add = false);
  // C of `p` from A and B; bias only with p.bias. `add`: to what stands in C.
  void EmitProduct(Product p, const Ref& a, const Ref& b, const Ref& bias, const Ref& c, bool add = false);
  // y = f(y + bias), in place; the value `out` is y then, or, where the derivative needs f's argument, another buffer.
  // Returns y before f where backward needs it.
  Ref EmitActivation(const Activation& f, const Ref& y, const Ref& bias, int64_t columns, Value* out);
  // Turns out's gradient into that of what stood before f, in place.
  void EmitActivationBackward(const Activation& f, const Ref& before, int64_t columns, Value* out);
  void EmitPermute(const Permutation::Axes& axes, const Ref& from, const Ref& to, DType type, bool add);
  void EmitColumnSums(const Ref& x, int64_t rows, int64_t columns, const Ref& sums, DType type);

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
  // What a pointwise window with strides reads of the value, for all that read the same; null: not made yet.
  Value*& ThinnedAt(Value* in, int64_t row_stride, int64_t column_stride) {
    return thinned_[{in, row_stride, column_stride}];
  }

 private:
  void MakeValues();
  bool JoinsProducer(const Node& node) const;
  absl::Status LowerLoss();
  void LowerBackward();
  void MakeSegments();

  const Graph& graph_;
  const LoweringOptions options_;
  Machine& machine_;
  std::unique_ptr<Plan> plan_;
  absl::Status error_;
  const Node* current_ = nullptr;
  std::vector<std::unique_ptr<Value>> values_;
  std::vector<Value*> node_values_;
  std::vector<std::vector<int>> consumers_;                         // of each node
  std::vector<bool> joined_;                                        // lowered with another node
  std::vector<bool> exact_;                                         // float32 whatever the precision: ids
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
