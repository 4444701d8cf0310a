#include "common/formats/keras_step_models.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "common/formats/keras_call.h"
#include "common/formats/keras_operation.h"

namespace cairn {
namespace {

std::string TextOf(const Json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
}

bool IsModel(const Json& value) {
  return IsKerasModel(TextOf(value, "class_name")) && value.contains("config") && value["config"].is_object() &&
         value["config"].contains("layers") && value["config"]["layers"].is_array() &&
         !value["config"]["layers"].empty();
}

bool IsModelOnSteps(const Json& value) {
  return TextOf(value, "class_name") == "TimeDistributed" && value.contains("config") && value["config"].is_object() &&
         value["config"].contains("layer") && IsModel(value["config"]["layer"]);
}

// Layers, or operations, that join their inputs number by number: all steps at once are joined as each by itself.
bool JoinsNumbers(const std::string& type, bool operation) {
  for (const char* name : {"Add", "Subtract", "Multiply", "Maximum", "Minimum"}) {
    if (type == name) return true;
  }
  return operation ? type == "Divide" || type == "TrueDivide" : type == "Average" || type == "Concatenate";
}

// An axis counted from the batch, if it is the last one, becomes -1: a step has one axis less than the layer's input.
void CountAxisFromTheEnd(const Json& entry, Json& config) {
  if (!entry.contains("build_config") || !config.is_object() || !config.contains("axis")) return;
  const Json& build = entry["build_config"];
  if (!build.is_object() || !build.contains("input_shape") || !build["input_shape"].is_array()) return;
  Json& given = config["axis"];
  Json& axis = given.is_array() && given.size() == 1 ? given[0] : given;
  if (axis.is_number_integer() && axis.get<int64_t>() + 1 == static_cast<int64_t>(build["input_shape"].size())) {
    axis = -1;
  }
}

void DistributeLayers(Json& config);

// The layer of a model that is computed for each step.
void Distribute(Json& entry) {
  const std::string type = TextOf(entry, "class_name");
  if (type.empty() || type == "InputLayer" || !entry.contains("config")) return;
  if (IsModel(entry)) return DistributeLayers(entry["config"]);
  if (JoinsNumbers(type, IsKerasOperation(type, TextOf(entry, "module")))) {
    entry[kClassBeforeSteps] = type;
    if (type != "Concatenate" || !entry["config"].is_object() || !entry["config"].contains("axis")) return;
    Json& axis = entry["config"]["axis"];
    if (axis.is_number_integer() && axis.get<int64_t>() > 0) axis = axis.get<int64_t>() + 1;
    return;
  }
  Json inner = Json::object({{"class_name", type}, {"config", entry["config"]}});
  CountAxisFromTheEnd(entry, inner["config"]);
  std::string name = TextOf(entry, "name");
  if (name.empty()) name = TextOf(entry["config"], "name");
  Json config = Json::object({{"layer", std::move(inner)}});
  if (!name.empty()) config["name"] = name;
  entry["config"] = std::move(config);
  entry["class_name"] = "TimeDistributed";
  entry[kClassBeforeSteps] = type;
  entry.erase("build_config");
}

void DistributeLayers(Json& config) {
  for (Json& layer : config["layers"]) {
    if (layer.is_object()) Distribute(layer);
  }
}

// The shape of what the TimeDistributed takes, with the batch; null: its entry does not say.
Json InputShapeOf(const Json& entry) {
  for (const char* key : {"batch_input_shape", "batch_shape"}) {
    if (entry["config"].contains(key) && entry["config"][key].is_array()) return entry["config"][key];
  }
  if (!entry.contains("build_config") || !entry["build_config"].is_object()) return nullptr;
  const Json shape = entry["build_config"].value("input_shape", Json());
  return shape.is_array() ? shape : Json();
}

// The model's first layer gives the shape of a model that begins with it (of Keras 2), now with the axis of the steps.
void GiveInputShape(const Json& shape, Json& model) {
  Json* first = &model;
  while (IsModel(*first)) first = &(*first)["config"]["layers"][0];
  if (!first->is_object() || !first->contains("config") || !(*first)["config"].is_object()) return;
  Json& config = (*first)["config"];
  bool given = false;
  for (const char* key : {"batch_input_shape", "batch_shape"}) {
    if (!config.contains(key) || !config[key].is_array() || config[key].empty()) continue;
    Json open = config[key];
    open.insert(std::next(open.begin()), nullptr);
    config[key] = shape.is_array() ? shape : open;
    given = true;
  }
  if (!given && shape.is_array()) config["batch_input_shape"] = shape;
}

// The TimeDistributed of a model becomes a model of TimeDistributed layers.
void Replace(Json& entry) {
  Json model = entry["config"]["layer"];
  Json& config = model["config"];
  std::string name = TextOf(entry, "name");
  if (name.empty()) name = TextOf(entry["config"], "name");
  if (!name.empty()) model["name"] = config["name"] = name;
  if (entry["config"].value("trainable", Json(true)) == false) config["trainable"] = false;
  if (entry.contains("inbound_nodes")) model["inbound_nodes"] = entry["inbound_nodes"];
  model.erase("build_config");
  config.erase("build_input_shape");
  DistributeLayers(config);
  GiveInputShape(InputShapeOf(entry), model);
  model[kClassBeforeSteps] = "TimeDistributed";
  entry = std::move(model);
}

// The recursion is bounded, since the parser limits the depth.
void Walk(Json& model) {
  if (!IsModel(model)) return;
  for (Json& layer : model["config"]["layers"]) {
    if (IsModelOnSteps(layer)) {
      Replace(layer);
    } else {
      Walk(layer);
    }
  }
}

}  // namespace

Json WithStepsInModels(Json model) {
  Walk(model);
  return model;
}

}  // namespace cairn
