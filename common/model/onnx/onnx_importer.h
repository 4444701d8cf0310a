// OnnxImporter: any ONNX graph of operators that Cairn has layers for, operator by operator.
//
// Each value is a view of a layer's output (onnx_view.h). A product or sum with a constant becomes part of the
// convolution or dense layer before it where nobody else reads that one's output.
//
// Used once, on one thread.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "cairn/v1/model.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"
#include "common/model/onnx/onnx_attributes.h"
#include "common/model/onnx/onnx_graph.h"
#include "common/model/onnx/onnx_layers.h"
#include "common/model/onnx/onnx_steps.h"
#include "common/model/onnx/onnx_tensor.h"
#include "common/model/onnx/onnx_variable.h"
#include "common/model/onnx/onnx_view.h"

namespace cairn {

class OnnxImporter {
 public:
  // graph: checked and put together.
  explicit OnnxImporter(const OnnxGraph& graph) : graph_(graph) {}

  // Errors: INVALID_ARGUMENT, UNIMPLEMENTED; begin with the node, `node "conv1" (Conv): `, where one is at fault.
  absl::StatusOr<ImportedOnnx> Import();

  // In place of Import: each operator with why it is refused, OK where it is not. One whose inputs are outputs of a
  // refused one is looked at no further than whether Cairn has it.
  std::vector<std::pair<const onnx::NodeProto*, absl::Status>> Report();

  // ---- for layers: OnnxOperator::read ----
  const onnx::NodeProto& node() const { return *node_; }  // the operator at hand
  int64_t opset() const { return graph_.opset; }
  // The value of an input that no constant is. Errors: a constant.
  absl::StatusOr<OnnxView> ViewOf(int input) const;
  bool HasInput(int input) const { return input < node_->input_size() && !node_->input(input).empty(); }
  bool IsConstant(int input) const;
  absl::StatusOr<OnnxTensor> ConstantOf(int input, const char* what) const;
  absl::StatusOr<std::vector<float>> FloatsOf(int input, const char* what, int64_t count) const;
  absl::StatusOr<std::vector<int64_t>> IntsOf(int input, const char* what) const;
  absl::StatusOr<std::vector<int64_t>> AxesGiven()
      const;  // as an attribute (before opset 13) or as input 1; none: empty
  void SetView(OnnxView view) { views_[node_->output(0)] = std::move(view); }
  OnnxLayers& layers() { return layers_; }
  const OnnxLayers& layers() const { return layers_; }
  // Adds a layer, named after the node (or `weight_input`, the name of its weights). Variables' names lack the layer's.
  absl::StatusOr<int> AddLayer(LayerKind kind, v1::Layer layer, const std::vector<int>& inputs,
                               std::vector<OnnxVariable> variables = {}, int weight_input = -1);
  // The operator's output is the layer's own, which may take a factor or a bias that follows into its variables.
  void MarkFoldable(int layer) { open_[node_->output(0)] = layer; }
  // Inputs 1 and 2, gamma and beta of so many channels, each of which may be missing.
  template <typename Norm>
  absl::Status ReadScaleAndBias(int64_t channels, Norm* norm, std::vector<OnnxVariable>* variables) const {
    norm->set_scale(HasInput(1));
    norm->set_center(HasInput(2));
    if (HasInput(1)) {
      CAIRN_ASSIGN_OR_RETURN(std::vector<float> gamma, FloatsOf(1, "scale", channels));
      variables->push_back({"gamma", {channels}, std::move(gamma)});
    }
    if (HasInput(2)) {
      CAIRN_ASSIGN_OR_RETURN(std::vector<float> beta, FloatsOf(2, "bias", channels));
      variables->push_back({"beta", {channels}, std::move(beta)});
    }
    return absl::OkStatus();
  }

 private:
  using Node = onnx::NodeProto;
  using Handler = absl::Status (OnnxImporter::*)();
  enum class Order { kAsIs, kPicture, kSequence };  // of the graph's input; the last two: channels first

  // ---- onnx_importer.cc ----
  static Handler HandlerOf(const std::string& type);  // of operators that are no layer; null: none
  absl::Status TakeInput();
  absl::StatusOr<Shape> InputDims() const;
  Order OrderOfInput(const Shape& dims) const;
  absl::Status TakeNode();
  absl::Status CheckKnown() const;  // there is something that reads the operator
  absl::Status TakeOutput();
  absl::Status Identity();
  absl::Status Cast();

  // ---- onnx_importer_arrange.cc ----
  absl::Status Transpose();
  absl::Status Reshape();
  absl::Status Flatten();
  absl::Status Squeeze();
  absl::Status Unsqueeze();
  absl::Status ShapeOf();
  absl::Status Expand();
  absl::Status FoldConstants();  // onnx_fold.h
  // keeps_batch: target[0] is 0 and stands for the batch, whatever zero_copies says.
  absl::Status SetDims(const OnnxView& view, const std::vector<int64_t>& target, bool zero_copies, bool keeps_batch);

  // ---- onnx_importer_steps.cc ----
  bool TakesSteps() const;   // whether the operator at hand takes or gives values with the steps first
  absl::Status TakeSteps();  // such an operator
  absl::Status TakeRecurrent();
  absl::Status BeginSteps(const OnnxView& x, OnnxSteps::Form form);
  absl::StatusOr<OnnxView> MakeRecurrent(OnnxRecurrence* recurrence, bool sequences);

  // ---- onnx_importer_joins.cc ----
  absl::Status Binary();  // Add, Sub, Mul, Div
  absl::Status Join();    // Sum, Mean, Max too
  absl::Status WithConstant(int constant_input);
  // x * scale + offset: one number for all, one for each index of `axis`.
  absl::Status ByOne(const std::string& value, float scale, float offset);
  absl::Status ByChannel(const std::string& value, int axis, std::vector<float> scale, std::vector<float> offset);
  absl::Status JoinLayers(LayerKind kind, const std::vector<OnnxView>& views);

  const OnnxGraph& graph_;
  const Node* node_ = nullptr;  // at hand
  OnnxLayers layers_;
  std::map<std::string, OnnxView> views_;
  std::map<std::string, OnnxSteps> steps_;
  std::map<std::string, OnnxTensor> folded_;  // constants that were computed
  int64_t folded_numbers_ = 0;
  std::map<std::string, int> open_;  // values that are a layer's own, which still may take a factor or a bias
  Order order_ = Order::kAsIs;
};

}  // namespace cairn
