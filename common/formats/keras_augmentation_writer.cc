#include "common/formats/keras_augmentation_writer.h"

#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/formats/keras_order.h"

namespace cairn {
namespace {

using Floats = google::protobuf::RepeatedField<float>;

// A Keras layer without its name.
struct KerasStep {
  const char* type;
  OrderedJson config;
  bool has_range = true;  // it has the option value_range
};

// Writes a factor as Keras does: a number or a pair.
OrderedJson FactorJson(const Floats& factor) {
  if (factor.empty()) return nullptr;
  if (factor.size() == 1) return KerasWriter::Rounded(factor[0]);
  return {KerasWriter::Rounded(factor[0]), KerasWriter::Rounded(factor[1])};
}

// For a step that changes this share of the pictures. Keras draws the probability from a range; here it is constant.
template <typename Step>
OrderedJson ShareJson(const Step& step) {
  const double share = step.has_factor() ? KerasWriter::Rounded(step.factor()) : 1.0;
  return {share, share};
}

template <typename Step>
void Fill(const Step& step, OrderedJson* config) {
  const char* mode = "reflect";
  if (step.fill_mode() == v1::WRAP) mode = "wrap";
  if (step.fill_mode() == v1::FILL_CONSTANT) mode = "constant";
  if (step.fill_mode() == v1::NEAREST_PIXEL) mode = "nearest";
  (*config)["fill_mode"] = mode;
  (*config)["fill_value"] = KerasWriter::Rounded(step.fill_value());
  (*config)["interpolation"] = "bilinear";
}

std::optional<KerasStep> MovingStep(const v1::Augmentation& step) {
  OrderedJson config = OrderedJson::object();
  switch (step.kind_case()) {
    case v1::Augmentation::kRandomFlip: {
      const auto mode = step.random_flip().mode();
      config["mode"] = mode == v1::RandomFlip::HORIZONTAL ? "horizontal"
                       : mode == v1::RandomFlip::VERTICAL ? "vertical"
                                                          : "horizontal_and_vertical";
      return KerasStep{"RandomFlip", std::move(config), false};
    }
    case v1::Augmentation::kRandomRotation:
      config["factor"] = FactorJson(step.random_rotation().factor());
      Fill(step.random_rotation(), &config);
      return KerasStep{"RandomRotation", std::move(config), false};
    case v1::Augmentation::kRandomZoom:
      config["height_factor"] = FactorJson(step.random_zoom().height_factor());
      config["width_factor"] = FactorJson(step.random_zoom().width_factor());
      Fill(step.random_zoom(), &config);
      return KerasStep{"RandomZoom", std::move(config), false};
    case v1::Augmentation::kRandomTranslation:
      config["height_factor"] = FactorJson(step.random_translation().height_factor());
      config["width_factor"] = FactorJson(step.random_translation().width_factor());
      Fill(step.random_translation(), &config);
      return KerasStep{"RandomTranslation", std::move(config), false};
    case v1::Augmentation::kRandomShear:
      for (const auto& [key, factor] : {std::pair("x_factor", &step.random_shear().x_factor()),
                                        std::pair("y_factor", &step.random_shear().y_factor())}) {
        config[key] = factor->empty() ? OrderedJson(0.0) : FactorJson(*factor);
      }
      Fill(step.random_shear(), &config);
      return KerasStep{"RandomShear", std::move(config), false};
    case v1::Augmentation::kRandomPerspective: {
      const v1::RandomPerspective& perspective = step.random_perspective();
      config["factor"] = ShareJson(perspective);
      config["scale"] = perspective.has_scale() ? KerasWriter::Rounded(perspective.scale()) : 1.0;
      config["interpolation"] = perspective.nearest() ? "nearest" : "bilinear";
      config["fill_value"] = KerasWriter::Rounded(perspective.fill_value());
      return KerasStep{"RandomPerspective", std::move(config), false};
    }
    default: return std::nullopt;
  }
}

// Steps made of others, and what displaces single pixels. mix_up and cut_mix mix labels, which no layer of a model can.
std::optional<KerasStep> FurtherStep(const v1::Augmentation& step) {
  OrderedJson config = OrderedJson::object();
  if (step.has_aug_mix()) {
    const v1::AugMix& mix = step.aug_mix();
    config["num_chains"] = mix.has_num_chains() ? mix.num_chains() : 3;
    config["chain_depth"] = mix.has_chain_depth() ? mix.chain_depth() : 3;
    config["factor"] = mix.factor().empty() ? OrderedJson(0.3) : FactorJson(mix.factor());
    config["alpha"] = mix.has_alpha() ? KerasWriter::Rounded(mix.alpha()) : 1.0;
    config["all_ops"] = !mix.has_all_ops() || mix.all_ops();
    config["interpolation"] = "bilinear";
    return KerasStep{"AugMix", std::move(config)};
  }
  if (!step.has_random_elastic_transform()) return std::nullopt;
  const v1::RandomElasticTransform& elastic = step.random_elastic_transform();
  config["factor"] = elastic.factor().empty() ? OrderedJson(1.0) : FactorJson(elastic.factor());
  config["scale"] = elastic.scale().empty() ? OrderedJson(1.0) : FactorJson(elastic.scale());
  Fill(elastic, &config);
  if (elastic.nearest()) config["interpolation"] = "nearest";
  return KerasStep{"RandomElasticTransform", std::move(config)};
}

OrderedJson ContrastConfig(const Floats& factor) {
  const double low = KerasWriter::Rounded(factor[0]);  // here a single number means [f, f]
  return {{"factor", {low, factor.size() == 2 ? KerasWriter::Rounded(factor[1]) : low}}};
}

OrderedJson ColorJitterConfig(const v1::RandomColorJitter& jitter) {
  OrderedJson config = OrderedJson::object();
  config["brightness_factor"] = FactorJson(jitter.brightness_factor());
  config["contrast_factor"] = FactorJson(jitter.contrast_factor());
  config["saturation_factor"] = FactorJson(jitter.saturation_factor());
  config["hue_factor"] = FactorJson(jitter.hue_factor());
  return config;
}

OrderedJson PosterizationConfig(const v1::RandomPosterization& posterization) {
  OrderedJson config = OrderedJson::object();
  config["factor"] = OrderedJson::array();  // integers
  for (const float bits : posterization.factor()) config["factor"].push_back(static_cast<int>(bits));
  if (config["factor"].size() == 1) config["factor"] = static_cast<int>(posterization.factor(0));
  return config;
}

OrderedJson BlurConfig(const v1::RandomGaussianBlur& blur) {
  OrderedJson config = OrderedJson::object();
  config["factor"] = ShareJson(blur);
  const int sizes = blur.kernel_size_size();
  config["kernel_size"] = {sizes == 0 ? 3 : blur.kernel_size(0), sizes == 0 ? 3 : blur.kernel_size(sizes - 1)};
  config["sigma"] = blur.sigma().empty() ? OrderedJson(1.0) : FactorJson(blur.sigma());
  return config;
}

OrderedJson ErasingConfig(const v1::RandomErasing& erasing) {
  OrderedJson config = OrderedJson::object();
  config["factor"] = ShareJson(erasing);
  config["scale"] = erasing.scale().empty() ? OrderedJson({0.02, 0.33}) : FactorJson(erasing.scale());
  config["fill_value"] = nullptr;
  if (erasing.has_fill_value()) config["fill_value"] = KerasWriter::Rounded(erasing.fill_value());
  return config;
}

OrderedJson SolarizationConfig(const v1::Solarization& solarization) {
  OrderedJson config = OrderedJson::object();
  for (const auto& [key, factor] : {std::pair("addition_factor", &solarization.addition_factor()),
                                    std::pair("threshold_factor", &solarization.threshold_factor())}) {
    config[key] = factor->empty() ? OrderedJson(0.0) : FactorJson(*factor);
  }
  return config;
}

std::optional<KerasStep> RecolouringStep(const v1::Augmentation& step) {
  OrderedJson config = OrderedJson::object();
  const auto by_factor = [&](const char* type, const Floats& factor) {
    config["factor"] = FactorJson(factor);
    return KerasStep{type, std::move(config)};
  };
  switch (step.kind_case()) {
    case v1::Augmentation::kRandomBrightness: return by_factor("RandomBrightness", step.random_brightness().factor());
    case v1::Augmentation::kRandomContrast:
      return KerasStep{"RandomContrast", ContrastConfig(step.random_contrast().factor())};
    case v1::Augmentation::kRandomSaturation: return by_factor("RandomSaturation", step.random_saturation().factor());
    case v1::Augmentation::kRandomHue: return by_factor("RandomHue", step.random_hue().factor());
    case v1::Augmentation::kRandomGrayscale:
      config["factor"] =
          step.random_grayscale().has_factor() ? KerasWriter::Rounded(step.random_grayscale().factor()) : 0.5;
      return KerasStep{"RandomGrayscale", std::move(config), false};
    case v1::Augmentation::kRandomColorJitter:
      return KerasStep{"RandomColorJitter", ColorJitterConfig(step.random_color_jitter())};
    case v1::Augmentation::kRandomColorDegeneration:
      return by_factor("RandomColorDegeneration", step.random_color_degeneration().factor());
    case v1::Augmentation::kRandomInvert:
      config["factor"] = ShareJson(step.random_invert());
      return KerasStep{"RandomInvert", std::move(config)};
    case v1::Augmentation::kRandomPosterization:
      return KerasStep{"RandomPosterization", PosterizationConfig(step.random_posterization())};
    case v1::Augmentation::kRandomSharpness: return by_factor("RandomSharpness", step.random_sharpness().factor());
    case v1::Augmentation::kRandomGaussianBlur:
      return KerasStep{"RandomGaussianBlur", BlurConfig(step.random_gaussian_blur())};
    case v1::Augmentation::kRandomErasing: return KerasStep{"RandomErasing", ErasingConfig(step.random_erasing())};
    case v1::Augmentation::kEqualization:
      config["bins"] = step.equalization().has_bins() ? step.equalization().bins() : 256;
      return KerasStep{"Equalization", std::move(config)};
    case v1::Augmentation::kSolarization: return KerasStep{"Solarization", SolarizationConfig(step.solarization())};
    case v1::Augmentation::kRandAugment:
      config["num_ops"] = step.rand_augment().has_num_ops() ? step.rand_augment().num_ops() : 2;
      config["factor"] = {0.0,
                          step.rand_augment().has_factor() ? KerasWriter::Rounded(step.rand_augment().factor()) : 0.5};
      config["interpolation"] = "bilinear";
      return KerasStep{"RandAugment", std::move(config)};
    default: return std::nullopt;
  }
}

// The name of a layer, which is in its config, or of an operation, whose config may lack it.
std::string NameOf(const OrderedJson& layer) {
  const OrderedJson& config = layer["config"];
  const OrderedJson& name = layer.contains("name") ? layer["name"] : config["name"];
  return name.get<std::string>();
}

// Replaces every tensor of layer `from` by one of `to`.
void Redirect(const std::string& from, const std::string& to, OrderedJson* value) {
  if (value->is_object() && value->contains("keras_history") && (*value)["keras_history"].is_array() &&
      !(*value)["keras_history"].empty() && (*value)["keras_history"][0] == from) {
    (*value)["keras_history"][0] = to;
  }
  if (!value->is_structured()) return;
  for (OrderedJson& item : *value) Redirect(from, to, &item);
}

}  // namespace

void InsertAugmentation(const v1::Data& data, OrderedJson* model) {
  OrderedJson& layers = (*model)["config"]["layers"];
  if (!layers.is_array() || layers.empty() || layers[0]["class_name"] != "InputLayer") return;
  const OrderedJson shape = layers[0]["config"]["batch_shape"];
  if (!shape.is_array() || shape.size() != 4) return;
  const bool functional = (*model)["class_name"] == "Functional";
  const std::string input = layers[0]["config"]["name"].get<std::string>();
  std::set<std::string> names;
  for (const OrderedJson& layer : layers) names.insert(NameOf(layer));
  std::string before = input;
  OrderedJson inserted = OrderedJson::array();
  for (const v1::Augmentation& step : data.augmentation()) {
    std::optional<KerasStep> made = MovingStep(step);
    if (!made.has_value()) made = RecolouringStep(step);
    if (!made.has_value()) made = FurtherStep(step);
    if (!made.has_value()) continue;
    std::string name = KerasSnakeCase(made->type);
    for (int count = 1; !names.insert(name).second; ++count)
      name = absl::StrCat(KerasSnakeCase(made->type), "_", count);
    OrderedJson config = OrderedJson::object();
    config["name"] = name;
    config["trainable"] = true;
    config["dtype"] = "float32";
    config["data_format"] = "channels_last";
    config["seed"] = nullptr;
    for (const auto& [key, value] : made->config.items()) config[key] = value;
    if (made->has_range) config["value_range"] = {0, 255};
    OrderedJson layer = KerasObject("keras.layers", made->type, std::move(config));
    if (functional) {
      OrderedJson tensor = OrderedJson::object();
      tensor["class_name"] = "__keras_tensor__";
      tensor["config"]["shape"] = shape;
      tensor["config"]["dtype"] = "float32";
      tensor["config"]["keras_history"] = {before, 0, 0};
      OrderedJson call = OrderedJson::object();
      call["args"] = OrderedJson::array({std::move(tensor)});
      call["kwargs"] = OrderedJson::object();
      layer["name"] = name;
      layer["inbound_nodes"] = OrderedJson::array({std::move(call)});
    }
    inserted.push_back(std::move(layer));
    before = name;
  }
  if (inserted.empty()) return;
  OrderedJson all = OrderedJson::array({layers[0]});
  for (OrderedJson& layer : inserted) all.push_back(std::move(layer));
  for (size_t i = 1; i < layers.size(); ++i) {
    if (functional && layers[i].contains("inbound_nodes")) Redirect(input, before, &layers[i]["inbound_nodes"]);
    all.push_back(std::move(layers[i]));
  }
  layers = std::move(all);
}

}  // namespace cairn
