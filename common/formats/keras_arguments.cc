#include "common/formats/keras_arguments.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/formats/limits.h"

namespace cairn {
namespace {

constexpr char kConstantValue[] = "_CONSTANT_VALUE";

bool IsTensor3(const Json& value) {
  return JsonTextOf(value, "class_name") == "__keras_tensor__" && value.contains("config") &&
         value["config"].is_object() && value["config"].contains("keras_history");
}
bool IsTensor2(const Json& value) {
  return value.is_array() && value.size() >= 3 && value[0].is_string() && value[1].is_number_integer();
}

bool ReadNested(const Json& value, size_t depth, KerasConstant* constant) {
  if (value.is_number() || value.is_boolean()) {
    constant->numbers.push_back(value.is_number() ? value.get<float>() : value.get<bool>() ? 1.0f : 0.0f);
    return depth == constant->shape.size();
  }
  if (!value.is_array() || value.empty() || depth > kKerasNestingMax) return false;
  if (depth == constant->shape.size()) {
    if (!constant->numbers.empty()) return false;
    constant->shape.push_back(static_cast<int32_t>(value.size()));
  }
  if (depth >= constant->shape.size() || constant->shape[depth] != static_cast<int32_t>(value.size())) return false;
  for (const Json& item : value) {
    if (!ReadNested(item, depth + 1, constant)) return false;
  }
  return true;
}

}  // namespace

std::optional<KerasConstant> ReadKerasConstant(const Json& value) {
  const Json* numbers = &value;
  if (value.is_object()) {
    const std::string type = JsonTextOf(value, "class_name");
    if ((type != "__numpy__" && type != "__tensor__") || !value.contains("config") || !value["config"].is_object() ||
        !value["config"].contains("value")) {
      return std::nullopt;
    }
    numbers = &value["config"]["value"];
  }
  KerasConstant constant;
  if (!ReadNested(*numbers, 0, &constant)) return std::nullopt;
  return constant;
}

std::string JsonTextOf(const Json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
}

std::string KerasArguments::Function() const { return keras2() ? JsonTextOf(*entry_.config, "function") : entry_.type; }

absl::Status KerasArguments::Bad(absl::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat("layer \"", ShownText(entry_.name), "\" (", ShownText(Function()), "): ", what));
}

absl::Status KerasArguments::AddTensor(const Json& history) {
  if (!history.is_array() || history.size() < 3 || !history[0].is_string() || !history[1].is_number_integer() ||
      KerasOutputNumber(history) < 0) {
    return Bad(absl::StrCat("its input ", ShownJson(history), " is not an output of a layer"));
  }
  if (tensors_.size() >= kKerasInputsMax) return Bad(absl::StrCat("more than ", kKerasInputsMax, " inputs"));
  const std::string layer = history[0].get<std::string>();
  const auto first = firsts_.find(layer);
  const int call = history[1].get<int>() - (first == firsts_.end() ? 0 : first->second);
  if (call < 0) return Bad(absl::StrCat("its input ", ShownJson(history), " is not a call of a layer"));
  tensors_.push_back(KerasTensorName(layer, call, KerasOutputNumber(history)));
  operands_.push_back(nullptr);
  return absl::OkStatus();
}

// Adds a tensor, a list of tensors, or any other value as an operand.
absl::Status KerasArguments::AddOperand(const Json& value) {
  if (IsTensor3(value)) return AddTensor(value["config"]["keras_history"]);
  if (keras2() && IsTensor2(value)) return AddTensor(value);
  if (value.is_array() && !value.empty() && (IsTensor3(value[0]) || (keras2() && IsTensor2(value[0])))) {
    for (const Json& item : value) CAIRN_RETURN_IF_ERROR(AddOperand(item));
    return absl::OkStatus();
  }
  operands_.push_back(&value);
  return absl::OkStatus();
}

