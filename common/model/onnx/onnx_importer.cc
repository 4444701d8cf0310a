#include "common/model/onnx/onnx_importer.h"

#include <algorithm>
#include <deque>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/base/lacks.h"
#include "common/model/layer_type.h"
#include "common/model/onnx/axis_order.h"
#include "common/model/onnx/onnx_arrange.h"
#include "common/model/onnx/onnx_batch_axis.h"
#include "common/model/onnx/onnx_joins.h"

namespace cairn {

namespace {

using OnnxReader = absl::Status (*)(OnnxImporter&);

// Null: Cairn has nothing that reads such an operator.
OnnxReader ReaderOf(const std::string& type) {
  static const std::map<std::string, OnnxReader> no_layers = {
      {"Identity", ImportOnnxIdentity},
      {"Cast", ImportOnnxCast},
      {"Transpose", ImportOnnxTranspose},
      {"Reshape", ImportOnnxReshape},
      {"Flatten", ImportOnnxFlatten},
      {"Squeeze", ImportOnnxSqueeze},
      {"Unsqueeze", ImportOnnxUnsqueeze},
      {"DepthToSpace", ImportOnnxDepthToSpace},
      {"SpaceToDepth", ImportOnnxSpaceToDepth},
      {"Shape", ImportOnnxShape},
      {"Expand", ImportOnnxExpand},
      {"Add", ImportOnnxArithmetic},
      {"Sub", ImportOnnxArithmetic},
      {"Mul", ImportOnnxArithmetic},
      {"Div", ImportOnnxArithmetic},
      {"Sum", ImportOnnxJoin},
      {"Mean", ImportOnnxJoin},
      {"Max", ImportOnnxJoin},
      {"Min", ImportOnnxJoin},
  };
  if (const auto it = no_layers.find(type); it != no_layers.end()) return it->second;
  const OnnxOperator* const layer = FindOnnxOperator(type);
  return layer == nullptr ? nullptr : layer->read;
}

// Of an input of the graph, without the batch, which is its dimension `batch`.
absl::StatusOr<Shape> InputDims(const onnx::ValueInfoProto& input, int batch) {
  const std::string where = absl::StrCat("input \"", absl::CEscape(input.name().substr(0, 128)), "\"");
  if (!input.type().has_tensor_type() || !input.type().tensor_type().has_shape()) {
    return Bad(where, ": its shape is not in the file; export the model with shapes");
  }
  const onnx::TensorShapeProto& shape = input.type().tensor_type().shape();
  if (shape.dim_size() < 2 || shape.dim_size() > 5) {
    return Lacks(where, ": it has ", shape.dim_size(), " dimensions, batch included; 2 to 5 are read");
  }
  Shape dims;
  for (int i = 0; i < shape.dim_size(); ++i) {
    if (i == batch) continue;
    const onnx::TensorShapeProto::Dimension& dim = shape.dim(i);
    if (!dim.has_dim_value()) {
      return Lacks(where, ": its dimension ", i, " (\"", absl::CEscape(dim.dim_param().substr(0, 64)),
                   "\") has no fixed size; only the batch, dimension ", batch, ", may be of any size");
    }
    if (dim.dim_value() <= 0 || dim.dim_value() > INT32_MAX)
      return Bad(where, ": its dimension ", i, " is ", dim.dim_value());
    dims.push_back(dim.dim_value());
  }
  return dims;
}

}  // namespace

absl::StatusOr<ImportedOnnx> OnnxImporter::Import() {
  CAIRN_RETURN_IF_ERROR(TakeInputs());
  for (const onnx::NodeProto* node : graph_.nodes) {
    node_ = node;
    layers_.SetName(node->name());
    const absl::Status status = TakeNode();
    if (!status.ok()) return Annotate(status, OnnxNodeText(*node));
  }
  CAIRN_RETURN_IF_ERROR(TakeOutputs());
  return layers_.Take();
}

std::vector<std::pair<const onnx::NodeProto*, absl::Status>> OnnxImporter::Report() {
  std::vector<std::pair<const onnx::NodeProto*, absl::Status>> report;
  std::set<std::string> unknown;
  for (const onnx::ValueInfoProto* input : graph_.inputs) {
    if (!TakeInput(*input).ok()) unknown.insert(input->name());
  }
  for (const onnx::NodeProto* node : graph_.nodes) {
    node_ = node;
    layers_.SetName(node->name());
    bool open = false;
    for (const std::string& value : node->input()) open = open || unknown.contains(value);
    report.emplace_back(node, open ? CheckKnown() : TakeNode());
    if (open || !report.back().second.ok()) unknown.insert(node->output().begin(), node->output().end());
  }
  return report;
}

// ---- the graph's inputs and outputs ----

// Whether axis 1 of the input is the channels. The first operators for which it matters decide; otherwise the sizes do.
OnnxImporter::Order OnnxImporter::OrderOfInput(const OnnxGraph& graph, const std::string& name, const Shape& dims) {
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
                                                       "Upsample",
                                                       "DepthToSpace",
                                                       "SpaceToDepth"};
  static const std::set<std::string> as_is = {
      "Transpose", "MatMul", "LayerNormalization", "Gather", "ReduceMean", "Softmax", "RNN", "LSTM", "GRU"};
  std::deque<std::string> values = {name};
  std::set<std::string> seen;
  while (!values.empty()) {
    const std::string value = values.front();
    values.pop_front();
    const auto users = graph.users.find(value);
    if (users == graph.users.end() || !seen.insert(value).second) continue;
    for (const onnx::NodeProto* user : users->second) {
      if (user == nullptr) continue;
      if (channels_first.contains(user->op_type())) return first;
      if (as_is.contains(user->op_type())) return Order::kAsIs;
      if (user->op_type() != "Flatten" && user->op_type() != "Reshape") values.push_back(user->output(0));
    }
  }
  const bool few_first = dims[0] <= 4 && dims.back() > 4;
  return dims.size() == 3 && few_first ? first : Order::kAsIs;
}

