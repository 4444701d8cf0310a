#include "common/model/keras/keras_config.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "common/model/keras/keras_activation_names.h"
#include "common/model/keras/keras_values.h"
#include "common/model/limits.h"

namespace cairn {
namespace {

struct NamedInitializer {
  const char* name;  // the class; its function has the same name in snake case
  v1::Initializer::Kind kind;
};
constexpr NamedInitializer kInitializers[] = {
    {"Zeros", v1::Initializer::ZEROS},
    {"Ones", v1::Initializer::ONES},
    {"Constant", v1::Initializer::CONSTANT},
    {"GlorotUniform", v1::Initializer::GLOROT_UNIFORM},
    {"GlorotNormal", v1::Initializer::GLOROT_NORMAL},
    {"HeUniform", v1::Initializer::HE_UNIFORM},
    {"HeNormal", v1::Initializer::HE_NORMAL},
    {"LecunUniform", v1::Initializer::LECUN_UNIFORM},
    {"LecunNormal", v1::Initializer::LECUN_NORMAL},
    {"RandomUniform", v1::Initializer::RANDOM_UNIFORM},
    {"RandomNormal", v1::Initializer::RANDOM_NORMAL},
    {"TruncatedNormal", v1::Initializer::TRUNCATED_NORMAL},
    {"VarianceScaling", v1::Initializer::VARIANCE_SCALING},
    {"Orthogonal", v1::Initializer::ORTHOGONAL},
    {"OrthogonalInitializer", v1::Initializer::ORTHOGONAL},
    {"Identity", v1::Initializer::IDENTITY},
    {"IdentityInitializer", v1::Initializer::IDENTITY},
};

std::string WithoutUnderscores(absl::string_view text) {
  std::string plain = absl::AsciiStrToLower(text);
  plain.erase(std::remove(plain.begin(), plain.end(), '_'), plain.end());
  return plain;
}

// Extracts "relu" from "relu", {"class_name": "relu"} or {"class_name": "function", "config": "relu"}.
std::string FunctionName(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_object() || !value.contains("class_name") || !value["class_name"].is_string()) return "";
  const std::string name = value["class_name"].get<std::string>();
  if (name == "function" && value.contains("config") && value["config"].is_string()) {
    return value["config"].get<std::string>();
  }
  return name;
}

bool IsNumber(const Json& config, const char* key, double number) {
  if (!config.contains(key) || config[key].is_null()) return true;
  return config[key].is_number() && std::abs(config[key].get<double>() - number) <= 1e-6;
}

// The activation that is an object of Keras, a layer or an operation with this config: keras.layers.ReLU(6),
// keras.ops.nn.Gelu(). nullopt: its arguments are not those of the activation.
std::optional<v1::Activation> WithArguments(v1::Activation activation, const Json& config) {
  const auto given = [&](const char* key) { return config.contains(key) && !config[key].is_null(); };
  const auto fits = [](bool yes, v1::Activation as) { return yes ? std::optional(as) : std::nullopt; };
  switch (activation) {
    case v1::RELU:
      return fits(
          IsNumber(config, "max_value", 6) && IsNumber(config, "negative_slope", 0) && IsNumber(config, "threshold", 0),
          given("max_value") ? v1::RELU6 : v1::RELU);
    case v1::LEAKY_RELU: {  // the layer's default is 0.3
      const char* const key = given("negative_slope") ? "negative_slope" : "alpha";
      return fits(given(key) && IsNumber(config, key, 0.2), activation);
    }
    case v1::ELU:
    case v1::CELU: return fits(IsNumber(config, "alpha", 1), activation);
    case v1::GELU: return given("approximate") && config["approximate"] == false ? v1::GELU : v1::GELU_TANH;
    case v1::SOFTMAX:
    case v1::LOG_SOFTMAX:
    case v1::SPARSEMAX:
    case v1::GLU:
      return fits(!given("axis") || config["axis"] == -1 || config["axis"] == Json::array({-1}), activation);
    case v1::SOFT_SHRINK:
    case v1::HARD_SHRINK: return fits(IsNumber(config, "threshold", 0.5), activation);
    case v1::SQUAREPLUS: return fits(IsNumber(config, "b", 4), activation);
    default: return activation;
  }
}

// The arguments of an initializer's config; a missing one has its field's default.
class Arguments {
 public:
  explicit Arguments(const Json& config) : config_(config) {}

