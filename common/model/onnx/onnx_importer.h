// OnnxImporter: imports an ONNX graph, operator by operator, if Cairn has layers for its operators.
//
// Each value is a view of a layer's output (onnx_view.h). A multiplication by a constant, or an addition of one, is
// folded into the preceding convolution or dense layer if nothing else reads that layer's output.
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
  // graph: must be checked and fused.
  explicit OnnxImporter(const OnnxGraph& graph) : graph_(graph) {}

  // Errors: INVALID_ARGUMENT, UNIMPLEMENTED; they begin with the node, `node "conv1" (Conv): `, if one is at fault.
  absl::StatusOr<ImportedOnnx> Import();

  // An alternative to Import: lists each operator with the reason why it is rejected, or OK. If an operator uses the
  // output of a rejected one, only its type is checked.
  std::vector<std::pair<const onnx::NodeProto*, absl::Status>> Report();

  // ---- for layers: OnnxOperator::read ----
  const onnx::NodeProto& node() const { return *node_; }  // the current operator
  int64_t opset() const { return graph_.opset; }
  // The value of an input that is not a constant. Errors: it is a constant.
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
  // Adds a layer, named after the node (or after its weights, input `weight_input`). Variables' names do not include
  // the layer's name.
  absl::StatusOr<int> AddLayer(LayerKind kind, v1::Layer layer, const std::vector<int>& inputs,
                               std::vector<OnnxVariable> variables = {}, int weight_input = -1);
  // The operator's output is the layer's own output, so a following factor or bias may be folded into the layer's
  // variables.
  void MarkFoldable(int layer) { open_[node_->output(0)] = layer; }
  // Reads inputs 1 and 2, gamma and beta of `channels` numbers. Either may be missing.
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
  enum class Order { kAsIs, kPicture, kSequence };  // of the graph's input; the last two have channels first

  // ---- onnx_importer.cc ----
  static Handler HandlerOf(const std::string& type);  // for operators that are not layers; null: none
  absl::Status TakeInput();
  absl::StatusOr<Shape> InputDims() const;
  Order OrderOfInput(const Shape& dims) const;
  absl::Status TakeNode();
  absl::Status CheckKnown() const;  // whether there is code to read the operator
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
  // keeps_batch: target[0] is 0 and means the batch, whatever zero_copies is.
  absl::Status SetDims(const OnnxView& view, const std::vector<int64_t>& target, bool zero_copies, bool keeps_batch);

  // ---- onnx_importer_steps.cc ----
  bool TakesSteps() const;   // whether the current operator takes or returns values with the steps first
  absl::Status TakeSteps();  // reads such an operator
  absl::Status TakeRecurrent();
  absl::Status BeginSteps(const OnnxView& x, OnnxSteps::Form form);
  absl::StatusOr<OnnxView> MakeRecurrent(OnnxRecurrence* recurrence, bool sequences);

  // ---- onnx_importer_joins.cc ----
  absl::Status Binary();  // Add, Sub, Mul, Div
  absl::Status Join();    // Sum, Mean and Max too
  absl::Status WithConstant(int constant_input);
  // x * scale + offset, with one number for all elements, or one for each index of `axis`.
  absl::Status ByOne(const std::string& value, float scale, float offset);
  absl::Status ByChannel(const std::string& value, int axis, std::vector<float> scale, std::vector<float> offset);
  absl::Status JoinLayers(LayerKind kind, const std::vector<OnnxView>& views);

  const OnnxGraph& graph_;
  const Node* node_ = nullptr;  // the current operator
  OnnxLayers layers_;
  std::map<std::string, OnnxView> views_;
  std::map<std::string, OnnxSteps> steps_;
  std::map<std::string, OnnxTensor> folded_;  // constants that were computed
  int64_t folded_numbers_ = 0;
  // Values that are a layer's own output, into which a factor or a bias may still be folded.
  std::map<std::string, int> open_;
  Order order_ = Order::kAsIs;
};

}  // namespace cairn
