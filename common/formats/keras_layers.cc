#include "common/formats/keras_layers.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/formats/keras_augmentation.h"
#include "common/model/keras/keras_common.h"
#include "common/model/layer_type.h"
#include "common/model/nearest.h"

namespace cairn {
namespace {

// The class that was probably meant; empty: none is close.
std::string NearestClass(const std::string& type) {
  std::vector<std::string> names;
  for (const LayerType* layer : LayerTypes()) {
    for (const KerasClass& keras : layer->keras) names.push_back(keras.name);
  }
  return Nearest(type, names);
}

bool TakesTextsAlone(const std::string& type) { return type == "StringLookup" || type == "TextVectorization"; }

// Layers whose output may be integers. Cairn's are float32, which represents every index exactly.
bool GivesIndices(const std::string& type) {
  return type == "Discretization" || type == "CategoryEncoding" || type == "Hashing" || type == "HashedCrossing" ||
         type == "IntegerLookup" || TakesTextsAlone(type);
}

// Reads the options that every layer has.
void ReadCommon(const std::string& type, KerasConfig& c, v1::Layer* layer) {
  c.Ignore("name");
  bool trainable = true;
  c.Bool("trainable", &trainable);
  if (!trainable) layer->set_trainable(false);
  for (const char* key : {"batch_input_shape", "batch_shape", "build_config", "seed", "autocast", "input_dtype"})
    c.Ignore(key);
  const Json* dtype = c.Take("dtype");
  if (dtype == nullptr) return;
  const Json* name = dtype;  // "float32", or the object of a DTypePolicy
  if (dtype->is_object() && dtype->contains("config") && (*dtype)["config"].is_object() &&
      (*dtype)["config"].contains("name")) {
    name = &(*dtype)["config"]["name"];
  }
  // The variables of a mixed policy are float32 too; the precision of products is the job's compute_dtype.
  if (*name == "float32" || *name == "mixed_float16" || *name == "mixed_bfloat16") return;
  if (GivesIndices(type) && (*name == "int64" || *name == "int32")) return;
  if (TakesTextsAlone(type) && *name == "string") return;
  c.Refuse(absl::StrCat("dtype: ", ShownJson(*name),
                        " is not supported; use float32 or a mixed policy, whose variables are float32"));
}

std::string TextOf(const Json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
}

}  // namespace

absl::Status CheckIsKerasLayer(const Json& entry, const std::string& name, const std::string& type) {
  const std::string module = TextOf(entry, "module"), registered = TextOf(entry, "registered_name");
  const bool custom = (!module.empty() && !absl::StartsWith(module, "keras")) || absl::StrContains(registered, '>');
  if (!custom) return absl::OkStatus();
  return Bad(
      "layer \"", ShownText(name), "\": ", ShownText(registered.empty() ? type : registered),
      " is a class of your own, whose Python code no worker can run; use layers of Keras, or train the model as a "
      "program of your own (docs/programs.md)");
}

absl::StatusOr<KerasLayer> ReadKerasLayer(const std::string& type, const std::string& name, const Json& config) {
  KerasConfig c(config, name, type);
  KerasLayer result;
  v1::Layer layer;
  layer.set_name(name);
  // An input's dtype is that of the data.
  if (type != "InputLayer") ReadCommon(type, c, &layer);
  if (type == "InputLayer") {
    for (const char* key : {"name", "trainable"}) c.Ignore(key);
  }
  if (IsKerasAugmentation(type)) {
    v1::Augmentation augmentation;
    if (const std::optional<bool> commutes = ReadAugmentation(type, c, &augmentation)) {
      CAIRN_RETURN_IF_ERROR(c.Finish());
      result.value = std::move(augmentation);
      result.moves_pixels_only = *commutes;
      return result;
    }
  }
  if (type == "Lambda") {
    return Bad("layer \"", ShownText(name),
               "\": Lambda is not supported: it calls Python code, which no worker can run; use layers, or operations "
               "such as keras.ops.exp(x), or train the model as a program of your own (docs/programs.md)");
  }
  const FoundKerasClass found = FindKerasClass(type);
  if (found.keras == nullptr) {
    const std::string nearest = NearestClass(type);
    return Bad("layer \"", ShownText(name), "\": ", ShownText(type), " is not supported",
               nearest.empty() ? "" : absl::StrCat(" (", nearest, " is)"),
               "; use layers that docs/keras.md lists, or train the model as a program of your own (docs/programs.md)");
  }
  found.keras->read(c, &layer);
  ReadKerasCommon(c, &layer);
  CAIRN_RETURN_IF_ERROR(c.Finish());
  result.value = std::move(layer);
  result.axis = c.axis();
  return result;
}

}  // namespace cairn
