#include "common/formats/keras_call.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/formats/keras_augmentation.h"
#include "common/formats/limits.h"
#include "common/model/layer_type.h"

namespace cairn {
namespace {

constexpr char kCallSeparator = '\x1f', kOutputSeparator = '\x1e';  // names hold no such characters

// The arguments of a class's call() that may be positional, in order.
std::vector<std::string> PositionalArguments(const std::string& type) {
  if (IsKerasModel(type)) return {"inputs", "training", "mask"};
  if (IsKerasAugmentation(type)) return {"data", "training"};
  const KerasClass* const keras = FindKerasClass(type).keras;
  return absl::StrSplit(keras != nullptr ? keras->call : "inputs", ',');
}

class Reader {
 public:
  Reader(const std::string& layer, const std::string& type, const KerasFirstCalls& firsts)
      : layer_(layer),
        type_(type),
        firsts_(firsts),
        attends_(type == "MultiHeadAttention" || type == "GroupQueryAttention" || type == "GroupedQueryAttention"),
        recurs_(PositionalArguments(type)[0] == "sequences") {}

  absl::StatusOr<KerasCall> Read(const Json& call) {
    CAIRN_RETURN_IF_ERROR(call.is_object() ? ReadKeras3(call) : ReadKeras2(call));
    if (attends_) CAIRN_RETURN_IF_ERROR(JoinAttention());
    for (const KerasMask& mask : call_.masks) {
      if (mask.input >= call_.inputs.size())
        return Bad(absl::StrCat("it is called with a ", mask.argument, " for no input; leave it out"));
    }
    if (call_.inputs.empty() && type_ != "InputLayer") return Bad("it takes no input");
    return std::move(call_);
  }

 private:
  // One of the inputs of a MultiHeadAttention.
  struct Part {
    const char* argument;
    std::string layer;
    bool keyword = false;
  };

  absl::Status Bad(absl::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("layer \"", ShownText(layer_), "\" (", ShownText(type_), "): ", what));
  }

  absl::Status NotSupported(const std::string& argument, const Json& value, absl::string_view cure) const {
    const std::string name = ShownText(argument);
    const bool tensor = IsTensor3(value) || IsTensor2(value);
    const std::string shown = tensor ? absl::StrCat("a tensor as ", name) : absl::StrCat(name, "=", ShownJson(value));
    return Bad(absl::StrCat("it is called with ", shown, ", which is not supported; ", cure));
  }

  // ---- tensors ----

  static bool IsTensor3(const Json& value) {
    return value.is_object() && value.contains("class_name") && value["class_name"] == "__keras_tensor__" &&
           value.contains("config") && value["config"].is_object() && value["config"].contains("keras_history");
  }
  static bool IsTensor2(const Json& value) { return value.is_array() && value.size() >= 3 && value[0].is_string(); }

  // ["conv2d", 0, 0, ...]
  absl::StatusOr<std::string> TensorName(const Json& history) const {
    if (!IsTensor2(history)) return Bad(absl::StrCat("its input ", ShownJson(history), " is not a layer's output"));
    const std::string name = history[0].get<std::string>();
    const auto first = firsts_.find(name);
    const int call =
        (history[1].is_number_integer() ? history[1].get<int>() : -1) - (first == firsts_.end() ? 0 : first->second);
    if (call < 0) return Bad(absl::StrCat("its input ", ShownJson(history), " is not a call of a layer"));
    const int output = KerasOutputNumber(history);
    if (output < 0) return Bad(absl::StrCat("its input ", ShownJson(history), " is not an output of a layer"));
    return KerasTensorName(name, call, output);
  }

  absl::Status AddInput(const std::string& argument, bool keyword, const Json& history) {
    CAIRN_ASSIGN_OR_RETURN(std::string name, TensorName(history));
    if (attends_) {
      for (Part& part : parts_) {
        if (argument != part.argument) continue;
        if (!part.layer.empty()) return Bad(absl::StrCat("it is called with two tensors as ", argument));
        part.layer = std::move(name);
        part.keyword = keyword;
        break;
      }
      return absl::OkStatus();
    }
    if (call_.inputs.size() >= kKerasInputsMax) return Bad(absl::StrCat("more than ", kKerasInputsMax, " inputs"));
    call_.inputs.push_back(std::move(name));
    return absl::OkStatus();
  }

  bool IsTensor(const Json& value) const { return IsTensor3(value) || (keras2_ && IsTensor2(value)); }

  // Whether the value is a tensor or a list of tensors.
  bool AreTensors(const Json& value) const {
    if (!value.is_array() || IsTensor2(value)) return IsTensor(value);
    return std::all_of(value.begin(), value.end(), [this](const Json& item) { return IsTensor(item); });
  }

