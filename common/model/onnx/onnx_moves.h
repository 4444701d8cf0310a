// Reads ONNX operators that take numbers of one value at constant places, or join two values: Gather of a layer's
// output, Pad of any kind, Einsum of two outputs. They become Take, Pad and Einsum layers.
//
// Errors: as those of OnnxOperator::read.
#pragma once

#include <vector>

#include "common/base/status.h"
#include "common/model/onnx/onnx_importer.h"

namespace cairn {

absl::Status ImportOnnxTake(OnnxImporter& importer);
// pads: the begins of all axes, then the ends, the batch included.
absl::Status ImportOnnxPads(OnnxImporter& importer, v1::Pad::Mode mode, const std::vector<int64_t>& pads, float value);
absl::Status ImportOnnxEinsumOfTwo(OnnxImporter& importer);

}  // namespace cairn
