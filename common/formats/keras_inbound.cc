#include "common/formats/keras_inbound.h"

#include <string>
#include <utility>

#include "common/formats/keras_states.h"
#include "common/model/call_mode.h"
#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_operations.h"
#include "common/model/layer_type.h"
#include "common/model/operation_operands.h"
#include "common/model/recurrent.h"
#include "common/model/slice_range.h"

namespace cairn {
namespace {

OrderedJson TensorJson(const KerasScopes& scopes, int id, int scope) {
  const Node& node = scopes.graph().nodes()[static_cast<size_t>(id)];
  const KerasScopes::Tensor from = scopes.TensorOf(id, scope);
  OrderedJson tensor = OrderedJson::object();
  tensor["class_name"] = "__keras_tensor__";
  tensor["config"]["shape"] = KerasBatchShape(node.output);
  tensor["config"]["dtype"] = "float32";
  tensor["config"]["keras_history"] = OrderedJson::array({from.member, from.call, from.output});
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

OrderedJson ConstantJson(const OperationOperand& operand) {
  const Int32Field shape(operand.shape.begin(), operand.shape.end());
  size_t next = 0;
  OrderedJson value = Nested(shape, 0, [&] { return KerasWriter::Rounded(operand.numbers[next++]); });
  if (shape.empty()) return value;
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
OrderedJson CallJson(const KerasScopes& scopes, const Node& node) {
  const bool attends = TakesQuery(node.kind);
  const int keyword_inputs = attends ? ReadAttentionInputs(node.layer)->keywords : 0;
  const size_t positional = node.inputs.size() - static_cast<size_t>(keyword_inputs);
  OrderedJson tensors = OrderedJson::array(), keywords = OrderedJson::object();
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    OrderedJson tensor = TensorJson(scopes, node.inputs[i], scopes.map().OfNode(node.id));
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
  if (node.kind == LayerKind::kOperation) {
    const std::vector<OperationOperand> operands = OperandsOf(node.layer.operation(), node.inputs.size());
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].input < 0) tensors.insert(tensors.begin() + static_cast<int>(i), ConstantJson(operands[i]));
    }
  }
  if (IsRecurrent(node.kind) && tensors.size() > 1) {
    keywords["initial_state"] = OrderedJson::array();
    for (size_t i = 1; i < tensors.size(); ++i) keywords["initial_state"].push_back(std::move(tensors[i]));
    tensors.erase(tensors.begin() + 1, tensors.end());
  }
  if (node.layer.multi_head_attention().use_causal_mask() || node.layer.group_query_attention().use_causal_mask() ||
      node.layer.attention().use_causal_mask() || node.layer.additive_attention().use_causal_mask())
    keywords["use_causal_mask"] = true;
  if (scopes.SaysInference(node.id)) keywords["training"] = false;
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

// A Functional model has a call of its own, which Keras 3 counts here alone.
OrderedJson KerasHistory(const KerasScopes& scopes, int node, int scope) {
  const KerasScopes::Tensor tensor = scopes.TensorOf(node, scope);
  return OrderedJson::array({tensor.member, tensor.call + (tensor.functional ? 1 : 0), tensor.output});
}

OrderedJson KerasInboundNodes(const KerasScopes& scopes, const Node& node) {
  OrderedJson calls = OrderedJson::array();
  if (node.inputs.empty()) return calls;
  for (const int id : scopes.CallsOf(node.id)) {
    calls.push_back(CallJson(scopes, scopes.graph().nodes()[static_cast<size_t>(id)]));
  }
  return calls;
}

OrderedJson KerasSubmodelNodes(const KerasScopes& scopes, int submodel) {
  OrderedJson calls = OrderedJson::array();
  for (const int number : scopes.CallsOfSubmodel(submodel)) {
    OrderedJson tensors = OrderedJson::array();
    for (const int input : scopes.map().Inputs(submodel, number)) {
      tensors.push_back(TensorJson(scopes, input, scopes.map().ParentOf(submodel)));
    }
    OrderedJson call = OrderedJson::object();
    call["args"] = tensors.size() > 1 ? OrderedJson::array({std::move(tensors)}) : std::move(tensors);
    call["kwargs"]["mask"] = nullptr;
    if (scopes.map().at(submodel).calls(number).has_training()) call["kwargs"]["training"] = false;
    calls.push_back(std::move(call));
  }
  return calls;
}

}  // namespace cairn
