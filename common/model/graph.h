// Graph: a checked model. Layers in topological order with every default filled in, shapes inferred, and variables laid
// out in the parameter space.
//
// Immutable after Build; any thread may read it. Invariants:
//   1. nodes()[i].id == i; a node's inputs have smaller ids; node 0 is the input; the last node is the output.
//   2. Variables are in layer order, and in Keras' order within a layer (kernel, bias; gamma, beta, moving_mean,
//      moving_variance). Each offset is a multiple of kSpaceAlignment. Ranges do not overlap.
//   3. space_size() is a multiple of kSpaceAlignment; numbers between variables are always zero.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cairn/v1/job.pb.h"
#include "cairn/v1/model.pb.h"
#include "common/base/status.h"
#include "common/model/layer_kind.h"
#include "common/tensor/buffer.h"

namespace cairn {

enum class VariableKind {
  kTrainable,
  // A moving average. A push carries examples * the batch's statistic; the ps applies
  // v = momentum * v + (1 - momentum) * (sum / examples).
  kMovingAverage,
  // A variable of a layer with `trainable: false`, moving averages included: its value never changes. Or the vector of
  // a spectral normalization, which an update computes of the kernel (common/model/spectral.h). Its gradient is zero.
  kFrozen,
};

struct Variable {
  std::string name;  // "conv2d/kernel", as Keras names it
  // Keras' layout: Conv2D kernel [h, w, in, out], Conv1D [w, in, out], depthwise [h, w, in, multiplier], transposed
  // [h, w, out, in], Dense [in, out], embeddings [ids, out], attention [in, heads, out] and [heads, in, out].
  Shape shape;
  VariableKind kind = VariableKind::kTrainable;
  float momentum = 0;  // kMovingAverage
  int64_t offset = 0;  // in numbers of the parameter space
  int64_t size = 0;    // NumElements(shape)
  int node = 0;
  v1::Initializer initializer;      // kind is never INITIALIZER_UNSPECIFIED
  int64_t fan_in = 0, fan_out = 0;  // for the scaled initializers, as Keras computes them
  float l1 = 0, l2 = 0;             // of its regularizer; used only if it is kTrainable
};

// A window's third axis.
struct WindowAxis {
  int64_t kernel = 1, stride = 1, dilation = 1, pad_begin = 0, pad_end = 0;
};

// Geometry of a window over [height, width, channels], for convolutions and pooling. A sequence [steps, channels] is
// treated as an image of height 1. For a Conv2DTranspose: the convolution from its output to its input.
struct Window {
  int64_t kernel[2] = {1, 1};
  int64_t strides[2] = {1, 1};
  int64_t dilation[2] = {1, 1};
  int64_t pad_begin[2] = {0, 0};  // top, left
  int64_t pad_end[2] = {0, 0};    // bottom, right
  WindowAxis depth;               // for [depth, height, width, channels]; otherwise one plane
  int64_t groups = 1;             // of a convolution's channels
};

struct Node {
  int id = 0;
  LayerKind kind = LayerKind::kInput;
  std::string name;
  v1::Layer layer;  // the user's layer with defaults filled in
  std::vector<int> inputs;
  Shape output;  // without the batch dimension: [height, width, channels], [steps, features] or [features]
  std::vector<int> variables;  // indices into Graph::variables()
  bool trainable = true;       // false: its variables are kFrozen, and BatchNormalization uses its moving statistics
  v1::Activation activation = v1::LINEAR;  // of convolutions, Dense, Activation
  float negative_slope = 0;                // LEAKY_RELU
  float alpha = 0;                         // ELU
  Window window;                           // convolutions, pooling, ZeroPadding2D (pads only)
  int shares = -1;                         // an earlier node whose variables this one uses; -1: it has its own
  // The node that makes the step mask of the output (Masking, Embedding with mask_zero); -1: none.
  int mask = -1;
  int64_t input_offset = 0;  // kInput: where its numbers begin within an example
};

class Graph {
 public:
  // Errors (INVALID_ARGUMENT) name the layer: `layer "conv2d": kernel [5,5] is larger than its input [3,3,8]; ...`
  static absl::StatusOr<Graph> Build(const v1::Model& model);

  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<Variable>& variables() const { return variables_; }
  const Node& output() const { return nodes_.back(); }
  const Shape& input_shape() const { return nodes_.front().output; }
  // Node ids, in the order of the model's inputs and outputs.
  const std::vector<int>& inputs() const { return inputs_; }
  const std::vector<int>& outputs() const { return outputs_; }
  const std::vector<v1::Submodel>& submodels() const { return submodels_; }
  int64_t space_size() const { return space_size_; }  // numbers, padding included
  int64_t parameters() const;                         // numbers, padding excluded
  int64_t trainable_parameters() const;

 private:
  friend class GraphBuilder;
  std::vector<Node> nodes_;
  std::vector<Variable> variables_;
  std::vector<int> inputs_, outputs_;
  std::vector<v1::Submodel> submodels_;
  int64_t space_size_ = 0;
};

const char* LayerTypeName(LayerKind kind);  // "conv2d": Keras' snake case

}  // namespace cairn
