// ONNX operators that combine values element by element, or one value with a constant. A constant of one number, or of
// one number per channel, is folded into the preceding layer's variables if possible.
//
// Each function reads the importer's current operator. Errors: as those of OnnxOperator::read.
#pragma once

#include "common/base/status.h"
#include "common/model/onnx/onnx_importer.h"

namespace cairn {

absl::Status ImportOnnxArithmetic(OnnxImporter& importer);  // Add, Sub, Mul, Div
absl::Status ImportOnnxJoin(OnnxImporter& importer);        // Sum, Mean, Max, Min

}  // namespace cairn
