// OnnxConstants: the constants of an ONNX graph: those of the file, and those computed from them (onnx_fold.h).
//
// Used by one thread; the graph must outlive it. Invariant: all computations together read and make at most
// kOnnxFoldedNumbersMax numbers.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/base/status.h"
#include "common/model/onnx/onnx_graph.h"
#include "common/model/onnx/onnx_tensor.h"

namespace cairn {

class OnnxConstants {
 public:
  explicit OnnxConstants(const OnnxGraph& graph) : graph_(graph) {}

  bool Contains(const std::string& name) const;
  OnnxTensor Read(const std::string& name) const;  // it must contain the name
  void Set(const std::string& name, OnnxTensor tensor) { computed_[name] = std::move(tensor); }
  // Computes the node's output, if all its inputs are constants. Errors: as those of FoldOnnxNode.
  absl::Status Fold(const onnx::NodeProto& node);

 private:
  // Errors: UNIMPLEMENTED if the limit is exceeded.
  absl::Status Count(const OnnxTensor& tensor);

  const OnnxGraph& graph_;
  std::map<std::string, OnnxTensor> computed_;
  int64_t numbers_ = 0;
};

}  // namespace cairn
