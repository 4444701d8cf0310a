// What the layers of common/model/resample.h share.
//
// Free functions; any thread.
#pragma once

#include "common/model/graph.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {

// As products with the weights of each axis, which are constants. ONNX' Resize has other rules at the ends.
void WriteOnnxResampled(const Node& node, OnnxWriter& w);

}  // namespace cairn::layers
