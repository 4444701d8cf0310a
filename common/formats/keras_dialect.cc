#include "common/formats/keras_dialect.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/formats/keras_augmentation.h"
#include "common/model/keras/keras_values.h"

namespace cairn {
namespace {

// The default of `training` in call(); null: Keras writes nothing.
Json DefaultTraining(const std::string& type) {
  if (absl::EndsWith(type, "Dropout") || absl::StartsWith(type, "SpatialDropout") || type == "GaussianNoise")
    return false;
  if (IsKerasAugmentation(type)) return true;
  return nullptr;
}

bool TakesMask(const std::string& type) {
  return type == "BatchNormalization" || type == "Softmax" || type == "GlobalAveragePooling1D";
}

// The keyword arguments with which a layer of Keras 3 is called.
struct Call {
  std::string type;
  Json* keywords;
};

// Collects the calls of the model and of nested ones. The recursion is bounded, since the parser limits the depth.
void Collect(Json& model, std::vector<Call>& calls, bool& has_quantization) {
  const auto config = model.find("config");
  if (config == model.end() || !config->is_object()) return;
  has_quantization = has_quantization || config->contains("quantization_config");
  // A model in a TimeDistributed.
  if (const auto inner = config->find("layer"); inner != config->end() && inner->is_object()) {
    Collect(*inner, calls, has_quantization);
  }
  const auto layers = config->find("layers");
  if (layers == config->end() || !layers->is_array()) return;
  for (Json& layer : *layers) {
    if (!layer.is_object()) continue;
    Collect(layer, calls, has_quantization);
    const auto nodes = layer.find("inbound_nodes");
    if (nodes == layer.end() || !nodes->is_array()) continue;
    const std::string type =
        layer.contains("class_name") && layer["class_name"].is_string() ? layer["class_name"].get<std::string>() : "";
    for (Json& node : *nodes) {
      if (!node.is_object() || !node.contains("kwargs") || !node["kwargs"].is_object()) continue;
      calls.push_back({type, &node["kwargs"]});
    }
  }
}

// -1: before 3.10; 0: unknown; 1: 3.10 or later.
int AgeByVersion(const Json& model) {
  const auto version = model.find("keras_version");
  if (version == model.end() || !version->is_string()) return 0;
  const std::vector<std::string> parts = absl::StrSplit(version->get<std::string>(), '.');
  int major = 0, minor = 0;
  if (parts.size() < 2 || !absl::SimpleAtoi(parts[0], &major) || !absl::SimpleAtoi(parts[1], &minor)) return 0;
  return major > 3 || (major == 3 && minor >= 10) ? 1 : -1;
}

bool WritesUnasked(const Json& model, const std::vector<Call>& calls, bool has_quantization) {
  for (const Call& call : calls) {
    for (const auto& [argument, value] : call.keywords->items()) {
      if (value.is_null() && (argument == "mask" || absl::EndsWith(argument, "_mask"))) return true;
    }
  }
  for (const Call& call : calls) {
    if (!DefaultTraining(call.type).is_null() && !call.keywords->contains("training")) return false;
    if (TakesMask(call.type) && !call.keywords->contains("mask")) return false;
  }
  const int age = AgeByVersion(model);
  return age != 0 ? age < 0 : !has_quantization;
}

bool IsOld(const Json& model) {
  const auto version = model.find("keras_version");
  if (version == model.end() || !version->is_string()) return !model.contains("module");
  return !absl::StartsWith(version->get<std::string>(), "3.");
}

bool IsHardSigmoid(const Json& value) {
  if (value == "hard_sigmoid" || value == "hardSigmoid") return true;
  if (!value.is_object()) return false;
  for (const char* key : {"class_name", "config"}) {
    if (value.contains(key) && (value[key] == "hard_sigmoid" || value[key] == "HardSigmoid")) return true;
  }
  return false;
}

// Normalization's axis=None is written as null or as an empty list; if the key is missing, the axis is -1.
void NameAllAxes(Json& value) {
  if (value.is_object() && value.contains("class_name") && value["class_name"] == "Normalization" &&
      value.contains("config") && value["config"].is_object() && value["config"].contains("axis") &&
      value["config"]["axis"].is_null()) {
    value["config"]["axis"] = Json::array();
  }
  if (!value.is_structured()) return;
  for (Json& item : value) NameAllAxes(item);
}

// The parser limits the depth of the recursion.
void RenameHardSigmoid(Json& value) {
  if (value.is_object()) {
    for (const char* key : {"activation", "recurrent_activation"}) {
      if (value.contains(key) && IsHardSigmoid(value[key])) value[key] = kOldHardSigmoid;
    }
  }
  if (!value.is_structured()) return;
  for (Json& item : value) RenameHardSigmoid(item);
}

}  // namespace

Json WithOldNamesApart(Json model) {
  NameAllAxes(model);
  if (model.is_object() && IsOld(model)) RenameHardSigmoid(model);
  return model;
}

Json WithoutUnaskedArguments(Json model) {
  if (!model.is_object()) return model;
  std::vector<Call> calls;
  bool has_quantization = false;
  Collect(model, calls, has_quantization);
  if (!WritesUnasked(model, calls, has_quantization)) return model;
  for (const Call& call : calls) {
    const Json unasked = DefaultTraining(call.type);
    const auto training = call.keywords->find("training");
    if (!unasked.is_null() && training != call.keywords->end() && *training == unasked) call.keywords->erase(training);
  }
  return model;
}

}  // namespace cairn
