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

// The entries that give the shape of the model's input, with the batch: those of its InputLayers, or of the first layer
// of a Sequential, or its build shape.
std::vector<Json*> InputShapes(Json& model) {
  std::vector<Json*> found;
  const auto look = [&](Json& in, const char* key) {
    if (!in.is_object() || !in.contains(key) || !in[key].is_array() || in[key].empty()) return false;
    found.push_back(&in[key]);
    return true;
  };
  if (!model.is_object() || !model.contains("config")) return found;
  Json& config = model["config"];
  Json* const layers = config.is_object() && config.contains("layers") ? &config["layers"] : &config;
  if (!layers->is_array()) return found;
  for (Json& layer : *layers) {
    if (!layer.is_object() || !layer.contains("config")) continue;
    if (!look(layer["config"], "batch_shape")) look(layer["config"], "batch_input_shape");
  }
  if (found.empty() && config.is_object()) look(config, "build_input_shape");
  if (found.empty() && model.contains("build_config")) look(model["build_config"], "input_shape");
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

absl::Status Several() {
  return Bad("the model has several inputs, of which one is open; build it with the shapes of its inputs");
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
  const std::vector<Json*> shapes = InputShapes(*json);
  return std::any_of(shapes.begin(), shapes.end(), [](const Json* shape) { return IsOpen(ShapeOf(*shape)); });
}

absl::StatusOr<std::string> CloseKerasShape(const Shape& shape, const std::string& keras_json) {
  CAIRN_ASSIGN_OR_RETURN(Json json, ReadJson(keras_json));
  const std::vector<Json*> shapes = InputShapes(json);
  bool changed = false;
  for (Json* batch_shape : shapes) {
    const Shape open = ShapeOf(*batch_shape);
    if (!IsOpen(open)) continue;
    if (shapes.size() > 1) return Several();
    CAIRN_ASSIGN_OR_RETURN(const Shape closed, Closed(open, shape));
    for (size_t axis = 0; axis < closed.size(); ++axis) {
      if (closed[axis] != kOpen) (*batch_shape)[axis + 1] = closed[axis];
    }
    changed = true;
  }
  if (!changed) return keras_json;
  return json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

absl::Status CloseShape(const Shape& shape, v1::Model* model) {
  if (!model->keras_json().empty()) {
    absl::StatusOr<std::string> closed = CloseKerasShape(shape, model->keras_json());
    if (!closed.ok()) return Annotate(closed.status(), "model.keras_json");
    *model->mutable_keras_json() = *std::move(closed);
  }
  const int64_t inputs = std::count_if(model->layers().begin(), model->layers().end(),
                                       [](const v1::Layer& layer) { return layer.has_input(); });
  for (int i = 0; i < model->layers_size(); ++i) {
    if (!model->layers(i).has_input()) continue;
    v1::InputLayer* const input = model->mutable_layers(i)->mutable_input();
    const Shape open(input->shape().begin(), input->shape().end());
    if (!IsOpen(open)) continue;
    if (inputs > 1) return Annotate(Several(), "model.layers");
    const absl::StatusOr<Shape> closed = Closed(open, shape);
    if (!closed.ok()) return Annotate(closed.status(), absl::StrCat("model.layers[", i, "].input.shape"));
    for (size_t axis = 0; axis < closed->size(); ++axis) {
      input->set_shape(static_cast<int>(axis), static_cast<int32_t>((*closed)[axis]));
    }
  }
  return absl::OkStatus();
}

absl::Status CloseShapeByFields(const v1::Data& data, v1::Model* model) {
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
