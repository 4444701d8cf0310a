// The operations that nodes compile to, one file for each group of layers.
//
// Each Make compiles the forward pass: it sets out->data, and needs in->data. Windows and shapes are the node's.
#pragma once

#include <memory>
#include <vector>

#include "common/model/graph.h"
#include "worker/backend/onednn/builder.h"
#include "worker/backend/onednn/plan.h"

namespace cairn::onednn {

// input.cc: the batch's inputs, y = x * scale + offset, in the layout that the first reader likes.
std::unique_ptr<Op> MakeInput(PlanBuilder& b, const Node& node, float scale, float offset, bool channels_first,
                              Value* out);

// convolution.cc: Conv2D, DepthwiseConv2D, and Dense on images. extra: a ZeroPadding2D before it, or null.
std::unique_ptr<Op> MakeConvolution(PlanBuilder& b, const Node& node, const Window* extra, const Activation& activation,
                                    Value* in, Value* out);

// dense.cc: Dense on vectors, flattened images too.
std::unique_ptr<Op> MakeDense(PlanBuilder& b, const Node& node, const Activation& activation, Value* in, Value* out);

// pooling.cc
std::unique_ptr<Op> MakePooling(PlanBuilder& b, const Node& node, Value* in, Value* out);
std::unique_ptr<Op> MakeGlobalAveragePooling(PlanBuilder& b, const Node& node, Value* in, Value* out);

// normalization.cc: with the relu after it, if there is one.
std::unique_ptr<Op> MakeBatchNormalization(PlanBuilder& b, const Node& node, bool relu, Value* in, Value* out);

// elementwise.cc
std::unique_ptr<Op> MakeActivation(PlanBuilder& b, const Activation& activation, Value* in, Value* out);
std::unique_ptr<Op> MakeSoftmax(PlanBuilder& b, Value* in, Value* out);  // over axis 1
std::unique_ptr<Op> MakeRescaling(PlanBuilder& b, const Node& node, Value* in, Value* out);
std::unique_ptr<Op> MakeDropout(PlanBuilder& b, const Node& node, Value* in, Value* out);
std::unique_ptr<Op> MakeAdd(PlanBuilder& b, const std::vector<Value*>& in, Value* out);

// layout.cc
std::unique_ptr<Op> MakePlain(PlanBuilder& b, const Shape& shape, Value* in, Value* out);  // to PlainDesc(shape)
std::unique_ptr<Op> MakeConcatenate(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out);
std::unique_ptr<Op> MakeZeroPadding(PlanBuilder& b, const Node& node, Value* in, Value* out);

}  // namespace cairn::onednn
