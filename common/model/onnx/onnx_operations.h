// Reads and writes tensor operations, reductions and slices in ONNX: LayerType::write_onnx and OnnxOperator::read of
// Operation, Reduce and Slice.
//
// Errors: as those of OnnxOperator::read.
#pragma once

#include "common/base/status.h"
#include "common/model/onnx/onnx_importer.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn {

void WriteOnnxOperation(const Node& node, OnnxWriter& w);
void WriteOnnxReduce(const Node& node, OnnxWriter& w);
void WriteOnnxSlice(const Node& node, OnnxWriter& w);

absl::Status ImportOnnxOperation(OnnxImporter& importer);
absl::Status ImportOnnxReduce(OnnxImporter& importer);
absl::Status ImportOnnxSlice(OnnxImporter& importer);
// What the current operator, a Slice, leaves of a value of x.dims.
absl::StatusOr<v1::Slice> OnnxSliceOf(OnnxImporter& importer, const OnnxView& x);

// Imports the current operator as an Operation of kind `kind` with two inputs, one of which may be a constant of any
// shape.
absl::Status ImportOnnxBinary(OnnxImporter& importer, v1::Operation::Kind kind);

}  // namespace cairn
