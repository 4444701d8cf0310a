// OnnxImporter: any ONNX graph of operators that Cairn has layers for, operator by operator.
//
// It goes through the operators in their order, and knows the values so far: constants, views of layers' outputs
// (onnx_view.h), and values with the steps first (onnx_steps.h). An operator is read by the row of its layer
// (OnnxOperator::read), or, if it is no layer, by a function of onnx_arrange.h or onnx_joins.h.
//
// Used once, on one thread. Invariants:
//   1. The output of each operator that was read is a value of exactly one of these kinds.
//   2. A layer is foldable by a value if the value is the layer's own output: a factor or sum that follows may go into
//      its variables, where nobody else reads the value.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "cairn/v1/model.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"
#include "common/model/onnx/onnx_attributes.h"
#include "common/model/onnx/onnx_constants.h"
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
  explicit OnnxImporter(const OnnxGraph& graph) : graph_(graph), constants_(graph), steps_(*this) {}
  OnnxImporter(const OnnxImporter&) = delete;
  OnnxImporter& operator=(const OnnxImporter&) = delete;

  // Errors: INVALID_ARGUMENT, UNIMPLEMENTED; begin with the node, `node "conv1" (Conv): `, where one is at fault.
  absl::StatusOr<ImportedOnnx> Import();

  // In place of Import: each operator with why it is refused, OK where it is not. One whose inputs are outputs of a
  // refused one is looked at no further than whether Cairn has it.
  std::vector<std::pair<const onnx::NodeProto*, absl::Status>> Report();

  // ---- the operator at hand ----
  const onnx::NodeProto& node() const { return *node_; }
  int64_t opset() const { return graph_.opset; }
  // The value of an input that is the output of a layer. Errors: a constant.
  absl::StatusOr<OnnxView> ViewOf(int input) const;
  bool HasInput(int input) const { return input < node_->input_size() && !node_->input(input).empty(); }
  bool IsConstant(int input) const;
  absl::StatusOr<OnnxTensor> ConstantOf(int input, const char* what) const;
  absl::StatusOr<std::vector<float>> FloatsOf(int input, const char* what, int64_t count) const;
  absl::StatusOr<std::vector<int64_t>> IntsOf(int input, const char* what) const;
  // As an attribute (before opset 13) or as input 1; none: empty.
  absl::StatusOr<std::vector<int64_t>> AxesGiven() const;
  // Who reads that output; the graph's output counts as a nullptr.
  absl::Span<const onnx::NodeProto* const> UsersOf(int output) const;
  void SetView(OnnxView view) { views_[node_->output(0)] = std::move(view); }
  void SetConstant(OnnxTensor tensor) { constants_.Set(node_->output(0), std::move(tensor)); }
  OnnxLayers& layers() { return layers_; }
  const OnnxLayers& layers() const { return layers_; }
  // Adds a layer, named after the node (or `weight_input`, the name of its weights). Variables' names lack the layer's.
  absl::StatusOr<int> AddLayer(LayerKind kind, v1::Layer layer, const std::vector<int>& inputs,
                               std::vector<OnnxVariable> variables = {}, int weight_input = -1);
  // The operator's output is the layer's own, which may take a factor or a bias that follows into its variables.
  void MarkFoldable(int layer) { foldable_[node_->output(0)] = layer; }
  // The layer that may take what the operator does to that input; -1: none, or somebody else reads the input too.
  int FoldableInput(int input) const;
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
  enum class Order { kAsIs, kPicture, kSequence };  // of the graph's input; the last two: channels first

  static Order OrderOfInput(const OnnxGraph& graph, const Shape& dims);
  absl::Status TakeInput();
  absl::Status TakeNode();
  absl::Status CheckKnown() const;  // there is something that reads the operator
  absl::Status TakeOutput();

  const OnnxGraph& graph_;
  const onnx::NodeProto* node_ = nullptr;  // at hand
  OnnxLayers layers_;
  OnnxConstants constants_;
  std::map<std::string, OnnxView> views_;
  OnnxStepReader steps_;
  std::map<std::string, int> foldable_;  // by value: the layer whose own output it is
  Order order_ = Order::kAsIs;
};

}  // namespace cairn
