// Sums, products and other joins of ONNX values, and sums and products with constants. One with a constant of a number,
// or of a number for each channel, goes into the variables of the layer before it where that is possible.
//
// Each reads the operator at hand. Errors: as of OnnxOperator::read.
#pragma once

#include "common/base/status.h"
#include "common/model/onnx/onnx_importer.h"

namespace cairn {

absl::Status ImportOnnxArithmetic(OnnxImporter& importer);  // Add, Sub, Mul, Div
absl::Status ImportOnnxJoin(OnnxImporter& importer);        // Sum, Mean, Max, Min

}  // namespace cairn