absl::StatusOr<const Json*> KerasArguments::ReadPositional() {
  const Json& call = *entry_.call;
  if (call.is_object()) {
    if (call.contains("args") && call["args"].is_array()) {
      for (const Json& value : call["args"]) CAIRN_RETURN_IF_ERROR(AddOperand(value));
    }
    return call.contains("kwargs") ? &call["kwargs"] : nullptr;
  }
  if (!call.is_array() || call.empty()) return Bad("its inbound_nodes are neither a list nor an object");
  const bool list = call[0].is_array();
  const Json* keywords = nullptr;
  for (size_t i = 0; i < (list ? call.size() : 1); ++i) {
    const Json& input = list ? call[i] : call;
    if (!IsTensor2(input)) return Bad(absl::StrCat("its input ", ShownJson(input), " is not a layer's output"));
    if (input[0] == kConstantValue) {
      operands_.push_back(&input[2]);
    } else {
      CAIRN_RETURN_IF_ERROR(AddTensor(input));
    }
    if (i == 0 && input.size() > 3) keywords = &input[3];
  }
  return keywords;
}

absl::Status KerasArguments::Read() {
  if (entry_.config->is_object() && !keras2()) {
    for (const auto& [name, value] : entry_.config->items()) {
      if (name != "name" && name != "dtype_policy") options_.emplace(name, &value);
    }
  }
  CAIRN_ASSIGN_OR_RETURN(const Json* const keywords, ReadPositional());
  if (keywords == nullptr || !keywords->is_object()) return absl::OkStatus();
  // In the order of the functions' arguments: where(condition, x, y), maximum(x, y), matmul(a, b).
  static const std::vector<std::string> operands = {"x1", "x", "a", "x2", "y", "b", "bias"};
  for (const std::string& operand : operands) {
    const auto found = keywords->find(operand);
    if (found != keywords->end() && !found->is_null()) CAIRN_RETURN_IF_ERROR(AddOperand(*found));
  }
  for (const auto& [name, value] : keywords->items()) {
    const bool operand = std::find(operands.begin(), operands.end(), name) != operands.end();
    if (!operand && name != "name") options_.emplace(name, &value);
  }
  return absl::OkStatus();
}

const Json* KerasArguments::Take(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const auto found = options_.find(name);
    if (found == options_.end()) continue;
    const Json* value = found->second;
    options_.erase(found);
    if (!value->is_null()) return value;
  }
  return nullptr;
}
const Json* KerasArguments::TakeOrOperand(std::initializer_list<const char*> names) {
  if (const Json* value = Take(names)) return value;
  for (auto it = operands_.begin(); it != operands_.end(); ++it) {
    if (*it == nullptr) continue;
    const Json* value = *it;
    operands_.erase(it);
    return value->is_null() ? nullptr : value;
  }
  return nullptr;
}

absl::StatusOr<std::vector<int64_t>> KerasArguments::Whole(const Json* value, const char* what) const {
  std::vector<int64_t> numbers;
  if (value == nullptr) return Bad(absl::StrCat(what, " is missing"));
  const Json list = value->is_array() ? *value : Json::array({*value});
  for (const Json& item : list) {
    if (!item.is_null() && !item.is_number_integer()) {
      return Bad(absl::StrCat(what, ": ", ShownJson(*value), " is not a whole number or a list of them"));
    }
    const double number = item.is_null() ? -1 : item.get<double>();
    if (std::abs(number) > INT32_MAX) return Bad(absl::StrCat(what, ": ", ShownJson(*value), " is out of range"));
    numbers.push_back(static_cast<int64_t>(number));
  }
  return numbers;
}

absl::StatusOr<std::vector<int32_t>> KerasArguments::Axes(const Json* value, int of_rank, const char* what) const {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> given, Whole(value, what));
  std::vector<int32_t> axes;
  for (const int64_t one : given) {
    const int64_t axis = one < 0 ? one + of_rank + 1 : one;
    if (axis == 0) return Bad(absl::StrCat(what, ": ", ShownJson(*value), " names the batch; name the axes after it"));
    if (axis < 0 || axis > of_rank)
      return Bad(absl::StrCat(what, ": ", ShownJson(*value), " is not an axis of its input"));
    axes.push_back(static_cast<int32_t>(axis));
  }
  return axes;
}

absl::Status KerasArguments::Finish() const {
  for (const auto& [name, value] : options_) {
    if (value->is_null() || *value == false) continue;
    return Bad(absl::StrCat(ShownText(name), "=", ShownJson(*value), " is not supported; leave it out"));
  }
  return absl::OkStatus();
}

}  // namespace cairn