absl::Status OnnxImporter::TakeInputs() {
  for (const onnx::ValueInfoProto* input : graph_.inputs) CAIRN_RETURN_IF_ERROR(TakeInput(*input));
  return absl::OkStatus();
}

absl::Status OnnxImporter::TakeInput(const onnx::ValueInfoProto& input) {
  const int batch = BatchAxisOfInput(graph_, input);
  CAIRN_ASSIGN_OR_RETURN(const Shape dims, InputDims(input, batch));
  const Order of_input = OrderOfInput(graph_, input.name(), dims);
  if (order_ == Order::kAsIs) order_ = of_input;
  const std::vector<int> order = of_input == Order::kAsIs ? SameOrder(dims.size()) : ChannelsLast(dims.size());
  const Shape shape = ShapeInOrder(dims, order);
  v1::Layer layer;
  layer.mutable_input()->mutable_shape()->Assign(shape.begin(), shape.end());
  layers_.SetName(input.name());
  CAIRN_ASSIGN_OR_RETURN(const int id, layers_.Add(LayerKind::kInput, layer, {}));
  views_[input.name()] = OnnxView::Of(id, shape, order).WithBatchAt(batch);
  return absl::OkStatus();
}

absl::Status OnnxImporter::TakeOutputs() {
  std::vector<std::string> names;
  for (const onnx::ValueInfoProto* output : graph_.outputs) {
    CAIRN_ASSIGN_OR_RETURN(const int placed, TakeOutput(*output));
    if (layers_.at(placed).has_input()) return Bad("its output is its input");
    names.push_back(layers_.at(placed).name());
    if (std::count(names.begin(), names.end(), names.back()) > 1) {
      return Lacks("outputs \"", absl::CEscape(output->name().substr(0, 128)),
                   "\" and another one are the same numbers; leave one of them out");
    }
    // The last layer must be the only output. Any later layer is one that nothing uses.
    if (graph_.outputs.size() == 1 && placed != layers_.count() - 1) {
      return Lacks("layers after the output \"", names[0], "\"");
    }
  }
  if (names.size() > 1) layers_.SetOutputs(names);
  return absl::OkStatus();
}

absl::StatusOr<int> OnnxImporter::TakeOutput(const onnx::ValueInfoProto& output) {
  CAIRN_RETURN_IF_ERROR(steps_.Resolve(output.name()));
  const auto it = views_.find(output.name());
  if (it == views_.end())
    return Bad("output \"", absl::CEscape(output.name().substr(0, 128)), "\" does not depend on the input");
  layers_.SetName(output.name());
  const OnnxView& view = it->second;
  const bool channels_last =
      order_ != Order::kAsIs && (order_ == Order::kPicture ? view.dims.size() >= 3 : view.dims.size() == 2);
  const auto placed =
      layers_.PlaceInOrder(view, channels_last ? ChannelsLast(view.dims.size()) : SameOrder(view.dims.size()));
  if (!placed.ok()) return Annotate(placed.status(), "the output");
  return *placed;
}

absl::Status OnnxImporter::CheckKnown() const {
  return ReaderOf(node_->op_type()) != nullptr ? absl::OkStatus() : Lacks("Cairn has no layer for this operator");
}

absl::Status OnnxImporter::TakeNode() {
  batch_ = 0;
  CAIRN_ASSIGN_OR_RETURN(const bool read, steps_.Read());
  if (read) return absl::OkStatus();
  bool constant = node_->input_size() > 0;
  for (int i = 0; i < node_->input_size(); ++i) constant = constant && (!HasInput(i) || IsConstant(i));
  if (constant) return constants_.Fold(*node_);
  CAIRN_RETURN_IF_ERROR(CheckKnown());
  for (int i = node_->op_type() == "TopK" ? 2 : 1; i < node_->output_size(); ++i) {
    if (!node_->output(i).empty() && !UsersOf(i).empty())
      return Lacks("its output \"", absl::CEscape(node_->output(i).substr(0, 128)),
                   "\" is used; only the first one is read");
  }
  batch_ = CommonBatchAxis();
  const absl::Status status = ReaderOf(node_->op_type())(*this);
  batch_ = 0;
  return status;
}

