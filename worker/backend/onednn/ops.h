// The operations that nodes compile to, one file for each group of layers.
//
// Each Make function compiles the forward pass: it reads in->data and sets out->data. Windows and shapes are those of
// the node unless a function says otherwise.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "common/model/graph.h"
#include "worker/backend/onednn/builder.h"
#include "worker/backend/onednn/plan.h"

namespace cairn::onednn {

// input.cc: the batch's inputs, y = x * scale + offset, in the layout that suits their readers.
std::unique_ptr<Op> MakeInput(PlanBuilder& b, const Node& node, float scale, float offset, bool channels_first,
                              Value* out);

// convolution.cc: Conv1D, Conv2D, Conv3D, the depthwise ones, both halves of the separable ones, the transposed ones,
// Dense on images.
struct Convolution {
  enum Kind { kForward, kDepthwise, kTransposed };
  Kind kind = kForward;
  const Variable* kernel = nullptr;
  const Variable* bias = nullptr;  // null: none
  Window window;                   // with the pads of a ZeroPadding2D that joined it
  Shape output;
  Shape input;  // needed for volumes only
};
std::unique_ptr<Op> MakeConvolution(PlanBuilder& b, const Convolution& convolution, const Activation& activation,
                                    Value* in, Value* out);

// dense.cc: Dense on vectors, flattened images too, and on the rows of a sequence; the projections of attention.
struct Projection {
  const Variable* kernel = nullptr;  // its last axis has `units` numbers
  const Variable* bias = nullptr;    // null: none
  int64_t units = 0;
  Shape output;  // [units] or [steps, units]
};
std::unique_ptr<Op> MakeDense(PlanBuilder& b, const Projection& projection, const Activation& activation, Value* in,
                              Value* out);

// attention.cc: attention between its projections.
std::unique_ptr<Op> MakeAttention(PlanBuilder& b, const Node& node, Value* query, Value* key, Value* value, Value* out);

// embedding.cc
std::unique_ptr<Op> MakeEmbedding(PlanBuilder& b, const Node& node, Value* in, Value* out);

// max_pooling.cc: null, and nothing is compiled, unless the windows lie apart and within the image.
std::unique_ptr<Op> MakeDisjointMaxPooling(PlanBuilder& b, const Node& node, Value* in, Value* out);

// pooling.cc
std::unique_ptr<Op> MakePooling(PlanBuilder& b, const Node& node, Value* in, Value* out);
std::unique_ptr<Op> MakeGlobalAveragePooling(PlanBuilder& b, const Node& node, Value* in, Value* out);

// normalization.cc: with the relu that joined it, if any.
std::unique_ptr<Op> MakeBatchNormalization(PlanBuilder& b, const Node& node, bool relu, Value* in, Value* out);

// example_normalization.cc
std::unique_ptr<Op> MakeLayerNormalization(PlanBuilder& b, const Node& node, Value* in, Value* out);
std::unique_ptr<Op> MakeGroupNormalization(PlanBuilder& b, const Node& node, Value* in, Value* out);

// activation.cc: as an operation, as the post-op of a primitive, and on a buffer in place.
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

// layout.cc. MakePlain: to PlainDesc(shape), with the numbers in the same order; also for Reshape.
std::unique_ptr<Op> MakePlain(PlanBuilder& b, const Shape& shape, Value* in, Value* out);
std::unique_ptr<Op> MakePermute(PlanBuilder& b, const Node& node, Value* in, Value* out);
std::unique_ptr<Op> MakeUpSampling(PlanBuilder& b, const Node& node, Value* in, Value* out);
std::unique_ptr<Op> MakeConcatenate(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out);
std::unique_ptr<Op> MakeZeroPadding(PlanBuilder& b, const Node& node, Value* in, Value* out);

}  // namespace cairn::onednn
