// Shared by the layers of common/model/resample.h.
//
// Free functions; any thread.
#pragma once

#include "common/model/graph.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {

// Writes products with each axis' weights as constants. ONNX's Resize treats the borders differently.
void WriteOnnxResampled(const Node& node, OnnxWriter& w);

}  // namespace cairn::layers