  // In Keras 3: a tensor, or a list of them.
  absl::Status AddInputs(const std::string& argument, bool keyword, const Json& value) {
    const Json list = value.is_array() && !IsTensor2(value) ? value : Json::array({value});
    for (const Json& item : list) {
      if (!IsTensor(item)) {
        return Bad(absl::StrCat("it is called with ", ShownJson(item), ", which is not a layer's output"));
      }
      CAIRN_RETURN_IF_ERROR(AddInput(argument, keyword, IsTensor3(item) ? item["config"]["keras_history"] : item));
    }
    return absl::OkStatus();
  }

  absl::Status JoinAttention() {
    for (const Part& part : parts_) {
      if (part.layer.empty()) continue;
      call_.inputs.push_back(part.layer);
      call_.keyword_inputs += part.keyword;
    }
    if (!parts_[0].layer.empty() && !parts_[1].layer.empty()) return absl::OkStatus();
    return Bad(absl::StrCat("it is called without a ", parts_[0].layer.empty() ? "query" : "value"));
  }

  // ---- the dialects ----

  // Reads the tensors of the first argument; each entry has the other arguments as keywords.
  absl::Status ReadKeras2(const Json& node) {
    keras2_ = true;
    if (!node.is_array() || node.empty()) return Bad("its inbound_nodes are neither a list nor an object");
    const Json list = node[0].is_array() ? node : Json::array({node});
    const std::string first = PositionalArguments(type_)[0];
    for (const Json& input : list) CAIRN_RETURN_IF_ERROR(AddInput(first, false, input));
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i].size() <= 3) continue;
      if (list[i][3] != list[0][3]) return Bad("the arguments of its call differ from tensor to tensor");
      if (i == 0) CAIRN_RETURN_IF_ERROR(TakeKeywords(list[i][3]));
    }
    return absl::OkStatus();
  }

  absl::Status ReadKeras3(const Json& node) {
    const Json none = Json::array();
    const Json& args = node.contains("args") ? node["args"] : none;
    if (!args.is_array()) return Bad("args is not a list");
    const std::vector<std::string> names = PositionalArguments(type_);
    for (size_t i = 0; i < args.size(); ++i) {
      if (i >= names.size()) {
        return Bad(absl::StrCat("it is called with ", args.size(), " positional arguments, but has ", names.size()));
      }
      CAIRN_RETURN_IF_ERROR(Take(names[i], false, args[i]));
    }
    return node.contains("kwargs") ? TakeKeywords(node["kwargs"]) : absl::OkStatus();
  }

  absl::Status TakeKeywords(const Json& arguments) {
    if (arguments.is_null()) return absl::OkStatus();
    if (!arguments.is_object()) return Bad("the arguments of its call are not an object");
    for (const auto& [key, value] : arguments.items()) CAIRN_RETURN_IF_ERROR(Take(key, true, value));
    return absl::OkStatus();
  }

  // ---- one argument ----

  absl::Status Take(const std::string& argument, bool keyword, const Json& value) {
    const bool augments = IsKerasAugmentation(type_);
    const bool is_input = attends_ ? argument == "query" || argument == "value" || argument == "key"
                                   : argument == "inputs" || (augments && argument == "data") ||
                                         (recurs_ && (argument == "sequences" || argument == "initial_state"));
    const bool may_be_null = argument == "key" || argument == "initial_state";
    if (is_input && may_be_null && value.is_null()) return absl::OkStatus();  // as if it were omitted
    if (is_input && argument == "initial_state" && !AreTensors(value)) {
      return NotSupported(argument, value, "give outputs of layers, or leave it out");
    }
    if (is_input) return AddInputs(argument, keyword, value);
    if (argument == "training") return TakeTraining(value);
    const bool scores = attends_ || type_ == "Attention" || type_ == "AdditiveAttention";
    const bool mask = argument == "mask" || (attends_ && (argument == "query_mask" || argument == "value_mask" ||
                                                          argument == "key_mask" || argument == "attention_mask"));
    const bool none =
        value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& m) { return m.is_null(); });
    if (mask && (value.is_null() || none)) return absl::OkStatus();
    if (mask && !keras2_ && argument != "attention_mask" && AreTensorsOrNull(value)) return AddMasks(argument, value);
    if (mask) return NotSupported(argument, value, "Cairn has no masks; leave it out");
    if (scores && argument == "return_attention_scores") {
      if (value.is_null() || value == false) return absl::OkStatus();
      return NotSupported(argument, value, "a layer has one output; leave it out");
    }
    if (scores && argument == "use_causal_mask") {
      if (!value.is_null() && !value.is_boolean()) return NotSupported(argument, value, "use true or false");
      call_.causal = value == true;
      return absl::OkStatus();
    }
    return NotSupported(argument, value, "leave it out");
  }

  // In Keras 3: a mask, or one for each input.
  bool AreTensorsOrNull(const Json& value) const {
    if (IsTensor3(value)) return true;
    return value.is_array() && !value.empty() &&
           std::all_of(value.begin(), value.end(), [](const Json& item) { return item.is_null() || IsTensor3(item); });
  }

  absl::Status AddMasks(const std::string& argument, const Json& value) {
    const size_t first = argument == "value_mask" ? 1 : argument == "key_mask" ? 2 : 0;
    const Json list = value.is_array() ? value : Json::array({value});
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i].is_null()) continue;
      CAIRN_ASSIGN_OR_RETURN(std::string name, TensorName(list[i]["config"]["keras_history"]));
      call_.masks.push_back({first + i, std::move(name), argument});
    }
    return absl::OkStatus();
  }

  absl::Status TakeTraining(const Json& value) {
    if (value.is_null()) return absl::OkStatus();
    if (value == false) {
      call_.inference = true;
      return absl::OkStatus();
    }
    if (value != true) return NotSupported("training", value, "use false, or leave it out");
    return NotSupported("training", value, "it would compute as in training when it is evaluated, too; leave it out");
  }

  const std::string &layer_, &type_;
  const KerasFirstCalls& firsts_;
  const bool attends_, recurs_;
  bool keras2_ = false;
  std::array<Part, 3> parts_ = {{{"query", ""}, {"value", ""}, {"key", ""}}};  // in the order of KerasCall.inputs
  KerasCall call_;
};

}  // namespace

