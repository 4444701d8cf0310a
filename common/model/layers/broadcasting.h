// Shapes of tensors that are combined elementwise with numpy's broadcasting.
//
// Pure functions. Errors are INVALID_ARGUMENT; the caller adds the layer's name.
#pragma once

#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/model/graph.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {

// Axes are aligned from the last one; an axis of size 1 is repeated.
absl::StatusOr<Shape> BroadcastShape(absl::Span<const Shape> inputs);

// The inputs with their axes in one common order, each with as many axes as the output, as ONNX's operators broadcast
// them. Stores that order in *channels.
OnnxWriter::Names BroadcastInputs(const Node& node, OnnxWriter& w, Channels* channels);

}  // namespace cairn::layers
