#include "common/formats/keras_call.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

constexpr size_t kInputsMax = 1024;

class Reader {
 public:
  Reader(const std::string& layer, const std::string& type) : layer_(layer), type_(type) {}

  absl::StatusOr<KerasCall> Read(const Json& nodes) {
    if (!nodes.is_array()) return Bad("its inbound_nodes are no list");
    if (nodes.size() > 1) {
      return Bad(absl::StrCat("it is called ", nodes.size(), " times; a layer that is shared is not supported, give each call a layer of its own"));
    }
    if (nodes.empty()) {
      if (type_ == "InputLayer") return KerasCall();
      return Bad("it takes no input");
    }
    CAIRN_RETURN_IF_ERROR(nodes[0].is_object() ? ReadKeras3(nodes[0]) : ReadKeras2(nodes[0]));
    if (type_ == "MultiHeadAttention") {
      if (!value_.empty()) call_.inputs.push_back(value_);
      if (!key_.empty()) call_.inputs.push_back(key_);
    }
    if (call_.inputs.empty() && type_ != "InputLayer") return Bad("it takes no input");
    return std::move(call_);
  }

 private:
  absl::Status Bad(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("layer \"", ShownText(layer_), "\" (", ShownText(type_), "): ", what));
  }

  // ["conv2d", 0, 0, ...]
  absl::StatusOr<std::string> TensorName(const Json& history) const {
    if (!history.is_array() || history.size() < 3 || !history[0].is_string()) {
      return Bad(absl::StrCat("its input ", ShownJson(history), " is no layer's output"));
    }
    if (history[1] != 0) return Bad(absl::StrCat("it takes \"", ShownText(history[0].get<std::string>()), "\", which is called more than once; a layer that is shared is not supported"));
    if (history[2] != 0) return Bad(absl::StrCat("it takes a second output of \"", ShownText(history[0].get<std::string>()), "\"; a layer has one output"));
    return history[0].get<std::string>();
  }

  absl::Status AddInput(const Json& history) {
    CAIRN_ASSIGN_OR_RETURN(std::string name, TensorName(history));
    if (call_.inputs.size() >= kInputsMax) return Bad(absl::StrCat("more than ", kInputsMax, " inputs"));
    call_.inputs.push_back(std::move(name));
    return absl::OkStatus();
  }

  absl::Status ReadKeras2(const Json& node) {
    if (!node.is_array() || node.empty()) return Bad("its inbound_nodes are neither a list nor an object");
    const Json list = node[0].is_array() ? node : Json::array({node});
    for (const Json& input : list) {
      CAIRN_RETURN_IF_ERROR(AddInput(input));
      if (input.size() > 3) CAIRN_RETURN_IF_ERROR(ReadArguments(input[3], false));
    }
    return absl::OkStatus();
  }

  static bool IsTensor(const Json& value) {
    return value.is_object() && value.contains("class_name") && value["class_name"] == "__keras_tensor__" &&
           value.contains("config") && value["config"].is_object() && value["config"].contains("keras_history");
  }

  absl::Status ReadKeras3(const Json& node) {
    const Json none = Json::array();
    const Json& args = node.contains("args") ? node["args"] : none;
    if (!args.is_array()) return Bad("args is no list");
    for (const Json& argument : args) {
      const Json list = argument.is_array() ? argument : Json::array({argument});
      for (const Json& item : list) {
        if (item.is_null()) continue;
        if (!IsTensor(item)) return Bad(absl::StrCat("it is called with ", ShownJson(item), ", which is no layer's output"));
        CAIRN_RETURN_IF_ERROR(AddInput(item["config"]["keras_history"]));
      }
    }
    return node.contains("kwargs") ? ReadArguments(node["kwargs"], true) : absl::OkStatus();
  }

  absl::Status ReadArguments(const Json& arguments, bool keras3) {
    if (arguments.is_null()) return absl::OkStatus();
    if (!arguments.is_object()) return Bad("the arguments of its call are no object");
    for (const auto& [key, value] : arguments.items()) {
      const bool attends = type_ == "MultiHeadAttention";
      if (value.is_null() || value == false) continue;
      if (attends && key == "use_causal_mask" && value == true) {
        call_.causal = true;
        continue;
      }
      if (keras3 ? !IsTensor(value) : !value.is_array()) {
        return Bad(absl::StrCat("it is called with ", ShownText(key), "=", ShownJson(value), ", which is not supported; leave it away"));
      }
      CAIRN_ASSIGN_OR_RETURN(std::string name, TensorName(keras3 ? value["config"]["keras_history"] : value));
      if (attends && key == "value") {
        value_ = std::move(name);
      } else if (attends && key == "key") {
        key_ = std::move(name);
      } else if (key == "inputs" || (attends && key == "query")) {
        call_.inputs.push_back(std::move(name));
      } else {
        return Bad(absl::StrCat("it is called with a tensor as ", ShownText(key), ", which is not supported; leave it away"));
      }
    }
    return absl::OkStatus();
  }

  const std::string &layer_, &type_;
  KerasCall call_;
  std::string value_, key_;
};

}  // namespace

absl::StatusOr<KerasCall> ReadKerasCall(const std::string& layer, const std::string& type, const Json& inbound_nodes) {
  return Reader(layer, type).Read(inbound_nodes);
}

}  // namespace cairn