bool IsKerasModel(const std::string& type) { return type == "Sequential" || type == "Functional" || type == "Model"; }

std::string KerasTensorName(const std::string& layer, int call, int output) {
  std::string name = call == 0 ? layer : absl::StrCat(layer, std::string(1, kCallSeparator), call);
  if (output > 0) absl::StrAppend(&name, std::string(1, kOutputSeparator), output);
  return name;
}

std::string KerasCallOf(absl::string_view tensor) {
  return std::string(tensor.substr(0, tensor.find(kOutputSeparator)));
}

int KerasOutputOf(absl::string_view tensor) {
  const size_t at = tensor.find(kOutputSeparator);
  int output = 0;
  if (at != tensor.npos && !absl::SimpleAtoi(tensor.substr(at + 1), &output)) output = 0;
  return output;
}

int KerasOutputNumber(const Json& history) {
  const Json& output = history[2];
  const bool fits = output.is_number_integer() && output.get<double>() >= 0 && output.get<double>() < kKerasOutputsMax;
  return fits ? output.get<int>() : -1;
}

std::string ShownTensor(absl::string_view tensor) {
  if (const int output = KerasOutputOf(tensor); output > 0) {
    return absl::StrCat(ShownTensor(KerasCallOf(tensor)), " (output ", output, ")");
  }
  const size_t name = tensor.find(kCallSeparator);
  if (name == absl::string_view::npos) return ShownText(tensor);
  return absl::StrCat(ShownText(tensor.substr(0, name)), " (call ", ShownText(tensor.substr(name + 1)), ")");
}

absl::StatusOr<KerasCall> ReadKerasCall(const std::string& layer, const std::string& type, const Json& call,
                                        const KerasFirstCalls& firsts) {
  return Reader(layer, type, firsts).Read(call);
}

absl::StatusOr<std::vector<size_t>> OrderCalls(const std::vector<std::string>& layers,
                                               const std::vector<KerasCall>& calls) {
  const auto bad = [&](size_t layer, absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("layer \"", ShownTensor(layers[layer]), "\": ", what));
  };
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (!places.emplace(layers[i], i).second) return bad(i, "two layers have this name");
  }
  std::vector<size_t> open(layers.size());
  std::vector<std::vector<size_t>> users(layers.size());
  std::set<size_t> ready;
  for (size_t i = 0; i < layers.size(); ++i) {
    std::vector<std::string> taken = calls[i].inputs;
    for (const KerasMask& mask : calls[i].masks) taken.push_back(mask.tensor);
    open[i] = taken.size();
    for (const std::string& input : taken) {
      const auto it = places.find(KerasCallOf(input));
      if (it == places.end()) {
        return bad(i, absl::StrCat("its input \"", ShownTensor(input), "\" is not a layer of the model"));
      }
      users[it->second].push_back(i);
    }
    if (open[i] == 0) ready.insert(i);
  }
  std::vector<size_t> order;
  while (!ready.empty()) {
    const size_t next = *ready.begin();
    ready.erase(ready.begin());
    order.push_back(next);
    for (const size_t user : users[next]) {
      if (--open[user] == 0) ready.insert(user);
    }
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    if (open[i] > 0) return bad(i, "its inputs lead back to itself");
  }
  return order;
}

}  // namespace cairn
