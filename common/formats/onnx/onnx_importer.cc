#include "common/formats/onnx/onnx_importer.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/formats/onnx/axis_order.h"

namespace cairn {

OnnxImporter::Handler OnnxImporter::HandlerOf(const std::string& type) {
  using I = OnnxImporter;
  static const std::map<std::string, Handler> handlers = {
      {"Relu", &I::Activation},
      {"LeakyRelu", &I::Activation},
      {"Elu", &I::Activation},
      {"Sigmoid", &I::Activation},
      {"Tanh", &I::Activation},
      {"Softplus", &I::Activation},
      {"Swish", &I::Activation},
      {"Gelu", &I::Activation},
      {"Softmax", &I::Softmax},
      {"Clip", &I::Clip},
      {"Identity", &I::Identity},
      {"Dropout", &I::Dropout},
      {"Cast", &I::Cast},
      {"Transpose", &I::Transpose},
      {"Reshape", &I::Reshape},
      {"Flatten", &I::Flatten},
      {"Squeeze", &I::Squeeze},
      {"Unsqueeze", &I::Unsqueeze},
      {"Shape", &I::ShapeOf},
      {"Conv", &I::Conv},
      {"ConvTranspose", &I::ConvTranspose},
      {"MaxPool", &I::Pool},
      {"AveragePool", &I::Pool},
      {"GlobalAveragePool", &I::GlobalPool},
      {"GlobalMaxPool", &I::GlobalPool},
      {"ReduceMean", &I::ReduceMean},
      {"Pad", &I::Pad},
      {"Resize", &I::Resize},
      {"Upsample", &I::Resize},
      {"Gemm", &I::Gemm},
      {"MatMul", &I::MatMul},
      {"Gather", &I::Gather},
      {"BatchNormalization", &I::BatchNormalization},
      {"LayerNormalization", &I::LayerNormalization},
      {"GroupNormalization", &I::GroupNormalization},
      {"InstanceNormalization", &I::InstanceNormalization},
      {"Add", &I::Binary},
      {"Sub", &I::Binary},
      {"Mul", &I::Binary},
      {"Div", &I::Binary},
      {"Sum", &I::Join},
      {"Mean", &I::Join},
      {"Max", &I::Join},
      {"Concat", &I::Concat},
  };
  const auto it = handlers.find(type);
  return it == handlers.end() ? nullptr : it->second;
}

absl::StatusOr<ImportedOnnx> OnnxImporter::Import() {
  CAIRN_RETURN_IF_ERROR(TakeInput());
  for (const Node* node : graph_.nodes) {
    node_ = node;
    const absl::Status status = TakeNode();
    if (!status.ok()) return Annotate(status, OnnxNodeText(*node));
  }
  CAIRN_RETURN_IF_ERROR(TakeOutput());
  ImportedOnnx imported;
  imported.model = std::move(model_);
  imported.variables = std::move(variables_);
  return imported;
}

// ---- the graph's input and output ----

absl::StatusOr<Shape> OnnxImporter::InputDims() const {
  const std::string where = absl::StrCat("input \"", absl::CEscape(graph_.input->name().substr(0, 128)), "\"");
  if (!graph_.input->type().has_tensor_type() || !graph_.input->type().tensor_type().has_shape()) {
    return Bad(where, ": its shape is not in the file; export the model with shapes");
  }
  const onnx::TensorShapeProto& shape = graph_.input->type().tensor_type().shape();
  if (shape.dim_size() < 2 || shape.dim_size() > 4) {
    return Lacks(where, ": it has ", shape.dim_size(), " dimensions, batch included; 2 to 4 are read");
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

// Whether the input's axis 1 is channels: told by what takes it, behind operators for which it is all the same; else by
// the sizes.
OnnxImporter::Order OnnxImporter::OrderOfInput(const Shape& dims) const {
  if (dims.size() < 2) return Order::kAsIs;
  const Order first = dims.size() == 3 ? Order::kPicture : Order::kSequence;
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
  Node named;  // the layer is called as the input
  named.set_name(graph_.input->name());
  node_ = &named;
  CAIRN_ASSIGN_OR_RETURN(const int id, AddLayer(LayerKind::kInput, layer, {}));
  views_[graph_.input->name()] = OnnxView::Of(id, shape, order);
  return absl::OkStatus();
}

absl::Status OnnxImporter::TakeOutput() {
  const auto it = views_.find(graph_.output->name());
  if (it == views_.end())
    return Bad("output \"", absl::CEscape(graph_.output->name().substr(0, 128)), "\" does not depend on the input");
  Node named;
  named.set_name(graph_.output->name());
  node_ = &named;
  const OnnxView& view = it->second;
  const bool channels_last = order_ != Order::kAsIs && view.dims.size() == (order_ == Order::kPicture ? 3u : 2u);
  const auto placed = PlaceInOrder(view, channels_last ? ChannelsLast(view.dims.size()) : SameOrder(view.dims.size()));
  if (!placed.ok()) return Annotate(placed.status(), "the output");
  if (*placed == 0) return Bad("its output is its input");
  // The last layer is the model's output. Whatever came later is something that nobody needed.
  if (*placed != model_.layers_size() - 1)
    return Lacks("layers behind the output \"", model_.layers(*placed).name(), "\"");
  return absl::OkStatus();
}

// ---- operators ----

absl::Status OnnxImporter::TakeNode() {
  const Handler handler = HandlerOf(node_->op_type());
  if (handler == nullptr) return Lacks("Cairn has no layer for this operator");
  bool constant = node_->input_size() > 0;
  for (int i = 0; i < node_->input_size(); ++i) constant = constant && (!HasInput(i) || IsConstant(i));
  if (constant) return FoldConstants();
  for (int i = 1; i < node_->output_size(); ++i) {
    const auto users = graph_.users.find(node_->output(i));
    if (!node_->output(i).empty() && users != graph_.users.end())
      return Lacks("its output \"", absl::CEscape(node_->output(i).substr(0, 128)),
                   "\" is used; only the first one is read");
  }
  return (this->*handler)();
}

bool OnnxImporter::UsedOnce(const std::string& value) const {
  const auto users = graph_.users.find(value);
  return users != graph_.users.end() && users->second.size() == 1;
}

absl::Status OnnxImporter::Activation() {
  CAIRN_ASSIGN_OR_RETURN(OnnxView x, ViewOf(0));
  OnnxAttributes attributes(*node_);
  v1::Layer layer;
  v1::ActivationLayer* activation = layer.mutable_activation();
  const std::string& type = node_->op_type();
  if (type == "LeakyRelu") {
    activation->set_activation(v1::LEAKY_RELU);
    activation->set_negative_slope(attributes.Float("alpha", 0.01f));
  } else if (type == "Elu") {
    activation->set_activation(v1::ELU);
    activation->set_alpha(attributes.Float("alpha", 1.0f));
  } else if (type == "Swish") {
    activation->set_activation(v1::SILU);
    if (attributes.Float("alpha", 1.0f) != 1.0f) return Lacks("attribute \"alpha\" is not 1");
  } else if (type == "Gelu") {
    const std::string approximate = attributes.Text("approximate", "none");
    if (approximate != "none" && approximate != "tanh")
      return Lacks("attribute \"approximate\" is \"", absl::CEscape(approximate.substr(0, 64)),
                   "\"; none and tanh are known");
    activation->set_activation(approximate == "tanh" ? v1::GELU_TANH : v1::GELU);
  } else {
    activation->set_activation(type == "Relu"      ? v1::RELU
                               : type == "Sigmoid" ? v1::SIGMOID
                               : type == "Tanh"    ? v1::TANH
                                                   : v1::SOFTPLUS);
  }
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  CAIRN_ASSIGN_OR_RETURN(x.layer, AddLayer(LayerKind::kActivation, layer, {x.layer}));
  SetView(std::move(x));
  return absl::OkStatus();
}

// Before opset 13 all axes from `axis` on were taken as one.
absl::Status OnnxImporter::Softmax() {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, ViewOf(0));
  OnnxAttributes attributes(*node_);
  const int64_t given = attributes.Int("axis", graph_.opset < 13 ? 1 : -1);
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  CAIRN_ASSIGN_OR_RETURN(const int axis, AxisOf(given, x));
  if (graph_.opset < 13 && axis + 1 != static_cast<int>(x.dims.size()))
    return Lacks("before opset 13 it takes several axes as one; export with opset 13");
  const std::vector<int> order = AxisLast(x.dims.size(), axis);
  CAIRN_ASSIGN_OR_RETURN(const int from, PlaceInOrder(x, order));
  v1::Layer layer;
  layer.mutable_activation()->set_activation(v1::SOFTMAX);
  CAIRN_ASSIGN_OR_RETURN(const int id, AddLayer(LayerKind::kActivation, layer, {from}));
  SetView(OnnxView::Of(id, LayerShape(id), order));
  return absl::OkStatus();
}

// Of 0 and 6, or 0 alone.
absl::Status OnnxImporter::Clip() {
  CAIRN_ASSIGN_OR_RETURN(OnnxView x, ViewOf(0));
  OnnxAttributes attributes(*node_);
  float bounds[] = {attributes.Float("min", -INFINITY), attributes.Float("max", INFINITY)};
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  for (int i = 0; i < 2; ++i) {
    if (!HasInput(i + 1)) continue;
    CAIRN_ASSIGN_OR_RETURN(const std::vector<float> bound, FloatsOf(i + 1, i == 0 ? "min" : "max", 1));
    bounds[i] = bound[0];
  }
  v1::Layer layer;
  if (bounds[0] == 0 && bounds[1] == 6) {
    layer.mutable_activation()->set_activation(v1::RELU6);
  } else if (bounds[0] == 0 && bounds[1] >= 3e38f) {
    layer.mutable_activation()->set_activation(v1::RELU);
  } else {
    return Lacks("it clips to ", bounds[0], " .. ", bounds[1], "; Cairn has 0 .. 6 (RELU6) and 0 and more (RELU)");
  }
  CAIRN_ASSIGN_OR_RETURN(x.layer, AddLayer(LayerKind::kActivation, layer, {x.layer}));
  SetView(std::move(x));
  return absl::OkStatus();
}

absl::Status OnnxImporter::Identity() {
  CAIRN_ASSIGN_OR_RETURN(OnnxView x, ViewOf(0));
  const auto open = open_.find(node_->input(0));
  if (open != open_.end() && UsedOnce(node_->input(0))) open_[node_->output(0)] = open->second;
  SetView(std::move(x));
  return absl::OkStatus();
}

absl::Status OnnxImporter::Dropout() {
  CAIRN_ASSIGN_OR_RETURN(OnnxView x, ViewOf(0));
  OnnxAttributes attributes(*node_);
  float rate = attributes.Float("ratio", 0.5f);
  attributes.Ignore("seed");
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  if (HasInput(1)) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<float> ratio, FloatsOf(1, "ratio", 1));
    rate = ratio[0];
  }
  if (!(rate >= 0 && rate < 1)) return Bad("ratio ", rate, " is outside [0, 1)");
  v1::Layer layer;
  layer.mutable_dropout()->set_rate(rate);
  CAIRN_ASSIGN_OR_RETURN(x.layer, AddLayer(LayerKind::kDropout, layer, {x.layer}));
  SetView(std::move(x));
  return absl::OkStatus();
}

// To floats; or to whole numbers, which an embedding makes of its ids anyway.
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