  // Rejects a value that is not a number, or not a finite float32.
  template <typename Set>
  void Number(const char* key, Set set) {
    if (!config_.contains(key) || config_[key].is_null()) return;
    const float value = config_[key].is_number() ? config_[key].get<float>() : std::numeric_limits<float>::quiet_NaN();
    if (!std::isfinite(value)) return Refuse(key, "is not a number");
    set(value);
  }
  // Reads one of the names; `fallback` if it is missing.
  template <typename Enum>
  Enum OneOf(const char* key, Enum fallback, std::initializer_list<std::pair<const char*, Enum>> names) {
    if (!config_.contains(key) || config_[key].is_null()) return fallback;
    for (const auto& [name, value] : names) {
      if (config_[key].is_string() && absl::AsciiStrToLower(config_[key].get<std::string>()) == name) return value;
    }
    Refuse(key, "is not known");
    return fallback;
  }
  const absl::Status& status() const { return status_; }

 private:
  void Refuse(const char* key, const char* what) {
    status_.Update(absl::InvalidArgumentError(absl::StrCat(key, " ", ShownJson(config_[key]), " ", what)));
  }

  const Json& config_;
  absl::Status status_;
};

absl::Status ReadArguments(const Json& config, v1::Initializer* i) {
  Arguments arguments(config);
  switch (i->kind()) {
    case v1::Initializer::CONSTANT: arguments.Number("value", [i](float value) { i->set_value(value); }); break;
    case v1::Initializer::RANDOM_UNIFORM:
      arguments.Number("minval", [i](float value) { i->set_minval(value); });
      arguments.Number("maxval", [i](float value) { i->set_maxval(value); });
      break;
    case v1::Initializer::RANDOM_NORMAL:
    case v1::Initializer::TRUNCATED_NORMAL:
      arguments.Number("mean", [i](float value) { i->set_mean(value); });
      arguments.Number("stddev", [i](float value) { i->set_stddev(value); });
      break;
    case v1::Initializer::ORTHOGONAL:
    case v1::Initializer::IDENTITY: arguments.Number("gain", [i](float value) { i->set_gain(value); }); break;
    case v1::Initializer::VARIANCE_SCALING:
      arguments.Number("scale", [i](float value) { i->set_scale(value); });
      i->set_mode(arguments.OneOf("mode", v1::Initializer::FAN_IN,
                                  {{"fan_in", v1::Initializer::FAN_IN},
                                   {"fan_out", v1::Initializer::FAN_OUT},
                                   {"fan_avg", v1::Initializer::FAN_AVG}}));
      i->set_distribution(arguments.OneOf("distribution", v1::Initializer::DISTRIBUTION_TRUNCATED_NORMAL,
                                          {{"truncated_normal", v1::Initializer::DISTRIBUTION_TRUNCATED_NORMAL},
                                           {"normal", v1::Initializer::DISTRIBUTION_TRUNCATED_NORMAL},
                                           {"untruncated_normal", v1::Initializer::DISTRIBUTION_UNTRUNCATED_NORMAL},
                                           {"uniform", v1::Initializer::DISTRIBUTION_UNIFORM}}));
      break;
    default: break;
  }
  return arguments.status();
}

absl::StatusOr<v1::Initializer> ReadInitializer(const Json& value) {
  const std::string name = FunctionName(value);
  const Json none = Json::object();
  const Json& config =
      value.is_object() && value.contains("config") && value["config"].is_object() ? value["config"] : none;
  for (const NamedInitializer& known : kInitializers) {
    if (name.empty() || WithoutUnderscores(name) != WithoutUnderscores(known.name)) continue;
    v1::Initializer initializer;
    initializer.set_kind(known.kind);
    if (const absl::Status status = ReadArguments(config, &initializer); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(known.name, ": ", status.message()));
    }
    return initializer;
  }
  return absl::InvalidArgumentError(absl::StrCat(ShownJson(value), " is not supported; use GlorotUniform, say"));
}

// Keras writes a tuple as {"class_name": "__tuple__", "items": [...]}, a shape as a "TensorShape" of that form.
void UnwrapTuples(Json& value) {  // recursion is bounded by the parser
  if (value.is_object() && value.contains("class_name") && value.contains("items") && value["items"].is_array() &&
      (value["class_name"] == "__tuple__" || value["class_name"] == "TensorShape")) {
    Json items = std::move(value["items"]);
    value = std::move(items);
  }
  if (!value.is_structured()) return;
  for (Json& item : value) UnwrapTuples(item);
}

}  // namespace

