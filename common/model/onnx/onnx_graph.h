// OnnxGraph: a checked ONNX model: each value is produced once, before it is used.
//
// Points into the message, which must outlive it. One thread. Invariants:
//   1. The operators are those that the outputs depend on, each after the operators whose outputs it uses.
//   2. Every input of an operator is "", an input of the graph, a constant or another operator's output.
//   3. Constants are valid (onnx_tensor.h).
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
  std::vector<const onnx::ValueInfoProto*> inputs, outputs;   // one or more of each
  std::shared_ptr<std::deque<onnx::TensorProto>> made;        // those of Constant operators
  std::shared_ptr<std::deque<onnx::NodeProto>> made_nodes;    // fused from several nodes (onnx_fuse.h)
  std::map<std::string, std::vector<const onnx::NodeProto*>>
      users;  // by value; nullptr stands for an output of the graph

  bool UsedOnce(const std::string& value) const {
    const auto found = users.find(value);
    return found != users.end() && found->second.size() == 1;
  }
};

// Errors: INVALID_ARGUMENT names the node or tensor; UNIMPLEMENTED names what the file has that Cairn cannot read.
absl::StatusOr<OnnxGraph> CheckOnnx(const onnx::ModelProto& model);

// Fills in `users` from `nodes`.
void FindOnnxUsers(OnnxGraph* graph);

// `node "conv1" (Conv)`; a node without a name is named by its first output.
std::string OnnxNodeText(const onnx::NodeProto& node);

}  // namespace cairn
