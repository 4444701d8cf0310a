#include "common/model/keras/keras_inner.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/keras/keras_common.h"
#include "common/model/layer_type.h"

namespace cairn {
namespace {

bool IsFloat32(const Json& dtype) {
  if (dtype.is_object() && dtype.contains("config") && dtype["config"].is_object()) {
    return dtype["config"].value("name", Json()) == "float32";
  }
  return dtype == "float32";
}

absl::Status Read(const std::string& type, const std::string& name, const Json& config, v1::Layer* layer) {
  const FoundKerasClass found = FindKerasClass(type);
  if (found.keras == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(ShownText(type), " is not supported within another layer"));
  }
  KerasConfig c(config, name, type);
  for (const char* key :
       {"name", "batch_input_shape", "batch_shape", "build_config", "seed", "autocast", "input_dtype"})
    c.Ignore(key);
  bool trainable = true;
  c.Bool("trainable", &trainable);
  if (!trainable) layer->set_trainable(false);
  const Json* const dtype = c.Take("dtype");
  if (dtype != nullptr && !IsFloat32(*dtype)) c.Refuse(absl::StrCat("dtype: ", ShownJson(*dtype), "; use float32"));
  found.keras->read(c, layer);
  ReadKerasCommon(c, layer);
  CAIRN_RETURN_IF_ERROR(c.Finish());
  if (c.axis() >= 0) return absl::InvalidArgumentError("axis: only the last axis is supported there, as -1");
  return absl::OkStatus();
}

}  // namespace

bool ReadInnerLayer(KerasConfig& config, const char* key, std::initializer_list<const char*> ignored,
                    v1::Layer* layer) {
  const Json* const object = config.Take(key);
  if (object == nullptr) return false;
  if (!object->is_object() || !object->contains("class_name") || !(*object)["class_name"].is_string() ||
      !object->contains("config") || !(*object)["config"].is_object()) {
    config.Refuse(absl::StrCat(key, ": it is not a layer with class_name and config"));
    return false;
  }
  Json inner = (*object)["config"];
  for (const char* skipped : ignored) inner.erase(skipped);
  const std::string type = (*object)["class_name"].get<std::string>();
  const std::string name = inner.contains("name") && inner["name"].is_string() ? inner["name"].get<std::string>() : "";
  layer->set_name(name);
  if (const absl::Status status = Read(type, name, inner, layer); !status.ok()) {
    config.Refuse(absl::StrCat(key, ": ", status.message()));
    return false;
  }
  return true;
}

absl::StatusOr<OrderedJson> InnerLayerJson(const Node& node, const v1::Layer& layer) {
  const LayerType* const type = FindLayerType(layer.kind_case());
  Node inner;
  inner.kind = type->kind;
  inner.name = layer.name();
  inner.layer = layer;
  inner.trainable = node.trainable;
  KerasWriter writer(inner);
  if (type->write_keras != nullptr) type->write_keras(inner, writer);
  WriteKerasCommon(inner.layer, writer);
  CAIRN_ASSIGN_OR_RETURN(OrderedJson config, writer.Take());
  const char* const name = type->keras_class != nullptr ? type->keras_class(inner) : type->keras[0].name;
  return KerasObject("keras.layers", name, std::move(config));
}

}  // namespace cairn