const char* KerasActivationName(v1::Activation activation) {
  for (const NamedActivation& known : kActivations) {
    if (known.activation == activation) return known.name;
  }
  return nullptr;
}

const char* KerasInitializerClass(v1::Initializer::Kind kind) {
  for (const NamedInitializer& known : kInitializers) {
    if (known.kind == kind) return known.name;
  }
  return nullptr;
}

absl::StatusOr<Json> ParseBoundedJson(absl::string_view text, size_t bytes_max) {
  if (text.size() > bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("longer than ", bytes_max, " bytes; is this what model.to_json() returned?"));
  }
  bool deep = false;
  const auto on_event = [&](int depth, Json::parse_event_t event, Json&) {
    const bool opens = event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    if (opens && depth >= kKerasJsonDepthMax) deep = true;
    return !deep;
  };
  Json value = Json::parse(text.begin(), text.end(), on_event, /*allow_exceptions=*/false);
  if (deep) {
    return absl::InvalidArgumentError(
        absl::StrCat("nested more than ", kKerasJsonDepthMax, " deep; is this a Keras model?"));
  }
  if (value.is_discarded()) {
    return absl::InvalidArgumentError("not JSON; give what model.to_json() returned, whole");
  }
  UnwrapTuples(value);
  return value;
}

std::string ShownText(absl::string_view text) {
  if (text.size() <= kKerasShownBytesMax) return absl::CEscape(text);
  return absl::StrCat(absl::CEscape(text.substr(0, kKerasShownBytesMax)), "...");
}

std::string ShownJson(const Json& value) {
  if (value.is_object()) {  // a Keras object: the class identifies it
    const std::string name = FunctionName(value);
    return name.empty() ? "{...}" : ShownText(name);
  }
  const std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  return text.size() <= kKerasShownBytesMax ? text : absl::StrCat(text.substr(0, kKerasShownBytesMax), "...");
}

KerasConfig::KerasConfig(const Json& config, std::string layer, std::string type)
    : config_(config), layer_(std::move(layer)), type_(std::move(type)) {
  if (!config_.is_object()) Refuse("its config is not an object");
}

void KerasConfig::Refuse(absl::string_view what) {
  if (!status_.ok()) return;
  status_ =
      absl::InvalidArgumentError(absl::StrCat("layer \"", ShownText(layer_), "\" (", ShownText(type_), "): ", what));
}

void KerasConfig::RefuseKey(const char* key, const Json& value, absl::string_view what_to_do) {
  Refuse(absl::StrCat(key, ": ", ShownJson(value), " ", what_to_do));
}

bool KerasConfig::Has(const char* key) const {
  return config_.is_object() && config_.contains(key) && !config_[key].is_null();
}

const Json* KerasConfig::Take(const char* key) {
  read_.insert(key);
  return ok() && Has(key) ? &config_[key] : nullptr;
}

void KerasConfig::Int(const char* key, int32_t* out) {
  const Json* value = Take(key);
  if (value == nullptr) return;
  const bool whole = value->is_number_integer() ||
                     (value->is_number_float() && std::trunc(value->get<double>()) == value->get<double>());
  if (!whole || std::abs(value->get<double>()) > std::numeric_limits<int32_t>::max()) {
    return RefuseKey(key, *value, "is not a whole number within 32 bits");
  }
  *out = static_cast<int32_t>(value->get<double>());
}

void KerasConfig::Float(const char* key, float* out) {
  const Json* value = Take(key);
  if (value == nullptr) return;
  if (!value->is_number()) return RefuseKey(key, *value, "is not a number");
  *out = static_cast<float>(value->get<double>());
}

void KerasConfig::Bool(const char* key, bool* out) {
  const Json* value = Take(key);
  if (value == nullptr) return;
  if (!value->is_boolean()) return RefuseKey(key, *value, "is neither true nor false");
  *out = value->get<bool>();
}

void KerasConfig::Text(const char* key, std::string* out) {
  const Json* value = Take(key);
  if (value == nullptr) return;
  if (!value->is_string()) return RefuseKey(key, *value, "is not text");
  *out = value->get<std::string>();
}

