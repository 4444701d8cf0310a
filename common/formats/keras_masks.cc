#include "common/formats/keras_masks.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/formats/keras_arguments.h"
#include "common/formats/keras_operation.h"
#include "common/formats/limits.h"

namespace cairn {
namespace {

bool IsMaskArgument(const std::string& name) {
  return name == "mask" || name == "query_mask" || name == "value_mask" || name == "key_mask";
}

// Returns "" if it is not a tensor.
std::string TensorName(const Json& value) {
  if (JsonTextOf(value, "class_name") != "__keras_tensor__" || !value.contains("config")) return "";
  const Json& config = value["config"];
  if (!config.is_object() || !config.contains("keras_history")) return "";
  const Json& history = config["keras_history"];
  const bool fits = history.is_array() && history.size() >= 3 && history[0].is_string() &&
                    history[1].is_number_integer() && history[2] == 0;
  return fits ? KerasTensorName(history[0].get<std::string>(), history[1].get<int>()) : "";
}

// Finds all tensors in the value. The recursion is bounded, since the parser limits the depth.
void Collect(const Json& value, std::vector<std::string>* tensors) {
  const std::string name = TensorName(value);
  if (!name.empty()) tensors->push_back(name);
  if (!name.empty() || !value.is_structured()) return;
  for (const Json& item : value) Collect(item, tensors);
}

// The operand of a call in Keras 3; null if there is none.
const Json* Operand(const Json& node, size_t place) {
  if (!node.contains("args") || !node["args"].is_array() || node["args"].size() <= place) return nullptr;
  return &node["args"][place];
}

// The number of axes of a tensor in a description, batch included.
size_t RankOf(const Json& tensor) {
  const bool told = tensor.contains("config") && tensor["config"].is_object() && tensor["config"].contains("shape");
  return told ? tensor["config"]["shape"].size() : 0;
}

bool IsLastAxis(const Json& config, size_t rank) {
  if (!config.is_object() || !config.contains("axis") || !config["axis"].is_number_integer()) return false;
  return config["axis"] == -1 || config["axis"] == static_cast<int64_t>(rank) - 1;
}

}  // namespace

KerasMasks::KerasMasks(const Json& config) {
  for (const Json& layer : config["layers"]) {
    const std::string name = JsonTextOf(layer, "name"), type = JsonTextOf(layer, "class_name");
    if (name.empty() || !layer.contains("config") || !layer.contains("inbound_nodes")) continue;
    int number = 0;
    const bool operation = IsKerasOperation(type, JsonTextOf(layer, "module"));
    for (const Json& node : layer["inbound_nodes"]) {
      const std::string tensor = KerasTensorName(name, number++);
      if (node.is_object()) calls_.emplace(tensor, Call{name, type, &layer["config"], &node, operation});
    }
  }
  FindMaskOnly(config);
}

// Finds the operations that compute masks and whose results nothing else uses.
void KerasMasks::FindMaskOnly(const Json& config) {
  std::set<std::string> of_values, of_masks;
  std::vector<std::string> values, masks;  // tensors still to be visited
  for (const auto& [tensor, call] : calls_) {
    if (call.operation || !call.node->contains("kwargs")) continue;
    for (const auto& [argument, value] : (*call.node)["kwargs"].items()) {
      Collect(value, IsMaskArgument(argument) ? &masks : &values);
    }
    if (call.node->contains("args")) Collect((*call.node)["args"], &values);
  }
  if (masks.empty()) return;
  std::set<std::string> outputs;  // the names of layers, as in ["lstm", 0, 0]
  const auto name_outputs = [&](const Json& value, const auto& self) -> void {
    if (value.is_string()) outputs.insert(value.get<std::string>());
    if (!value.is_structured()) return;
    for (const Json& item : value) self(item, self);
  };
  if (config.contains("output_layers")) name_outputs(config["output_layers"], name_outputs);
  for (const auto& [tensor, call] : calls_) {
    if (outputs.contains(call.layer)) values.push_back(tensor);
  }
  const auto go = [&](std::vector<std::string>& open, std::set<std::string>& found) {
    while (!open.empty()) {
      const Call* const call = Find(open.back());
      open.pop_back();
      if (call != nullptr && call->operation && found.insert(call->layer).second) Collect(*call->node, &open);
    }
  };
  go(masks, of_masks);
  for (const auto& [tensor, call] : calls_) {
    if (call.operation && !of_masks.contains(call.layer)) values.push_back(tensor);
  }
  go(values, of_values);
  std::set_difference(of_masks.begin(), of_masks.end(), of_values.begin(), of_values.end(),
                      std::inserter(mask_only_, mask_only_.begin()));
}

const KerasMasks::Call* KerasMasks::Find(const std::string& tensor) const {
  const auto found = calls_.find(tensor);
  return found == calls_.end() ? nullptr : &found->second;
}

std::optional<KerasMaskOrigin> KerasMasks::OriginOf(const std::string& tensor) { return OriginOf(tensor, 0); }

std::optional<KerasMaskOrigin> KerasMasks::OriginOf(const std::string& tensor, int depth) {
  const Call* const call = Find(tensor);
  if (call == nullptr || !call->operation || depth > kKerasMaskDepthMax) return std::nullopt;
  const auto known = known_.find(tensor);
  if (known != known_.end()) return known->second;
  known_[tensor] = std::nullopt;  // a cycle is not a mask
  return known_[tensor] = Compute(*call, depth + 1);
}

std::optional<KerasMaskOrigin> KerasMasks::Compute(const Call& call, int depth) {
  const Json* const first = Operand(*call.node, 0);
  if (first == nullptr) return std::nullopt;
  const auto mask_at = [&](size_t place) {
    const Json* const operand = Operand(*call.node, place);
    return operand == nullptr ? "" : TensorName(*operand);
  };
  if (call.type == "NotEqual") return Compared(call, "Embedding");
  if (call.type == "ConvertToTensor" || call.type == "ExpandDims" || call.type == "Squeeze") {
    return OriginOf(mask_at(0), depth);
  }
  if (call.type == "OnesLike") return KerasMaskOrigin{true, {}};
  if (call.type == "LogicalOr" || call.type == "LogicalAnd") {
    const Call* const second = Find(mask_at(1));
    if (call.type == "LogicalOr" && second != nullptr && second->type == "ZerosLike")
      return OriginOf(mask_at(0), depth);
    return Joined({mask_at(0), mask_at(1)}, call.type == "LogicalAnd", depth);
  }
  if (call.type != "Any" || !IsLastAxis(*call.config, RankOf(*first))) return std::nullopt;
  const Call* const over = Find(mask_at(0));
  if (over == nullptr) return std::nullopt;
  if (over->type == "NotEqual") return Compared(*over, "Masking");
  const Json* const parts = Operand(*over->node, 0);
  if (over->type != "Concatenate" || parts == nullptr || !parts->is_array() || parts->empty()) return std::nullopt;
  if (!IsLastAxis(*over->config, RankOf((*parts)[0]))) return std::nullopt;
  std::vector<std::string> masks;
  for (const Json& part : *parts) masks.push_back(TensorName(part));
  return Joined(masks, /*all_needed=*/false, depth);
}

// Recognizes NotEqual(x, number) as the mask of layers of class `maker` whose input is x.
std::optional<KerasMaskOrigin> KerasMasks::Compared(const Call& call, const char* maker) const {
  const Json *const x = Operand(*call.node, 0), *const number = Operand(*call.node, 1);
  if (number == nullptr || !number->is_number()) return std::nullopt;
  KerasMaskOrigin origin;
  for (const auto& [tensor, other] : calls_) {
    const Json* const input = Operand(*other.node, 0);
    if (other.type != maker || input == nullptr || TensorName(*input) != TensorName(*x)) continue;
    const Json& config = *other.config;
    if (!config.is_object()) continue;
    const bool embeds = other.type == "Embedding" && config.value("mask_zero", Json(false)) == true && *number == 0;
    const bool masks = other.type == "Masking" && config.value("mask_value", Json(0.0)) == *number;
    if (embeds || masks) origin.makers.insert(tensor);
  }
  if (origin.makers.empty()) return std::nullopt;
  return origin;
}

// all_needed: a step counts only if it counts in all masks; otherwise if it does in any.
std::optional<KerasMaskOrigin> KerasMasks::Joined(const std::vector<std::string>& masks, bool all_needed, int depth) {
  std::optional<KerasMaskOrigin> joined;
  for (const std::string& mask : masks) {
    std::optional<KerasMaskOrigin> one = OriginOf(mask, depth);
    if (!one.has_value()) return std::nullopt;
    if (!joined.has_value()) {
      joined = std::move(one);
    } else if (one->none || joined->none) {
      if (one->none != all_needed) joined = std::move(one);
    } else {
      KerasMaskOrigin both;
      std::set_intersection(joined->makers.begin(), joined->makers.end(), one->makers.begin(), one->makers.end(),
                            std::inserter(both.makers, both.makers.begin()));
      if (both.makers.empty()) return std::nullopt;
      joined = std::move(both);
    }
  }
  return joined;
}

}  // namespace cairn