int OnnxImporter::CommonBatchAxis() const {
  bool aside = false;
  for (const std::string& input : node_->input()) {
    const auto view = views_.find(input);
    aside = aside || (view != views_.end() && view->second.batch > 0);
  }
  if (!aside) return 0;
  std::vector<OnnxOperand> operands;
  for (int i = 0; i < node_->input_size(); ++i) {
    if (!HasInput(i)) continue;
    const auto view = views_.find(node_->input(i));
    if (view != views_.end()) operands.push_back({i, &view->second, {}});
    if (view == views_.end() && IsConstant(i)) operands.push_back({i, nullptr, constants_.Read(node_->input(i)).dims});
  }
  return OnnxBatchAxis(*node_, operands);
}

// ---- the operator at hand ----

absl::StatusOr<OnnxView> OnnxImporter::ViewOf(int input) const {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView view, LaidViewOf(input));
  if (view.batch == batch_) return view.WithBatchAt(0);
  return Lacks("its input ", input, " has the batch on axis ", view.batch,
               "; transpose it so that the batch comes first");
}

absl::StatusOr<OnnxView> OnnxImporter::LaidViewOf(int input) const {
  if (!HasInput(input)) return Bad("its input ", input, " is missing");
  const auto it = views_.find(node_->input(input));
  if (it == views_.end()) return Lacks("its input ", input, " is a constant; it must be the output of a layer here");
  return it->second;
}

bool OnnxImporter::IsConstant(int input) const { return constants_.Contains(node_->input(input)); }

absl::StatusOr<OnnxTensor> OnnxImporter::ConstantOf(int input, const char* what) const {
  if (!HasInput(input)) return Bad("its ", what, " (input ", input, ") is missing");
  if (!IsConstant(input)) return Lacks("its ", what, " (input ", input, ") is computed; it must be a constant");
  return constants_.Read(node_->input(input));
}

absl::StatusOr<std::vector<float>> OnnxImporter::FloatsOf(int input, const char* what, int64_t count) const {
  CAIRN_ASSIGN_OR_RETURN(OnnxTensor tensor, ConstantOf(input, what));
  if (tensor.whole) tensor.floats.assign(tensor.ints.begin(), tensor.ints.end());
  if (static_cast<int64_t>(tensor.floats.size()) != count)
    return Bad("its ", what, " has ", tensor.floats.size(), " numbers; ", count, " are needed");
  return std::move(tensor.floats);
}

absl::StatusOr<std::vector<int64_t>> OnnxImporter::IntsOf(int input, const char* what) const {
  CAIRN_ASSIGN_OR_RETURN(OnnxTensor tensor, ConstantOf(input, what));
  if (!tensor.whole) return Bad("its ", what, " are not whole numbers");
  for (int64_t& n : tensor.ints) {
    if (tensor.of_batch && n == kOnnxUnknown) return Lacks("its ", what, " are computed of the batch's size");
    if (tensor.of_batch && n == kOnnxBatch) n = INT64_MAX;
  }
  return std::move(tensor.ints);
}

// The layer's name: "layer1.0.conv1" from weights "layer1.0.conv1.weight", as in PyTorch; "conv1" from "conv1/kernel";
// otherwise that of the node.
absl::StatusOr<int> OnnxImporter::AddLayer(LayerKind kind, v1::Layer layer, const std::vector<int>& inputs,
                                           std::vector<OnnxVariable> variables, int weight_input) {
  std::string name;
  if (weight_input >= 0 && HasInput(weight_input)) {
    const std::string& weight = node_->input(weight_input);
    const size_t end = weight.find_last_of("./");
    if (end != std::string::npos &&
        (absl::EndsWith(weight, ".weight") || absl::EndsWith(weight, "/kernel") || absl::EndsWith(weight, "/gamma"))) {
      name = weight.substr(0, end);
    }
  }
  return layers_.Add(kind, std::move(layer), inputs, std::move(variables), name);
}

absl::StatusOr<std::vector<int64_t>> OnnxImporter::AxesGiven() const {
  OnnxAttributes attributes(*node_);
  std::vector<int64_t> axes = attributes.Ints("axes");
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  if (HasInput(1)) return IntsOf(1, "axes");
  return axes;
}

absl::Span<const onnx::NodeProto* const> OnnxImporter::UsersOf(int output) const {
  const auto users = graph_.users.find(node_->output(output));
  if (users == graph_.users.end()) return {};
  return users->second;
}

int OnnxImporter::FoldableInput(int input) const {
  const auto layer = foldable_.find(node_->input(input));
  return layer != foldable_.end() && graph_.UsedOnce(node_->input(input)) ? layer->second : -1;
}

}  // namespace cairn
