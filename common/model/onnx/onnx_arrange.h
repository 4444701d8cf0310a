// ONNX operators that only move numbers, or leave them unchanged. Most create no layer: their output is another view of
// the layer that they read (onnx_view.h).
//
// Each function reads the importer's current operator. Errors: as those of OnnxOperator::read.
#pragma once

#include <set>
#include <vector>

#include "common/base/status.h"
#include "common/model/onnx/onnx_importer.h"

namespace cairn {

// What a Transpose makes of a value: axis i of its dims is axis dims[i] of x.dims.
struct OnnxOrder {
  std::vector<int> dims;
  int batch = 0;
};
absl::StatusOr<OnnxOrder> OnnxOrderOf(OnnxImporter& importer, const OnnxView& x);

// The axes of x.dims that a Squeeze leaves out.
absl::StatusOr<std::set<int>> OnnxSqueezedAxes(OnnxImporter& importer, const OnnxView& x);
OnnxView OnnxWithoutAxes(const OnnxView& x, const std::set<int>& gone);  // of size 1

absl::Status ImportOnnxIdentity(OnnxImporter& importer);
absl::Status ImportOnnxCast(OnnxImporter& importer);  // to floats, integers and bools
absl::Status ImportOnnxTranspose(OnnxImporter& importer);
absl::Status ImportOnnxReshape(OnnxImporter& importer);
absl::Status ImportOnnxFlatten(OnnxImporter& importer);
absl::Status ImportOnnxSqueeze(OnnxImporter& importer);
absl::Status ImportOnnxUnsqueeze(OnnxImporter& importer);
absl::Status ImportOnnxDepthToSpace(OnnxImporter& importer);
absl::Status ImportOnnxSpaceToDepth(OnnxImporter& importer);
absl::Status ImportOnnxShape(OnnxImporter& importer);  // creates a constant; its batch size is unknown
absl::Status ImportOnnxExpand(OnnxImporter& importer);

}  // namespace cairn
