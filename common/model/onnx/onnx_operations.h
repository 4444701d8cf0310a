// Operations on tensors, reductions and parts in ONNX, both ways: LayerType::write_onnx and OnnxOperator::read of
// Operation, Reduce and Slice.
//
// Errors: as of OnnxOperator::read.
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

// The operator at hand as an Operation of kind `kind` of two inputs, of which one may be a constant of any shape.
absl::Status ImportOnnxBinary(OnnxImporter& importer, v1::Operation::Kind kind);

}  // namespace cairn
