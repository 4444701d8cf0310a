// Operators of ONNX that only move numbers, or leave them as they are. Most make no layer: their output is another view
// of the layer whose output they take (onnx_view.h).
//
// Each reads the operator at hand. Errors: as of OnnxOperator::read.
#pragma once

#include "common/base/status.h"
#include "common/model/onnx/onnx_importer.h"

namespace cairn {

absl::Status ImportOnnxIdentity(OnnxImporter& importer);
absl::Status ImportOnnxCast(OnnxImporter& importer);  // to floats; or to whole numbers, for a Gather of ids
absl::Status ImportOnnxTranspose(OnnxImporter& importer);
absl::Status ImportOnnxReshape(OnnxImporter& importer);
absl::Status ImportOnnxFlatten(OnnxImporter& importer);
absl::Status ImportOnnxSqueeze(OnnxImporter& importer);
absl::Status ImportOnnxUnsqueeze(OnnxImporter& importer);
absl::Status ImportOnnxShape(OnnxImporter& importer);  // its output is a constant, of which the batch is not known
absl::Status ImportOnnxExpand(OnnxImporter& importer);

}  // namespace cairn
