// The operations that nodes compile to, one file for each group of layers.
//
// Each Make compiles the forward pass: it sets out->data, and needs in->data. Windows and shapes are the node's where
// nothing else is said.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "common/model/graph.h"
#include "worker/backend/onednn/builder.h"
#include "worker/backend/onednn/plan.h"

namespace cairn::onednn {

// input.cc: the batch's inputs, y = x * scale + offset, in the layout that the first reader likes.
std::unique_ptr<Op> MakeInput(PlanBuilder& b, const Node& node, float scale, float offset, bool channels_first,
                              Value* out);

// convolution.cc: Conv1D, Conv2D, Conv3D, the depthwise ones, both halves of the separable ones, the transposed ones,
// Dense on images.
struct Convolution {
  enum Kind { kForward, kDepthwise, kTransposed };
  Kind kind = kForward;
  const Variable* kernel = nullptr;
  const Variable* bias = nullptr;  // or none
  Window window;                   // the pads of a ZeroPadding2D before it included
  Shape output;
  Shape input;  // of a volume; else it may be empty
};
std::unique_ptr<Op> MakeConvolution(PlanBuilder& b, const Convolution& convolution, const Activation& activation,
                                    Value* in, Value* out);

// dense.cc: Dense on vectors, flattened images too, and on the rows of a sequence; attention's projections.
struct Projection {
  const Variable* kernel = nullptr;  // in its first axes, `units` in its last
  const Variable* bias = nullptr;    // or none
  int64_t units = 0;
  Shape output;  // [units] or [steps, units]
};
std::unique_ptr<Op> MakeDense(PlanBuilder& b, const Projection& projection, const Activation& activation, Value* in,
                              Value* out);

// attention.cc: what stands between the projections.
std::unique_ptr<Op> MakeAttention(PlanBuilder& b, const Node& node, Value* query, Value* key, Value* value, Value* out);

// embedding.cc
std::unique_ptr<Op> MakeEmbedding(PlanBuilder& b, const Node& node, Value* in, Value* out);

// pooling.cc
std::unique_ptr<Op> MakePooling(PlanBuilder& b, const Node& node, Value* in, Value* out);
std::unique_ptr<Op> MakeGlobalAveragePooling(PlanBuilder& b, const Node& node, Value* in, Value* out);

// normalization.cc: with the relu after it, if there is one.
std::unique_ptr<Op> MakeBatchNormalization(PlanBuilder& b, const Node& node, bool relu, Value* in, Value* out);

// Of the way back of a normalization: the values of gamma and beta, where it has them, and where their gradients go.
// Those of frozen ones go nowhere: oneDNN has no way back to the input alone that knows of scale or shift.
void AddScaleAndShift(PlanBuilder& b, const Variable* gamma, const Variable* beta, const Desc& channels,
                      std::vector<std::pair<int, dnnl::memory>>* arguments);

// example_normalization.cc
std::unique_ptr<Op> MakeLayerNormalization(PlanBuilder& b, const Node& node, Value* in, Value* out);
std::unique_ptr<Op> MakeGroupNormalization(PlanBuilder& b, const Node& node, Value* in, Value* out);

// activation.cc: as an operation, as the last part of a primitive, and on a buffer in place.
std::unique_ptr<Op> MakeActivation(PlanBuilder& b, const Activation& activation, Value* in, Value* out);
std::unique_ptr<Op> MakeSoftmax(PlanBuilder& b, Value* in, Value* out);  // over axis 1
void AppendActivation(const Activation& activation, dnnl::primitive_attr* attributes);
Call ApplyActivation(PlanBuilder& b, const Activation& activation, Tensor* tensor);

// elementwise.cc
std::unique_ptr<Op> MakeRescaling(PlanBuilder& b, const Node& node, Value* in, Value* out);
std::unique_ptr<Op> MakeDropout(PlanBuilder& b, const Node& node, Value* in, Value* out);
std::unique_ptr<Op> MakeSpatialDropout(PlanBuilder& b, const Node& node, Value* in, Value* out);

// joins.cc
std::unique_ptr<Op> MakeSum(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out);
std::unique_ptr<Op> MakeMaximum(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out);
std::unique_ptr<Op> MakeMultiply(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out);

// layout.cc. Plain: to PlainDesc(shape), the numbers in the same order; also a Reshape.
std::unique_ptr<Op> MakePlain(PlanBuilder& b, const Shape& shape, Value* in, Value* out);
std::unique_ptr<Op> MakePermute(PlanBuilder& b, const Node& node, Value* in, Value* out);
std::unique_ptr<Op> MakeUpSampling(PlanBuilder& b, const Node& node, Value* in, Value* out);
std::unique_ptr<Op> MakeConcatenate(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out);
std::unique_ptr<Op> MakeZeroPadding(PlanBuilder& b, const Node& node, Value* in, Value* out);

}  // namespace cairn::onednn
