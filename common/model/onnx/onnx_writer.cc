#include "common/model/onnx/onnx_writer.h"

#include <algorithm>
#include <bit>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/model/layer_type.h"
#include "common/model/onnx/axis_order.h"

namespace cairn {

static_assert(std::endian::native == std::endian::little, "numbers are written as they are in memory");

void SetFloats(const Shape& dims, absl::Span<const float> values, onnx::TensorProto* tensor) {
  tensor->set_data_type(onnx::TensorProto::FLOAT);
  tensor->mutable_dims()->Assign(dims.begin(), dims.end());
  tensor->set_raw_data(values.data(), values.size() * sizeof(float));
}

namespace {

// The variable's name without that of its layer, and without that of the inner layer if `node` is one.
std::string LocalName(const Graph& graph, const Node& node, const Variable& variable) {
  const size_t within = node.name.size() - graph.nodes()[static_cast<size_t>(node.id)].name.size();
  return variable.name.substr(graph.nodes()[static_cast<size_t>(variable.node)].name.size() + within + 1);
}

}  // namespace

void OnnxWriter::WriteGraph() {
  for (const Node& node : graph_.nodes()) {
    layer_ = node.name;
    TypeOf(node.kind).write_onnx(node, *this);
  }
  for (const int output : graph_.outputs()) WriteModelOutput(graph_.nodes()[static_cast<size_t>(output)]);
}

std::string OnnxWriter::Unique(std::string name) {
  const int count = names_[name]++;
  return count == 0 ? name : Unique(absl::StrCat(name, "_", count));
}

std::string OnnxWriter::Op(const char* type, const Names& inputs) {
  onnx::NodeProto* node = out_->add_node();
  node->set_op_type(type);
  node->set_name(Unique(absl::StrCat(layer_, "/", type)));
  node->add_output(absl::StrCat(node->name(), ":0"));
  for (const std::string& input : inputs) node->add_input(input);
  return node->output(0);
}

std::string OnnxWriter::SecondOutput() {
  onnx::NodeProto* node = out_->mutable_node(out_->node_size() - 1);
  node->add_output(absl::StrCat(node->name(), ":1"));
  return node->output(1);
}

onnx::AttributeProto* OnnxWriter::Attribute(const char* name, onnx::AttributeProto::AttributeType type) {
  onnx::AttributeProto* attribute = out_->mutable_node(out_->node_size() - 1)->add_attribute();
  attribute->set_name(name);
  attribute->set_type(type);
  return attribute;
}

void OnnxWriter::Int(const char* name, int64_t value) { Attribute(name, onnx::AttributeProto::INT)->set_i(value); }

void OnnxWriter::Ints(const char* name, const std::vector<int64_t>& values) {
  Attribute(name, onnx::AttributeProto::INTS)->mutable_ints()->Assign(values.begin(), values.end());
}

void OnnxWriter::Float(const char* name, float value) { Attribute(name, onnx::AttributeProto::FLOAT)->set_f(value); }

void OnnxWriter::Text(const char* name, const char* value) {
  Attribute(name, onnx::AttributeProto::STRING)->set_s(value);
}

std::string OnnxWriter::Numbers(const char* name, const Shape& dims, const std::vector<float>& values) {
  onnx::TensorProto* tensor = out_->add_initializer();
  tensor->set_name(Unique(absl::StrCat(layer_, "/", name)));
  SetFloats(dims, values, tensor);
  return tensor->name();
}

std::string OnnxWriter::Whole(const char* name, const std::vector<int64_t>& values) {
  onnx::TensorProto* tensor = out_->add_initializer();
  tensor->set_name(Unique(absl::StrCat(layer_, "/", name)));
  tensor->set_data_type(onnx::TensorProto::INT64);
  tensor->add_dims(static_cast<int64_t>(values.size()));
  tensor->set_raw_data(values.data(), values.size() * sizeof(int64_t));
  return tensor->name();
}

std::string OnnxWriter::VariableOf(const Node& node, const std::string& name, const std::vector<int>& axes,
                                   const Shape& dims) {
  for (const int own : node.variables) {
    if (LocalName(graph_, node, graph_.variables()[static_cast<size_t>(own)]) != name) continue;
    const int id = variable_ids_.empty() ? own : variable_ids_[static_cast<size_t>(own)];
    const Variable& v = variables_->variables()[static_cast<size_t>(id)];
    const std::vector<int> order = axes.empty() ? SameOrder(v.shape.size()) : axes;
    for (const OnnxPlace& place : places_) {  // created by another call of the layer
      if (node.shares >= 0 && place.variable == id && place.axes == order) return place.initializer;
    }
    onnx::TensorProto* tensor = out_->add_initializer();
    tensor->set_name(Unique(v.name));
    places_.push_back({tensor->name(), id, order});
    if (space_.empty()) {
      SetFloats(dims, {}, tensor);
    } else {
      const auto values = space_.subspan(static_cast<size_t>(v.offset), static_cast<size_t>(v.size));
      SetFloats(dims, InOrder(values, v.shape, places_.back().axes), tensor);
    }
    return tensor->name();
  }
  return "";
}

std::string OnnxWriter::VariableOf(const Node& node, const std::string& name) {
  for (const int id : node.variables) {
    const Variable& v = graph_.variables()[static_cast<size_t>(id)];
    if (LocalName(graph_, node, v) == name) return VariableOf(node, name, {}, v.shape);
  }
  return "";
}

std::string OnnxWriter::Transpose(const std::string& value, const std::vector<int64_t>& axes) {
  const std::string transposed = Op("Transpose", {value});
  Ints("perm", axes);
  return transposed;
}

std::string OnnxWriter::Reshape(const std::string& value, const Shape& dims) {
  std::vector<int64_t> shape = {0};  // keeps the batch
  shape.insert(shape.end(), dims.begin(), dims.end());
  return Op("Reshape", {value, Whole("shape", shape)});
}

namespace {

// The permutation for Transpose that moves the channels of [batch, axes..., channels], `rank` axes and the batch, next
// to the batch; the other function moves them back.
std::vector<int64_t> ChannelsToFront(size_t rank) {
  std::vector<int64_t> axes = {0, static_cast<int64_t>(rank)};
  for (size_t i = 1; i < rank; ++i) axes.push_back(static_cast<int64_t>(i));
  return axes;
}

std::vector<int64_t> ChannelsToBack(size_t rank) {
  std::vector<int64_t> axes = {0};
  for (size_t i = 2; i <= rank; ++i) axes.push_back(static_cast<int64_t>(i));
  axes.push_back(1);
  return axes;
}

}  // namespace

std::string OnnxWriter::In(const Node& node, size_t input, Channels channels) {
  Output& output = outputs_[node.inputs[input]];
  const size_t rank = ShapeOf(node, input).size();
  std::string& wanted = channels == Channels::kFirst && rank > 1 ? output.first : output.last;
  if (wanted.empty()) {
    const bool first = &wanted == &output.first;
    wanted = first ? Transpose(output.last, ChannelsToFront(rank)) : Transpose(output.first, ChannelsToBack(rank));
  }
  return wanted;
}

Channels OnnxWriter::Has(const Node& node, size_t input) const {
  return outputs_.at(node.inputs[input]).first.empty() ? Channels::kLast : Channels::kFirst;
}

void OnnxWriter::SetOutput(const Node& node, std::string value, Channels channels) {
  Output& output = outputs_[node.id];
  (channels == Channels::kFirst && node.output.size() > 1 ? output.first : output.last) = std::move(value);
}

namespace {

void SetValueInfo(const std::string& name, const Shape& shape, onnx::ValueInfoProto* info) {
  info->set_name(name);
  onnx::TypeProto::Tensor* type = info->mutable_type()->mutable_tensor_type();
  type->set_elem_type(onnx::TensorProto::FLOAT);
  type->mutable_shape()->add_dim()->set_dim_param("batch");
  for (const int64_t dim : shape) type->mutable_shape()->add_dim()->set_dim_value(dim);
}

}  // namespace

void OnnxWriter::WriteInput(const Node& node) {
  SetValueInfo(Unique(node.name), node.output, out_->add_input());
  SetOutput(node, node.name, Channels::kLast);
}

// The model's output has the name of its layer.
void OnnxWriter::WriteModelOutput(const Node& node) {
  Output& output = outputs_[node.id];
  if (output.last.empty()) {
    output.last = Transpose(output.first, ChannelsToBack(node.output.size()));
  }
  const std::string value = output.last, name = Unique(node.name);
  const auto named = [&](const onnx::ValueInfoProto& one) { return one.name() == value; };
  const bool taken = std::any_of(out_->input().begin(), out_->input().end(), named) ||
                     std::any_of(out_->output().begin(), out_->output().end(), named);
  SetValueInfo(name, node.output, out_->add_output());
  if (taken) {  // the model's input, or another output: of a layer that gives what it takes
    Op("Identity", {value});
    out_->mutable_node(out_->node_size() - 1)->set_output(0, name);
    return;
  }
  for (onnx::NodeProto& op : *out_->mutable_node()) {
    if (op.output(0) == value) op.set_output(0, name);
    std::replace(op.mutable_input()->begin(), op.mutable_input()->end(), value, name);
  }
  for (auto& [id, other] : outputs_) {
    for (std::string* const of : {&other.first, &other.last}) *of = *of == value ? name : *of;
  }
}

}  // namespace cairn
