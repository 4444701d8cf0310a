#include "common/formats/keras_inbound.h"

#include <string>
#include <utility>

#include "common/formats/keras_states.h"
#include "common/model/call_mode.h"
#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_operations.h"
#include "common/model/layer_type.h"
#include "common/model/recurrent.h"
#include "common/model/slice_range.h"

namespace cairn {
namespace {

const Node& OwnerOf(const Graph& graph, const Node& node) {
  return node.shares < 0 ? node : graph.nodes()[static_cast<size_t>(node.shares)];
}

OrderedJson TensorJson(const Graph& graph, int id) {
  const Node& node = graph.nodes()[static_cast<size_t>(id)];
  OrderedJson tensor = OrderedJson::object();
  tensor["class_name"] = "__keras_tensor__";
  tensor["config"]["shape"] = KerasBatchShape(node.output);
  tensor["config"]["dtype"] = "float32";
  tensor["config"]["keras_history"] = KerasHistory(graph, node);
  return tensor;
}

// Writes numbers as nested lists, row by row. number: returns the next one.
template <typename Number>
OrderedJson Nested(const Int32Field& shape, int axis, Number number) {
  if (axis == shape.size()) return number();
  OrderedJson list = OrderedJson::array();
  for (int i = 0; i < shape.Get(axis); ++i) list.push_back(Nested(shape, axis + 1, number));
  return list;
}

OrderedJson ConstantJson(const v1::Operation& operation) {
  int next = 0;
  OrderedJson value =
      Nested(operation.constant_shape(), 0, [&] { return KerasWriter::Rounded(operation.constant(next++)); });
  if (operation.constant_shape().empty()) return value;
  OrderedJson constant = OrderedJson::object();
  constant["class_name"] = "__numpy__";
  constant["config"]["value"] = std::move(value);
  constant["config"]["dtype"] = "float32";
  return constant;
}

OrderedJson KeyJson(const v1::Slice& slice) {
  const auto part = [](OrderedJson start, OrderedJson stop, OrderedJson step) {
    OrderedJson item = OrderedJson::object();
    item["class_name"] = "__slice__";
    item["config"]["start"] = std::move(start);
    item["config"]["stop"] = std::move(stop);
    item["config"]["step"] = std::move(step);
    return item;
  };
  OrderedJson key = OrderedJson::array({part(nullptr, nullptr, nullptr)});
  for (const v1::Slice::Axis& axis : slice.axes()) {
    if (axis.drop()) {
      key.push_back(axis.begin());
    } else {
      const auto given = [](bool has, int32_t number) { return has ? OrderedJson(number) : OrderedJson(); };
      key.push_back(part(given(axis.has_begin(), axis.begin()), given(axis.has_end(), axis.end()),
                         given(axis.has_step(), axis.step())));
    }
  }
  return key;
}

// Writes a list of tensors for a merging layer; query, value and key for attention; an operation's tensors and
// constant.
OrderedJson CallJson(const Graph& graph, const Node& node) {
  const bool attends = TakesQuery(node.kind);
  const int keyword_inputs = attends ? ReadAttentionInputs(node.layer)->keywords : 0;
  const size_t positional = node.inputs.size() - static_cast<size_t>(keyword_inputs);
  OrderedJson tensors = OrderedJson::array(), keywords = OrderedJson::object();
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    OrderedJson tensor = TensorJson(graph, node.inputs[i]);
    if (i < positional) {
      tensors.push_back(std::move(tensor));
    } else {
      keywords[kAttentionArguments[i]] = std::move(tensor);
    }
  }
  if (node.kind == LayerKind::kSlice) tensors.push_back(KeyJson(node.layer.slice()));
  if (node.kind == LayerKind::kTake) {
    int next = 0;
    tensors.push_back(Nested(node.layer.take().indices_shape(), 0, [&] { return node.layer.take().indices(next++); }));
  }
  if (node.kind == LayerKind::kPad && node.layer.pad().mode() == v1::Pad::CONSTANT) {
    keywords["constant_values"] = KerasWriter::Rounded(node.layer.pad().constant_value());
  }
  if (const v1::Operation& operation = node.layer.operation(); !operation.constant().empty()) {
    tensors.insert(operation.constant_first() ? tensors.begin() : tensors.end(), ConstantJson(operation));
  }
  if (IsRecurrent(node.kind) && tensors.size() > 1) {
    keywords["initial_state"] = OrderedJson::array();
    for (size_t i = 1; i < tensors.size(); ++i) keywords["initial_state"].push_back(std::move(tensors[i]));
    tensors.erase(tensors.begin() + 1, tensors.end());
  }
  if (node.layer.multi_head_attention().use_causal_mask() || node.layer.group_query_attention().use_causal_mask() ||
      node.layer.attention().use_causal_mask() || node.layer.additive_attention().use_causal_mask())
    keywords["use_causal_mask"] = true;
  if (InfersAlways(node) && !IsOperation(node)) keywords["training"] = false;
  OrderedJson call = OrderedJson::object();
  call["args"] = TypeOf(node.kind).merges ? OrderedJson::array({std::move(tensors)}) : std::move(tensors);
  call["kwargs"] = std::move(keywords);
  return call;
}

}  // namespace

bool IsOperation(const Node& node) { return KerasOperationModule(node) != nullptr; }

OrderedJson KerasBatchShape(const Shape& shape) {
  OrderedJson batch = OrderedJson::array({nullptr});
  for (const int64_t dim : shape) batch.push_back(dim);
  return batch;
}

OrderedJson KerasHistory(const Graph& graph, const Node& node) {
  if (const int output = KerasOutputOfSlice(graph, node); output >= 0) {
    OrderedJson history = KerasHistory(graph, graph.nodes()[static_cast<size_t>(node.inputs[0])]);
    history[2] = output;
    return history;
  }
  const Node& owner = OwnerOf(graph, node);
  int call = 0;
  for (int id = owner.id; id < node.id; ++id) {
    const Node& other = graph.nodes()[static_cast<size_t>(id)];
    call += other.id == owner.id || other.shares == owner.id;
  }
  return OrderedJson::array({KerasLayerName(owner.name), call, 0});
}

OrderedJson KerasInboundNodes(const Graph& graph, const Node& node) {
  OrderedJson calls = OrderedJson::array();
  if (node.inputs.empty()) return calls;
  for (const Node& other : graph.nodes()) {
    if (other.id == node.id || other.shares == node.id) calls.push_back(CallJson(graph, other));
  }
  return calls;
}

}  // namespace cairn
