#include "common/formats/keras_augmentation.h"

#include "absl/strings/str_cat.h"
#include "common/model/keras/keras_fields.h"

namespace cairn {
namespace {

using Floats = google::protobuf::RepeatedField<float>;

void Factor(KerasConfig& c, const char* key, Floats* out) {
  const Json* value = c.Take(key);
  if (value == nullptr) return;
  const Json list = value->is_array() ? *value : Json::array({*value});
  for (const Json& item : list) {
    if (!item.is_number() || list.size() > 2)
      return c.Refuse(absl::StrCat(key, ": ", ShownJson(*value), " is neither a number nor a pair"));
    out->Add(item.get<float>());
  }
}

template <typename Layer>
bool Fill(KerasConfig& c, Layer* layer) {
  std::string mode = "reflect";
  c.Text("fill_mode", &mode);
  c.Only("interpolation", "bilinear", "use bilinear");
  float value = 0;
  c.Float("fill_value", &value);
  layer->set_fill_value(value);
  if (mode == "wrap") layer->set_fill_mode(v1::WRAP);
  if (mode == "constant") layer->set_fill_mode(v1::FILL_CONSTANT);
  if (mode == "nearest") layer->set_fill_mode(v1::NEAREST_PIXEL);
  if (mode != "reflect" && mode != "wrap" && mode != "constant" && mode != "nearest") {
    c.Refuse(
        absl::StrCat("fill_mode: \"", ShownText(mode), "\" is not supported; use reflect, wrap, constant or nearest"));
  }
  return mode != "constant";
}

bool ReadRandomFlip(KerasConfig& c, v1::RandomFlip* flip) {
  std::string mode = "horizontal_and_vertical";
  c.Text("mode", &mode);
  if (mode == "horizontal") flip->set_mode(v1::RandomFlip::HORIZONTAL);
  if (mode == "vertical") flip->set_mode(v1::RandomFlip::VERTICAL);
  if (mode != "horizontal" && mode != "vertical" && mode != "horizontal_and_vertical") {
    c.Refuse(absl::StrCat("mode: \"", ShownText(mode), "\" is not known"));
  }
  return true;
}

}  // namespace

std::optional<bool> ReadAugmentation(const std::string& type, KerasConfig& c, v1::Augmentation* out) {
  keras::ChannelsLast(c);
  if (type == "RandomFlip") return ReadRandomFlip(c, out->mutable_random_flip());
  if (type == "RandomRotation") {
    Factor(c, "factor", out->mutable_random_rotation()->mutable_factor());
    return Fill(c, out->mutable_random_rotation());
  }
  if (type == "RandomZoom" || type == "RandomTranslation") {
    if (type == "RandomZoom") {
      Factor(c, "height_factor", out->mutable_random_zoom()->mutable_height_factor());
      Factor(c, "width_factor", out->mutable_random_zoom()->mutable_width_factor());
      return Fill(c, out->mutable_random_zoom());
    }
    Factor(c, "height_factor", out->mutable_random_translation()->mutable_height_factor());
    Factor(c, "width_factor", out->mutable_random_translation()->mutable_width_factor());
    return Fill(c, out->mutable_random_translation());
  }
  if (type == "RandomCrop") {
    int32_t height = 0, width = 0;
    c.Int("height", &height);
    c.Int("width", &width);
    out->mutable_random_crop()->set_height(height);
    out->mutable_random_crop()->set_width(width);
    return true;
  }
  if (type == "RandomBrightness") {
    Factor(c, "factor", out->mutable_random_brightness()->mutable_factor());
    c.Only("value_range", Json::array({0, 255}), "use [0, 255]");
    return false;
  }
  if (type == "RandomContrast") {
    Factor(c, "factor", out->mutable_random_contrast()->mutable_factor());
    c.Only("value_range", Json::array({0, 255}), "use [0, 255]");
    return false;
  }
  return std::nullopt;
}

}  // namespace cairn
