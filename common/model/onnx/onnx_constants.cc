#include "common/model/onnx/onnx_constants.h"

#include <vector>

#include "common/base/lacks.h"
#include "common/model/limits.h"
#include "common/model/onnx/onnx_fold.h"

namespace cairn {

bool OnnxConstants::Contains(const std::string& name) const {
  return graph_.constants.contains(name) || computed_.contains(name);
}

OnnxTensor OnnxConstants::Read(const std::string& name) const {
  if (const auto it = computed_.find(name); it != computed_.end()) return it->second;
  return ReadOnnxTensor(*graph_.constants.at(name));
}

absl::Status OnnxConstants::Count(const OnnxTensor& tensor) {
  numbers_ += static_cast<int64_t>(tensor.ints.size() + tensor.floats.size());
  if (numbers_ <= kOnnxFoldedNumbersMax) return absl::OkStatus();
  return Lacks("too much is computed of constants; fold constants when exporting");
}

absl::Status OnnxConstants::Fold(const onnx::NodeProto& node) {
  std::vector<OnnxTensor> tensors(static_cast<size_t>(node.input_size()));
  std::vector<const OnnxTensor*> inputs;
  for (int i = 0; i < node.input_size(); ++i) {
    const bool given = !node.input(i).empty();
    OnnxTensor& tensor = tensors[static_cast<size_t>(i)];
    if (given) {
      tensor = Read(node.input(i));
      CAIRN_RETURN_IF_ERROR(Count(tensor));
    }
    inputs.push_back(given ? &tensor : nullptr);
  }
  CAIRN_ASSIGN_OR_RETURN(OnnxTensor result, FoldOnnxNode(node, graph_.opset, inputs));
  CAIRN_RETURN_IF_ERROR(Count(result));
  Set(node.output(0), std::move(result));
  return absl::OkStatus();
}

}  // namespace cairn
