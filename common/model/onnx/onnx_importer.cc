#include "common/model/onnx/onnx_importer.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/base/lacks.h"
#include "common/model/layer_type.h"
#include "common/model/onnx/axis_order.h"

namespace cairn {

OnnxImporter::Handler OnnxImporter::HandlerOf(const std::string& type) {
  using I = OnnxImporter;
  static const std::map<std::string, Handler> handlers = {
      {"Identity", &I::Identity}, {"Cast", &I::Cast},       {"Transpose", &I::Transpose}, {"Reshape", &I::Reshape},
      {"Flatten", &I::Flatten},   {"Squeeze", &I::Squeeze}, {"Unsqueeze", &I::Unsqueeze}, {"Shape", &I::ShapeOf},
      {"Expand", &I::Expand},     {"Add", &I::Binary},      {"Sub", &I::Binary},          {"Mul", &I::Binary},
      {"Div", &I::Binary},        {"Sum", &I::Join},        {"Mean", &I::Join},           {"Max", &I::Join},
      {"Min", &I::Join},
  };
  const auto it = handlers.find(type);
  return it == handlers.end() ? nullptr : it->second;
}

absl::StatusOr<ImportedOnnx> OnnxImporter::Import() {
  CAIRN_RETURN_IF_ERROR(TakeInput());
  for (const Node* node : graph_.nodes) {
    node_ = node;
    layers_.SetName(node->name());
    const absl::Status status = TakeNode();
    if (!status.ok()) return Annotate(status, OnnxNodeText(*node));
  }
  CAIRN_RETURN_IF_ERROR(TakeOutput());
  return layers_.Take();
}

std::vector<std::pair<const onnx::NodeProto*, absl::Status>> OnnxImporter::Report() {
  std::vector<std::pair<const Node*, absl::Status>> report;
  const absl::Status input = TakeInput();
  std::set<std::string> unknown;
  if (!input.ok()) unknown.insert(graph_.input->name());
  for (const Node* node : graph_.nodes) {
    node_ = node;
    layers_.SetName(node->name());
    bool open = false;
    for (const std::string& value : node->input()) open = open || unknown.contains(value);
    report.emplace_back(node, open ? CheckKnown() : TakeNode());
    if (open || !report.back().second.ok()) unknown.insert(node->output().begin(), node->output().end());
  }
  return report;
}

// ---- the graph's input and output ----

absl::StatusOr<Shape> OnnxImporter::InputDims() const {
  const std::string where = absl::StrCat("input \"", absl::CEscape(graph_.input->name().substr(0, 128)), "\"");
  if (!graph_.input->type().has_tensor_type() || !graph_.input->type().tensor_type().has_shape()) {
    return Bad(where, ": its shape is not in the file; export the model with shapes");
  }
  const onnx::TensorShapeProto& shape = graph_.input->type().tensor_type().shape();
  if (shape.dim_size() < 2 || shape.dim_size() > 5) {
    return Lacks(where, ": it has ", shape.dim_size(), " dimensions, batch included; 2 to 5 are read");
  }
  Shape dims;
  for (int i = 1; i < shape.dim_size(); ++i) {
    const onnx::TensorShapeProto::Dimension& dim = shape.dim(i);
    if (!dim.has_dim_value()) {
      return Lacks(where, ": its dimension ", i, " (\"", absl::CEscape(dim.dim_param().substr(0, 64)),
                   "\") has no fixed size; only the batch, dimension 0, may be of any size");
    }
    if (dim.dim_value() <= 0 || dim.dim_value() > INT32_MAX)
      return Bad(where, ": its dimension ", i, " is ", dim.dim_value());
    dims.push_back(dim.dim_value());
  }
  return dims;
}

// Whether axis 1 of the input is the channels. The first operators for which it matters decide; otherwise the sizes do.
OnnxImporter::Order OnnxImporter::OrderOfInput(const Shape& dims) const {
  if (dims.size() < 2) return Order::kAsIs;
  const Order first = dims.size() >= 3 ? Order::kPicture : Order::kSequence;
  static const std::set<std::string> channels_first = {"Conv",
                                                       "ConvTranspose",
                                                       "MaxPool",
                                                       "AveragePool",
                                                       "GlobalAveragePool",
                                                       "GlobalMaxPool",
                                                       "BatchNormalization",
                                                       "InstanceNormalization",
                                                       "GroupNormalization",
                                                       "Resize",
                                                       "Upsample"};
  static const std::set<std::string> as_is = {"Transpose", "MatMul",     "LayerNormalization",
                                              "Gather",    "ReduceMean", "Softmax"};
  std::deque<std::string> values = {graph_.input->name()};
  std::set<std::string> seen;
  while (!values.empty()) {
    const std::string value = values.front();
    values.pop_front();
    const auto users = graph_.users.find(value);
    if (users == graph_.users.end() || !seen.insert(value).second) continue;
    for (const Node* user : users->second) {
      if (user == nullptr) continue;
      if (channels_first.contains(user->op_type())) return first;
      if (as_is.contains(user->op_type())) return Order::kAsIs;
      if (user->op_type() != "Flatten" && user->op_type() != "Reshape") values.push_back(user->output(0));
    }
  }
  const bool few_first = dims[0] <= 4 && dims.back() > 4;
  return dims.size() == 3 && few_first ? first : Order::kAsIs;
}

absl::Status OnnxImporter::TakeInput() {
  CAIRN_ASSIGN_OR_RETURN(const Shape dims, InputDims());
  order_ = OrderOfInput(dims);
  const std::vector<int> order = order_ == Order::kAsIs ? SameOrder(dims.size()) : ChannelsLast(dims.size());
  const Shape shape = ShapeInOrder(dims, order);
  v1::Layer layer;
  layer.mutable_input()->mutable_shape()->Assign(shape.begin(), shape.end());
  layers_.SetName(graph_.input->name());
  CAIRN_ASSIGN_OR_RETURN(const int id, layers_.Add(LayerKind::kInput, layer, {}));
  views_[graph_.input->name()] = OnnxView::Of(id, shape, order);
  return absl::OkStatus();
}

absl::Status OnnxImporter::TakeOutput() {
  const auto it = views_.find(graph_.output->name());
  if (it == views_.end())
    return Bad("output \"", absl::CEscape(graph_.output->name().substr(0, 128)), "\" does not depend on the input");
  layers_.SetName(graph_.output->name());
  const OnnxView& view = it->second;
  const bool channels_last =
      order_ != Order::kAsIs && (order_ == Order::kPicture ? view.dims.size() >= 3 : view.dims.size() == 2);
  const auto placed =
      layers_.PlaceInOrder(view, channels_last ? ChannelsLast(view.dims.size()) : SameOrder(view.dims.size()));
  if (!placed.ok()) return Annotate(placed.status(), "the output");
  if (*placed == 0) return Bad("its output is its input");
  // The last layer must be the model's output. Any later layer is one that nothing uses.
  if (*placed != layers_.count() - 1) return Lacks("layers after the output \"", layers_.at(*placed).name(), "\"");
  return absl::OkStatus();
}

// ---- operators ----

absl::Status OnnxImporter::CheckKnown() const {
  const bool known = HandlerOf(node_->op_type()) != nullptr || FindOnnxOperator(node_->op_type()) != nullptr;
  return known ? absl::OkStatus() : Lacks("Cairn has no layer for this operator");
}

absl::Status OnnxImporter::TakeNode() {
  if (TakesSteps()) return TakeSteps();
  const Handler handler = HandlerOf(node_->op_type());
  const OnnxOperator* const layer = FindOnnxOperator(node_->op_type());
  bool constant = node_->input_size() > 0;
  for (int i = 0; i < node_->input_size(); ++i) constant = constant && (!HasInput(i) || IsConstant(i));
  if (constant) return FoldConstants();
  CAIRN_RETURN_IF_ERROR(CheckKnown());
  for (int i = 1; i < node_->output_size(); ++i) {
    const auto users = graph_.users.find(node_->output(i));
    if (!node_->output(i).empty() && users != graph_.users.end())
      return Lacks("its output \"", absl::CEscape(node_->output(i).substr(0, 128)),
                   "\" is used; only the first one is read");
  }
  return handler != nullptr ? (this->*handler)() : layer->read(*this);
}

absl::Status OnnxImporter::Identity() {
  CAIRN_ASSIGN_OR_RETURN(OnnxView x, ViewOf(0));
  const auto open = open_.find(node_->input(0));
  if (open != open_.end() && graph_.UsedOnce(node_->input(0))) open_[node_->output(0)] = open->second;
  SetView(std::move(x));
  return absl::OkStatus();
}

// A cast to floats, or to integers, which an embedding does with its ids anyway.
absl::Status OnnxImporter::Cast() {
  CAIRN_ASSIGN_OR_RETURN(OnnxView x, ViewOf(0));
  OnnxAttributes attributes(*node_);
  const int64_t to = attributes.Int("to", 0);
  attributes.Ignore("saturate");
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  bool ids = true;
  for (const Node* user : graph_.users.at(node_->output(0)))
    ids = ids && user != nullptr && user->op_type() == "Gather";
  if (to != onnx::TensorProto::FLOAT && !ids) return Lacks("to type ", to, "; only to floats, or to ids for a Gather");
  SetView(std::move(x));
  return absl::OkStatus();
}

}  // namespace cairn
