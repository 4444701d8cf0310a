#include "common/formats/keras_augmentation.h"

#include "absl/strings/match.h"
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
bool FillModeOf(KerasConfig& c, Layer* layer) {
  std::string mode = "reflect";
  c.Text("fill_mode", &mode);
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

template <typename Layer>
bool Fill(KerasConfig& c, Layer* layer) {
  c.Only("interpolation", "bilinear", "use bilinear");
  return FillModeOf(c, layer);
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

void PixelRange(KerasConfig& c) { c.Only("value_range", Json::array({0, 255}), "use [0, 255]"); }

// Keras draws a probability within [low, high], or [0, f], for each picture. Here the share of changed pictures is the
// middle of that range.
template <typename Step>
void Share(KerasConfig& c, Step* step) {
  Floats factor;
  Factor(c, "factor", &factor);
  if (factor.size() == 1) step->set_factor(factor[0] / 2);
  if (factor.size() == 2) step->set_factor((factor[0] + factor[1]) / 2);
}

void ReadAugMix(KerasConfig& c, v1::AugMix* mix) {
  int32_t chains = 3, depth = 3;
  float alpha = 1;
  bool all = true;
  c.Int("num_chains", &chains);
  c.Int("chain_depth", &depth);
  c.Float("alpha", &alpha);
  c.Bool("all_ops", &all);
  mix->set_num_chains(chains);
  mix->set_chain_depth(depth);
  mix->set_alpha(alpha);
  mix->set_all_ops(all);
  Factor(c, "factor", mix->mutable_factor());
  c.Only("interpolation", "bilinear", "use bilinear");
  PixelRange(c);
}

void ReadElastic(KerasConfig& c, v1::RandomElasticTransform* elastic) {
  Factor(c, "factor", elastic->mutable_factor());
  Factor(c, "scale", elastic->mutable_scale());
  std::string interpolation = "bilinear";
  c.Text("interpolation", &interpolation);
  elastic->set_nearest(interpolation == "nearest");
  if (interpolation != "nearest" && interpolation != "bilinear")
    c.Refuse(absl::StrCat("interpolation: \"", ShownText(interpolation), "\" is not known; use bilinear or nearest"));
  FillModeOf(c, elastic);
  PixelRange(c);
}

// Reads layers that recolour, blur, erase and project. Returns false for other layers.
bool ReadColors(const std::string& type, KerasConfig& c, v1::Augmentation* out) {
  if (type == "RandomGrayscale") {
    float factor = 0.5f;
    c.Float("factor", &factor);
    out->mutable_random_grayscale()->set_factor(factor);
    return true;
  }
  Floats* factor = nullptr;
  if (type == "RandomSaturation") factor = out->mutable_random_saturation()->mutable_factor();
  if (type == "RandomHue") factor = out->mutable_random_hue()->mutable_factor();
  if (type == "RandomColorDegeneration") factor = out->mutable_random_color_degeneration()->mutable_factor();
  if (type == "RandomPosterization") factor = out->mutable_random_posterization()->mutable_factor();
  if (type == "RandomSharpness") factor = out->mutable_random_sharpness()->mutable_factor();
  if (type == "RandomInvert") {
    Share(c, out->mutable_random_invert());
  } else if (type == "RandomColorJitter") {
    v1::RandomColorJitter* jitter = out->mutable_random_color_jitter();
    Factor(c, "brightness_factor", jitter->mutable_brightness_factor());
    Factor(c, "contrast_factor", jitter->mutable_contrast_factor());
    Factor(c, "saturation_factor", jitter->mutable_saturation_factor());
    Factor(c, "hue_factor", jitter->mutable_hue_factor());
  } else if (type == "RandomGaussianBlur") {
    Share(c, out->mutable_random_gaussian_blur());
    c.Ints("kernel_size", out->mutable_random_gaussian_blur()->mutable_kernel_size());
    Factor(c, "sigma", out->mutable_random_gaussian_blur()->mutable_sigma());
  } else if (type == "RandomErasing") {
    Share(c, out->mutable_random_erasing());
    Factor(c, "scale", out->mutable_random_erasing()->mutable_scale());
    float fill = 0;
    const bool filled = c.Has("fill_value");
    c.Float("fill_value", &fill);
    if (filled) out->mutable_random_erasing()->set_fill_value(fill);
  } else if (type == "Equalization") {
    int32_t bins = 256;
    c.Int("bins", &bins);
    out->mutable_equalization()->set_bins(bins);
  } else if (type == "Solarization") {
    Factor(c, "addition_factor", out->mutable_solarization()->mutable_addition_factor());
    Factor(c, "threshold_factor", out->mutable_solarization()->mutable_threshold_factor());
  } else if (type == "RandAugment") {
    int32_t ops = 2;
    c.Int("num_ops", &ops);
    out->mutable_rand_augment()->set_num_ops(ops);
    Floats range;
    Factor(c, "factor", &range);
    if (range.size() == 2 && range[0] != 0) c.Refuse(absl::StrCat("factor: begins at ", range[0], "; use [0, f]"));
    if (!range.empty()) out->mutable_rand_augment()->set_factor(range[range.size() - 1]);
    c.Only("interpolation", "bilinear", "use bilinear");
  } else if (factor == nullptr) {
    return false;
  }
  if (factor != nullptr) Factor(c, "factor", factor);
  PixelRange(c);
  return true;
}

void ReadPerspective(KerasConfig& c, v1::RandomPerspective* perspective) {
  Share(c, perspective);
  std::string interpolation = "bilinear";
  c.Text("interpolation", &interpolation);
  perspective->set_nearest(interpolation == "nearest");
  if (interpolation != "nearest" && interpolation != "bilinear")
    c.Refuse(absl::StrCat("interpolation: \"", ShownText(interpolation), "\" is not known; use bilinear or nearest"));
  float scale = 1, fill = 0;
  c.Float("scale", &scale);
  c.Float("fill_value", &fill);
  perspective->set_scale(scale);
  perspective->set_fill_value(fill);
}

void ReadRandomCrop(KerasConfig& c, v1::RandomCrop* crop) {
  int32_t height = 0, width = 0;
  c.Int("height", &height);
  c.Int("width", &width);
  crop->set_height(height);
  crop->set_width(width);
}

// Those that move pixels, as ReadAugmentation.
std::optional<bool> ReadMoves(const std::string& type, KerasConfig& c, v1::Augmentation* out) {
  if (type == "RandomShear") {
    Factor(c, "x_factor", out->mutable_random_shear()->mutable_x_factor());
    Factor(c, "y_factor", out->mutable_random_shear()->mutable_y_factor());
    return Fill(c, out->mutable_random_shear());
  }
  if (type == "RandomPerspective") {
    ReadPerspective(c, out->mutable_random_perspective());
    return false;
  }
  if (type == "RandomFlip") return ReadRandomFlip(c, out->mutable_random_flip());
  if (type == "RandomRotation") {
    Factor(c, "factor", out->mutable_random_rotation()->mutable_factor());
    return Fill(c, out->mutable_random_rotation());
  }
  if (type == "RandomZoom") {
    Factor(c, "height_factor", out->mutable_random_zoom()->mutable_height_factor());
    Factor(c, "width_factor", out->mutable_random_zoom()->mutable_width_factor());
    return Fill(c, out->mutable_random_zoom());
  }
  if (type == "RandomTranslation") {
    Factor(c, "height_factor", out->mutable_random_translation()->mutable_height_factor());
    Factor(c, "width_factor", out->mutable_random_translation()->mutable_width_factor());
    return Fill(c, out->mutable_random_translation());
  }
  if (type == "RandomCrop") {
    ReadRandomCrop(c, out->mutable_random_crop());
    return true;
  }
  return std::nullopt;
}

}  // namespace

bool IsKerasAugmentation(absl::string_view type) {
  return absl::StartsWith(type, "Random") || type == "RandAugment" || type == "AutoContrast" ||
         type == "Equalization" || type == "Solarization" || type == "AugMix" || type == "MixUp" || type == "CutMix";
}

std::optional<bool> ReadAugmentation(const std::string& type, KerasConfig& c, v1::Augmentation* out) {
  keras::ChannelsLast(c);
  if (type == "AutoContrast") {
    c.Refuse(
        "it changes pictures in evaluation and prediction too; do it when the data is made, or let "
        "data.augmentation do it in training only");
    return false;
  }
  if (type == "MixUp" || type == "CutMix") {
    c.Refuse(absl::StrCat("it mixes labels too, which a layer of a model cannot; leave it out, and let the job's ",
                          "data.augmentation have a ", type == "MixUp" ? "mix_up" : "cut_mix"));
    return false;
  }
  if (type == "AugMix") {
    ReadAugMix(c, out->mutable_aug_mix());
    return false;
  }
  if (type == "RandomElasticTransform") {
    ReadElastic(c, out->mutable_random_elastic_transform());
    return false;
  }
  if (ReadColors(type, c, out)) return false;
  if (type == "RandomBrightness") {
    Factor(c, "factor", out->mutable_random_brightness()->mutable_factor());
    PixelRange(c);
    return false;
  }
  if (type == "RandomContrast") {
    Factor(c, "factor", out->mutable_random_contrast()->mutable_factor());
    PixelRange(c);
    return false;
  }
  return ReadMoves(type, c, out);
}

}  // namespace cairn
