// Shapes of tensors that are joined number by number, as numpy broadcasts them.
//
// Pure functions. Errors are INVALID_ARGUMENT; the caller adds the layer's name.
#pragma once

#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/model/graph.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {

// Axes are counted from the last one; one of 1 is repeated.
absl::StatusOr<Shape> BroadcastShape(absl::Span<const Shape> inputs);

// The inputs in one order of their axes, each with as many as the output: what an operator of ONNX broadcasts. Their
// order goes to *channels.
OnnxWriter::Names BroadcastInputs(const Node& node, OnnxWriter& w, Channels* channels);

}  // namespace cairn::layers