void KerasConfig::Ints(const char* key, Int32Field* out) {
  const Json* value = Take(key);
  if (value == nullptr) return;
  const Json list = value->is_array() ? *value : Json::array({*value});
  if (list.size() > kKerasListMax) return RefuseKey(key, *value, "has too many numbers");
  out->Clear();
  for (const Json& item : list) {
    if (!item.is_number_integer() || std::abs(item.get<double>()) > std::numeric_limits<int32_t>::max()) {
      return RefuseKey(key, *value, "is neither a whole number nor a list of them");
    }
    out->Add(item.get<int32_t>());
  }
}

void KerasConfig::Activation(const char* key, v1::Activation* out) {
  const Json* value = Take(key);
  if (value == nullptr) return;
  if (FunctionName(*value) == kOldHardSigmoid) {
    *out = v1::HARD_SIGMOID_KERAS2;
    return;
  }
  const std::string name = FunctionName(*value);
  const std::string plain = WithoutUnderscores(name);
  for (const NamedActivation& known : kActivations) {
    if (plain != WithoutUnderscores(known.name)) continue;
    const bool object = value->is_object() && value->contains("config") && (*value)["config"].is_object();
    const std::optional<v1::Activation> found =
        object ? WithArguments(known.activation, (*value)["config"]) : known.activation;
    if (!found.has_value()) {
      return RefuseKey(key, *value, "has arguments that only a layer of its own has; put that layer after this one");
    }
    *out = *found;
    return;
  }
  RefuseKey(key, *value,
            "is not supported; use linear, relu, relu6, leaky_relu, sigmoid, tanh, softmax, elu, gelu, silu or "
            "softplus, say");
}

void KerasConfig::Initializer(const char* key, v1::Initializer* out) {
  const Json* value = Take(key);
  if (value == nullptr) return;
  absl::StatusOr<v1::Initializer> initializer = ReadInitializer(*value);
  if (!initializer.ok()) return Refuse(absl::StrCat(key, ": ", initializer.status().message()));
  *out = *initializer;
}

void KerasConfig::InitializerOnly(const char* key, v1::Initializer::Kind kind) {
  const Json* value = Take(key);
  if (value == nullptr) return;
  const absl::StatusOr<v1::Initializer> initializer = ReadInitializer(*value);
  if (initializer.ok() && initializer->kind() == kind) return;
  RefuseKey(key, *value,
            absl::StrCat("is not supported; leave it at its default, ",
                         absl::AsciiStrToLower(v1::Initializer::Kind_Name(kind))));
}

void KerasConfig::Padding(v1::Padding* out) {
  std::string text;
  Text("padding", &text);
  const std::string plain = absl::AsciiStrToLower(text);
  if (plain == "same") *out = v1::SAME;
  if (plain == "valid") *out = v1::VALID;
  if (ok() && !plain.empty() && plain != "same" && plain != "valid") {
    Refuse(absl::StrCat("padding: \"", ShownText(text), "\" is not supported; use valid or same"));
  }
}

void KerasConfig::Axis(const char* key) {
  const Json* value = Take(key);
  if (value == nullptr) return;
  const Json& one = value->is_array() && value->size() == 1 ? (*value)[0] : *value;
  if (!one.is_number_integer() || one.get<double>() < -1 || one.get<double>() > 8 || one == 0) {
    return RefuseKey(key, *value, "is not supported; only the last axis is, -1");
  }
  axis_ = one.get<int>();
}

void KerasConfig::Only(const char* key, const Json& value, const char* otherwise) {
  const Json* found = Take(key);
  if (found == nullptr || *found == value) return;
  RefuseKey(key, *found, absl::StrCat("is not supported; ", otherwise));
}

absl::Status KerasConfig::Finish() {
  if (!ok()) return status_;
  for (const auto& [key, value] : config_.items()) {
    if (read_.contains(key) || value.is_null()) continue;
    const std::string shown = ShownText(key);
    const bool of_outputs = key == "activity_regularizer";
    Refuse(absl::StrCat(shown, ": ", ShownJson(value), " is not supported; leave it out",
                        of_outputs ? ", or regularize the kernel" : ""));
    return status_;
  }
  return absl::OkStatus();
}

}  // namespace cairn
