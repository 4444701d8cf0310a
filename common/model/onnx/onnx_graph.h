// OnnxGraph: an ONNX model that was checked: one input, one output, every value made once, before it is used.
//
// Points into the message, which outlives it. One thread. Invariants:
//   1. Operators are those that the output depends on, each behind those whose outputs it takes.
//   2. Every input of an operator is "", the graph's input, a constant or another operator's output.
//   3. Constants are sound (onnx_tensor.h).
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "onnx/onnx.pb.h"

namespace cairn {

struct OnnxGraph {
  int64_t opset = 0;
  std::vector<const onnx::NodeProto*> nodes;
  std::map<std::string, const onnx::TensorProto*> constants;  // initializers and Constant operators
  const onnx::ValueInfoProto* input = nullptr;
  const onnx::ValueInfoProto* output = nullptr;
  std::shared_ptr<std::deque<onnx::TensorProto>> made;               // those of Constant operators
  std::shared_ptr<std::deque<onnx::NodeProto>> made_nodes;           // put together (onnx_fuse.h)
  std::map<std::string, std::vector<const onnx::NodeProto*>> users;  // by value; the graph's output counts as a nullptr

  bool UsedOnce(const std::string& value) const {
    const auto found = users.find(value);
    return found != users.end() && found->second.size() == 1;
  }
};

// Errors: INVALID_ARGUMENT names the node or tensor; UNIMPLEMENTED what the file has that is not read.
absl::StatusOr<OnnxGraph> CheckOnnx(const onnx::ModelProto& model);

// Fills in `users` of `nodes`.
void FindOnnxUsers(OnnxGraph* graph);

// `node "conv1" (Conv)`; without a name, the first output's.
std::string OnnxNodeText(const onnx::NodeProto& node);

}  // namespace cairn
