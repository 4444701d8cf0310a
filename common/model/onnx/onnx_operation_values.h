// The operators of ONNX that an Operation is written as.
//
// Free functions; any thread.
#pragma once

#include <string>

#include "common/base/status.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn {

// x: its operands in order, the constant among them. Returns the name of the result. REQUIRED: CheckOperationOnnx.
std::string OnnxValueOf(const v1::Operation& operation, OnnxWriter& w, const OnnxWriter::Names& x);

// Errors: UNIMPLEMENTED, without the layer's name: ONNX has no operator for it, or for its activation.
absl::Status CheckOperationOnnx(const Node& node);

// The kind that is one operator of this name alone; KIND_UNSPECIFIED: there is none.
v1::Operation::Kind OnnxKindOf(const std::string& op);

std::string OnnxAsFloat(OnnxWriter& w, const std::string& value);  // of numbers of another type

}  // namespace cairn
