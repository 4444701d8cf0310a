// ONNX operators that only move numbers, or leave them unchanged. Most create no layer: their output is another view of
// the layer that they read (onnx_view.h).
//
// Each function reads the importer's current operator. Errors: as those of OnnxOperator::read.
#pragma once

#include "common/base/status.h"
#include "common/model/onnx/onnx_importer.h"

namespace cairn {

absl::Status ImportOnnxIdentity(OnnxImporter& importer);
absl::Status ImportOnnxCast(OnnxImporter& importer);  // to floats, integers and bools
absl::Status ImportOnnxTranspose(OnnxImporter& importer);
absl::Status ImportOnnxReshape(OnnxImporter& importer);
absl::Status ImportOnnxFlatten(OnnxImporter& importer);
absl::Status ImportOnnxSqueeze(OnnxImporter& importer);
absl::Status ImportOnnxUnsqueeze(OnnxImporter& importer);
absl::Status ImportOnnxShape(OnnxImporter& importer);  // creates a constant; its batch size is unknown
absl::Status ImportOnnxExpand(OnnxImporter& importer);

}  // namespace cairn
