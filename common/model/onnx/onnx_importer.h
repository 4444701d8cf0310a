// OnnxImporter: imports an ONNX graph, operator by operator, if Cairn has layers for its operators.
//
// It goes through the operators in order and keeps the values known so far: constants, views of layers' outputs
// (onnx_view.h), and outputs of recurrent operators (onnx_steps.h). An operator is read by the row of its layer
// (OnnxOperator::read) or, if it is not a layer, by a function of onnx_arrange.h or onnx_joins.h.
//
// Used once, on one thread. Invariants:
//   1. Each output of an operator that was read, and that is used, is exactly one of these values.
//   2. A multiplication by a constant, or an addition of one, is folded into the preceding convolution or dense layer
//      only if nothing else reads that layer's output.
#pragma once

#include <map>
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
  // graph: must be checked and fused.
  // last_only: recurrent operators of which only the last states are used, as LastOnly gave them of an import before.
  explicit OnnxImporter(const OnnxGraph& graph, std::set<const onnx::NodeProto*> last_only = {})
      : graph_(graph), constants_(graph), steps_(*this, std::move(last_only)) {}
  OnnxImporter(const OnnxImporter&) = delete;
  OnnxImporter& operator=(const OnnxImporter&) = delete;

  // Errors: INVALID_ARGUMENT, UNIMPLEMENTED; they begin with the node, `node "conv1" (Conv): `, if one is at fault.
  absl::StatusOr<ImportedOnnx> Import();

  // After Import: recurrent operators whose layer returns all steps, although only the last states are used. An import
  // that is told of them makes simpler layers.
  std::set<const onnx::NodeProto*> LastOnly() const { return steps_.LastOnly(); }

  // An alternative to Import: lists each operator with the reason why it is rejected, or OK. If an operator uses the
  // output of a rejected one, only its type is checked.
  std::vector<std::pair<const onnx::NodeProto*, absl::Status>> Report();

  // ---- the current operator ----
  const onnx::NodeProto& node() const { return *node_; }
  int64_t opset() const { return graph_.opset; }
  // The value of an input that is not a constant, for an operator that needs the batch first. The batch of an operator
  // that does the same wherever the batch is (onnx_batch_axis.h) has been put first, and goes back in SetView. Errors:
  // it is a constant; the batch is on another axis.
  absl::StatusOr<OnnxView> ViewOf(int input) const;
  // The value with its batch where it is.
  absl::StatusOr<OnnxView> LaidViewOf(int input) const;
  bool HasInput(int input) const { return input < node_->input_size() && !node_->input(input).empty(); }
  bool IsConstant(int input) const;
  absl::StatusOr<OnnxTensor> ConstantOf(int input, const char* what) const;
  absl::StatusOr<std::vector<float>> FloatsOf(int input, const char* what, int64_t count) const;
  absl::StatusOr<std::vector<int64_t>> IntsOf(int input, const char* what) const;
  // The attribute "axes" (before opset 13) or input 1; empty if there is neither.
  absl::StatusOr<std::vector<int64_t>> AxesGiven() const;
  // The operators that read this output; nullptr stands for an output of the graph.
  absl::Span<const onnx::NodeProto* const> UsersOf(int output) const;
  void SetView(OnnxView view) { SetViewOf(0, view); }
  void SetViewOf(int output, const OnnxView& view) { views_[node_->output(output)] = view.WithBatchAt(batch_); }
  void SetLaidView(OnnxView view) { SetValue(node_->output(0), std::move(view)); }
  void SetValue(const std::string& value, OnnxView view) { views_[value] = std::move(view); }
  void SetConstant(OnnxTensor tensor) { constants_.Set(node_->output(0), std::move(tensor)); }
  OnnxLayers& layers() { return layers_; }
  const OnnxLayers& layers() const { return layers_; }
  // Adds a layer, named after the node (or after its weights, input `weight_input`). Variables' names do not include
  // the layer's name.
  absl::StatusOr<int> AddLayer(LayerKind kind, v1::Layer layer, const std::vector<int>& inputs,
                               std::vector<OnnxVariable> variables = {}, int weight_input = -1);
  // The operator's output is the layer's own output, so a following factor or bias may be folded into the layer's
  // variables.
  void MarkFoldable(int layer) { foldable_[node_->output(0)] = layer; }
  // The layer into which the operator may be folded, as the only one to read this input; -1: none.
  int FoldableInput(int input) const;
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
  enum class Order { kAsIs, kPicture, kSequence };  // of an input of the graph; the last two have channels first

  static Order OrderOfInput(const OnnxGraph& graph, const std::string& name, const Shape& dims);
  absl::Status TakeInputs();
  absl::Status TakeInput(const onnx::ValueInfoProto& input);
  absl::Status TakeNode();
  int CommonBatchAxis() const;      // of the current operator: onnx_batch_axis.h
  absl::Status CheckKnown() const;  // whether there is code to read the operator
  absl::Status TakeOutputs();
  absl::StatusOr<int> TakeOutput(const onnx::ValueInfoProto& output);  // the layer that gives it

  const OnnxGraph& graph_;
  const onnx::NodeProto* node_ = nullptr;  // the current operator
  int batch_ = 0;                          // the axis of the batch in its values, as far as ViewOf gives them
  OnnxLayers layers_;
  OnnxConstants constants_;
  std::map<std::string, OnnxView> views_;
  OnnxStepReader steps_;
  std::map<std::string, int> foldable_;  // by value: the layer whose own output it is
  Order order_ = Order::kAsIs;           // of the first input that has another one, if any does
};

}  // namespace cairn
