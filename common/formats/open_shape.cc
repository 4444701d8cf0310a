#include "common/formats/open_shape.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/formats/limits.h"
#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_values.h"

namespace cairn {
namespace {

constexpr int64_t kOpen = -1;

// "[null,null,3]", as Keras writes it. What is not positive is not known.
std::string Shown(const Shape& shape) {
  std::vector<std::string> sides;
  for (const int64_t side : shape) sides.push_back(side <= 0 ? "null" : absl::StrCat(side));
  std::string text = "[";
  for (const std::string& side : sides) absl::StrAppend(&text, text.size() > 1 ? "," : "", side);
  return text + "]";
}

bool IsOpen(const Shape& shape) { return std::find(shape.begin(), shape.end(), kOpen) != shape.end(); }

absl::StatusOr<Shape> Closed(const Shape& open, const Shape& by) {
  const auto bad = [&] {
    return Bad("the model's input ", Shown(open), " cannot be ", Shown(by), "; a shape that fits has ", open.size(),
               open.size() == 1 ? " axis" : " axes", ", and is the same where the input is not null");
  };
  Shape closed = open;
  if (open.size() == by.size()) {
    for (size_t axis = 0; axis < open.size(); ++axis) {
      if (by[axis] <= 0) continue;
      if (open[axis] != kOpen && open[axis] != by[axis]) return bad();
      closed[axis] = by[axis];
    }
    return closed;
  }
  int64_t known = 1, numbers = 1;
  for (const int64_t side : open) {
    if (side == kOpen) continue;
    if (side <= 0 || known > INT32_MAX / side) return bad();  // as large as no example is
    known *= side;
  }
  for (const int64_t side : by) {
    if (side <= 0 || numbers > INT32_MAX / side) return bad();
    numbers *= side;
  }
  if (std::count(open.begin(), open.end(), kOpen) != 1 || known > numbers || numbers % known != 0) return bad();
  std::replace(closed.begin(), closed.end(), kOpen, numbers / known);
  return closed;
}

// ---- Keras' JSON ----

// The entry that gives the shape of an input, with the batch.
struct InputEntry {
  std::string name;  // of the input layer; empty: it has none
  Json* batch_shape;
};

std::string NameIn(const Json& layer) {
  for (const Json* object : {&layer, &layer["config"]}) {
    if (object->is_object() && object->contains("name") && (*object)["name"].is_string())
      return (*object)["name"].get<std::string>();
  }
  return "";
}

// Those of the model's InputLayers, or of the first layer of a Sequential, or its build shape.
std::vector<InputEntry> InputShapes(Json& model) {
  std::vector<InputEntry> found;
  const auto look = [&](Json& in, const char* key, const std::string& name) {
    if (!in.is_object() || !in.contains(key) || !in[key].is_array() || in[key].empty()) return false;
    found.push_back({name, &in[key]});
    return true;
  };
  if (!model.is_object() || !model.contains("config")) return found;
  Json& config = model["config"];
  Json* const layers = config.is_object() && config.contains("layers") ? &config["layers"] : &config;
  if (!layers->is_array()) return found;
  for (Json& layer : *layers) {
    if (!layer.is_object() || !layer.contains("config")) continue;
    const std::string name = NameIn(layer);
    if (!look(layer["config"], "batch_shape", name)) look(layer["config"], "batch_input_shape", name);
  }
  if (found.empty() && config.is_object()) look(config, "build_input_shape", "");
  if (found.empty() && model.contains("build_config")) look(model["build_config"], "input_shape", "");
  return found;
}

// The shape without the batch; empty: the value is not a list of dimensions.
Shape ShapeOf(const Json& batch_shape) {
  Shape shape;
  for (size_t i = 1; i < batch_shape.size(); ++i) {
    const Json& side = batch_shape[i];
    if (!side.is_null() && !side.is_number_integer()) return {};
    shape.push_back(side.is_null() ? kOpen : std::max<int64_t>(side.get<int64_t>(), 0));
  }
  return shape;
}

absl::StatusOr<Json> ReadJson(const std::string& text) {
  CAIRN_ASSIGN_OR_RETURN(Json root, ParseBoundedJson(text, kKerasJsonBytesMax));
  if (!root.is_string()) return root;
  return ParseBoundedJson(root.get<std::string>(), kKerasJsonBytesMax);  // JSON in JSON
}

absl::Status Several(const std::string& open) {
  return Bad("the model has several inputs, of which \"", ShownText(open), "\" is open; give data.inputs { input: \"",
             ShownText(open), "\" shape: ... }, or show the model with --input-shape ", ShownText(open), "=...");
}

absl::Status NoInput(const std::string& name, const std::vector<std::string>& names) {
  return Bad("the model has no input \"", ShownText(name), "\"; ",
             names.empty() ? "leave it out" : absl::StrCat("the first one is \"", ShownText(names[0]), "\""));
}

// input: the only one to be closed; nullptr: the model's only input.
absl::StatusOr<std::string> CloseJson(const std::string* input, const Shape& shape, const std::string& keras_json) {
  CAIRN_ASSIGN_OR_RETURN(Json json, ReadJson(keras_json));
  const std::vector<InputEntry> entries = InputShapes(json);
  std::vector<std::string> names;
  bool changed = false, met = input == nullptr;
  for (const InputEntry& entry : entries) {
    names.push_back(entry.name);
    if (input != nullptr && entry.name != *input) continue;
    met = true;
    const Shape open = ShapeOf(*entry.batch_shape);
    if (!IsOpen(open)) continue;
    if (input == nullptr && entries.size() > 1) return Several(entry.name);
    CAIRN_ASSIGN_OR_RETURN(const Shape closed, Closed(open, shape));
    for (size_t axis = 0; axis < closed.size(); ++axis) {
      if (closed[axis] != kOpen) (*entry.batch_shape)[axis + 1] = closed[axis];
    }
    changed = true;
  }
  if (!met) return NoInput(*input, names);
  if (!changed) return keras_json;
  return json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

absl::Status CloseLayers(const std::string* input, const Shape& shape, v1::Model* model) {
  std::vector<std::string> names;
  for (const v1::Layer& layer : model->layers()) {
    if (layer.has_input()) names.push_back(layer.name());
  }
  bool met = input == nullptr;
  for (int i = 0; i < model->layers_size(); ++i) {
    v1::Layer& layer = *model->mutable_layers(i);
    if (!layer.has_input() || (input != nullptr && layer.name() != *input)) continue;
    met = true;
    const Shape open(layer.input().shape().begin(), layer.input().shape().end());
    if (!IsOpen(open)) continue;
    if (input == nullptr && names.size() > 1) return Annotate(Several(layer.name()), "model.layers");
    const absl::StatusOr<Shape> closed = Closed(open, shape);
    if (!closed.ok()) return Annotate(closed.status(), absl::StrCat("model.layers[", i, "].input.shape"));
    for (size_t axis = 0; axis < closed->size(); ++axis) {
      layer.mutable_input()->set_shape(static_cast<int>(axis), static_cast<int32_t>((*closed)[axis]));
    }
  }
  return met ? absl::OkStatus() : NoInput(*input, names);
}

absl::Status Close(const std::string* input, const Shape& shape, v1::Model* model) {
  if (model->keras_json().empty()) return CloseLayers(input, shape, model);
  absl::StatusOr<std::string> closed = CloseJson(input, shape, model->keras_json());
  if (!closed.ok()) return Annotate(closed.status(), "model.keras_json");
  *model->mutable_keras_json() = *std::move(closed);
  return absl::OkStatus();
}

}  // namespace

bool HasOpenShape(const v1::Model& model) {
  for (const v1::Layer& layer : model.layers()) {
    const auto& shape = layer.input().shape();
    if (layer.has_input() && std::find(shape.begin(), shape.end(), kOpen) != shape.end()) return true;
  }
  if (model.keras_json().empty()) return false;
  absl::StatusOr<Json> json = ReadJson(model.keras_json());
  if (!json.ok()) return false;
  const std::vector<InputEntry> entries = InputShapes(*json);
  return std::any_of(entries.begin(), entries.end(),
                     [](const InputEntry& entry) { return IsOpen(ShapeOf(*entry.batch_shape)); });
}

absl::StatusOr<std::string> CloseKerasShape(const Shape& shape, const std::string& keras_json) {
  return CloseJson(nullptr, shape, keras_json);
}

absl::StatusOr<std::string> CloseKerasInput(const std::string& input, const Shape& shape,
                                            const std::string& keras_json) {
  return CloseJson(&input, shape, keras_json);
}

absl::Status CloseShape(const Shape& shape, v1::Model* model) { return Close(nullptr, shape, model); }

absl::Status CloseInput(const std::string& input, const Shape& shape, v1::Model* model) {
  return Close(&input, shape, model);
}

absl::Status CloseShapeByFields(const v1::Data& data, v1::Model* model) {
  if (!HasOpenShape(*model)) return absl::OkStatus();
  for (int i = 0; i < data.inputs_size(); ++i) {
    const v1::InputSource& source = data.inputs(i);
    if (source.shape().empty() && source.columns().empty()) continue;
    const bool given = !source.shape().empty();
    Shape shape(source.shape().begin(), source.shape().end());
    if (!given) shape = {source.columns_size()};
    const absl::Status status =
        source.input().empty() ? CloseShape(shape, model) : CloseInput(source.input(), shape, model);
    if (!status.ok()) return Annotate(status, absl::StrCat("data.inputs[", i, "].", given ? "shape" : "columns"));
  }
  const Shape fields = ShapeOfFields(data);
  if (fields.empty() || !HasOpenShape(*model)) return absl::OkStatus();
  return Annotate(CloseShape(fields, model), data.image_height() > 0 && data.image_width() > 0
                                                 ? "data.image_height and data.image_width"
                                                 : "data.tfrecord.shape");
}

Shape ShapeOfFields(const v1::Data& data) {
  if (data.image_height() > 0 && data.image_width() > 0) return {data.image_height(), data.image_width(), 0};
  return Shape(data.tfrecord().shape().begin(), data.tfrecord().shape().end());
}

}  // namespace cairn
