#include "common/formats/keras_config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"

namespace cairn {
namespace {

constexpr int kKerasJsonDepthMax = 64;
constexpr size_t kShownBytesMax = 80;
constexpr int kListMax = 64;  // of numbers in one option

// Keras writes the same activation as text, or as the object of a class or a function.
struct NamedActivation {
  const char* name;
  v1::Activation activation;
};
constexpr NamedActivation kActivations[] = {
    {"linear", v1::LINEAR},         {"relu", v1::RELU}, {"leaky_relu", v1::LEAKY_RELU}, {"sigmoid", v1::SIGMOID},
    {"tanh", v1::TANH},             {"elu", v1::ELU},   {"softmax", v1::SOFTMAX},       {"gelu", v1::GELU},
    {"softplus", v1::SOFTPLUS},     {"silu", v1::SILU}, {"swish", v1::SILU},            {"relu6", v1::RELU6},
};

struct NamedInitializer {
  const char* name;  // the class; its function's name is the same in lower case with '_'
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
};

std::string WithoutUnderscores(absl::string_view text) {
  std::string plain = absl::AsciiStrToLower(text);
  plain.erase(std::remove(plain.begin(), plain.end(), '_'), plain.end());
  return plain;
}

// "relu" out of "relu", {"class_name": "relu"} or {"class_name": "function", "config": "relu"}.
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
  return config[key].is_number() && std::abs(config[key].get<double>() - number) <= 1e-9;
}

// VarianceScaling under its own name, as older models have it.
absl::StatusOr<v1::Initializer::Kind> VarianceScalingKind(const Json& config) {
  const auto text = [&](const char* key) {
    return config.contains(key) && config[key].is_string() ? config[key].get<std::string>() : std::string();
  };
  const std::string mode = text("mode"), distribution = text("distribution");
  const bool uniform = distribution == "uniform";
  const bool normal = distribution == "truncated_normal" || distribution == "normal";
  if (config.contains("scale") && (uniform || normal)) {
    if (mode == "fan_avg" && IsNumber(config, "scale", 1)) {
      return uniform ? v1::Initializer::GLOROT_UNIFORM : v1::Initializer::GLOROT_NORMAL;
    }
    if (mode == "fan_in" && IsNumber(config, "scale", 2)) {
      return uniform ? v1::Initializer::HE_UNIFORM : v1::Initializer::HE_NORMAL;
    }
    if (mode == "fan_in" && IsNumber(config, "scale", 1)) {
      return uniform ? v1::Initializer::LECUN_UNIFORM : v1::Initializer::LECUN_NORMAL;
    }
  }
  return absl::InvalidArgumentError(
      "VarianceScaling with these arguments is not supported; use GlorotUniform, HeNormal or LecunNormal, say");
}

absl::StatusOr<v1::Initializer> ReadInitializer(const Json& value) {
  const std::string name = FunctionName(value);
  const Json none = Json::object();
  const Json& config = value.is_object() && value.contains("config") && value["config"].is_object() ? value["config"] : none;
  v1::Initializer initializer;
  if (name == "VarianceScaling") {
    CAIRN_ASSIGN_OR_RETURN(const v1::Initializer::Kind kind, VarianceScalingKind(config));
    initializer.set_kind(kind);
    return initializer;
  }
  for (const NamedInitializer& known : kInitializers) {
    if (name.empty() || WithoutUnderscores(name) != WithoutUnderscores(known.name)) continue;
    initializer.set_kind(known.kind);
    switch (known.kind) {
      case v1::Initializer::CONSTANT:
        if (config.contains("value") && !config["value"].is_number()) {
          return absl::InvalidArgumentError("Constant takes one number here");
        }
        initializer.set_value(config.value("value", 0.0f));
        break;
      case v1::Initializer::RANDOM_UNIFORM:
        if (!IsNumber(config, "minval", -0.05) || !IsNumber(config, "maxval", 0.05)) {
          return absl::InvalidArgumentError("RandomUniform is supported within -0.05 .. 0.05 alone");
        }
        break;
      case v1::Initializer::RANDOM_NORMAL:
      case v1::Initializer::TRUNCATED_NORMAL:
        if (!IsNumber(config, "mean", 0) || !IsNumber(config, "stddev", 0.05)) {
          return absl::InvalidArgumentError(
              absl::StrCat(known.name, " is supported with mean 0 and stddev 0.05 alone"));
        }
        break;
      default:
        break;
    }
    return initializer;
  }
  return absl::InvalidArgumentError(absl::StrCat(ShownJson(value), " is not supported; use GlorotUniform, say"));
}

// Keras writes a tuple as {"class_name": "__tuple__", "items": [...]}, a shape as a "TensorShape" of that form.
void UnwrapTuples(Json& value) {  // as deep as the parser allows
  if (value.is_object() && value.contains("class_name") && value.contains("items") && value["items"].is_array() &&
      (value["class_name"] == "__tuple__" || value["class_name"] == "TensorShape")) {
    Json items = std::move(value["items"]);
    value = std::move(items);
  }
  if (!value.is_structured()) return;
  for (Json& item : value) UnwrapTuples(item);
}

}  // namespace

absl::StatusOr<Json> ParseBoundedJson(absl::string_view text, size_t bytes_max) {
  if (text.size() > bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("longer than ", bytes_max, " bytes; is this what model.to_json() gave?"));
  }
  bool deep = false;
  const auto on_event = [&](int depth, Json::parse_event_t event, Json&) {
    const bool opens = event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    if (opens && depth >= kKerasJsonDepthMax) deep = true;
    return !deep;
  };
  Json value = Json::parse(text.begin(), text.end(), on_event, /*allow_exceptions=*/false);
  if (deep) {
    return absl::InvalidArgumentError(absl::StrCat("nested more than ", kKerasJsonDepthMax, " deep; is this a Keras model?"));
  }
  if (value.is_discarded()) {
    return absl::InvalidArgumentError("not JSON; give what model.to_json() returned, whole");
  }
  UnwrapTuples(value);
  return value;
}

std::string ShownText(absl::string_view text) {
  if (text.size() <= kShownBytesMax) return absl::CEscape(text);
  return absl::StrCat(absl::CEscape(text.substr(0, kShownBytesMax)), "...");
}

std::string ShownJson(const Json& value) {
  if (value.is_object()) {  // an object of Keras: its class says enough
    const std::string name = FunctionName(value);
    return name.empty() ? "{...}" : ShownText(name);
  }
  const std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  return text.size() <= kShownBytesMax ? text : absl::StrCat(text.substr(0, kShownBytesMax), "...");
}

KerasConfig::KerasConfig(const Json& config, std::string layer, std::string type)
    : config_(config), layer_(std::move(layer)), type_(std::move(type)) {
  if (!config_.is_object()) Refuse("its config is not an object");
}

void KerasConfig::Refuse(absl::string_view what) {
  if (!status_.ok()) return;
  status_ = absl::InvalidArgumentError(
      absl::StrCat("layer \"", ShownText(layer_), "\" (", ShownText(type_), "): ", what));
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
  const bool whole = value->is_number_integer() || (value->is_number_float() && std::trunc(value->get<double>()) == value->get<double>());
  if (!whole || std::abs(value->get<double>()) > std::numeric_limits<int32_t>::max()) {
    return RefuseKey(key, *value, "is no whole number within 32 bits");
  }
  *out = static_cast<int32_t>(value->get<double>());
}

void KerasConfig::Float(const char* key, float* out) {
  const Json* value = Take(key);
  if (value == nullptr) return;
  if (!value->is_number()) return RefuseKey(key, *value, "is no number");
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
  if (!value->is_string()) return RefuseKey(key, *value, "is no text");
  *out = value->get<std::string>();
}

void KerasConfig::Ints(const char* key, Int32Field* out) {
  const Json* value = Take(key);
  if (value == nullptr) return;
  const Json list = value->is_array() ? *value : Json::array({*value});
  if (list.size() > kListMax) return RefuseKey(key, *value, "has too many numbers");
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
  const std::string name = FunctionName(*value);
  const std::string plain = WithoutUnderscores(name);
  for (const NamedActivation& known : kActivations) {
    if (plain != WithoutUnderscores(known.name)) continue;
    const Json* config = value->is_object() && value->contains("config") && (*value)["config"].is_object() ? &(*value)["config"] : nullptr;
    if (config != nullptr && known.activation == v1::RELU && !IsNumber(*config, "max_value", 6)) break;
    *out = config != nullptr && known.activation == v1::RELU && config->contains("max_value") && (*config)["max_value"].is_number()
               ? v1::RELU6
               : known.activation;
    return;
  }
  RefuseKey(key, *value,
            "is not supported; use linear, relu, relu6, leaky_relu, sigmoid, tanh, softmax, elu, gelu, silu or softplus");
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
  RefuseKey(key, *value, absl::StrCat("is not supported; leave it at its default, ",
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
    if (absl::EndsWith(key, "_regularizer")) {
      Refuse(absl::StrCat(shown, ": ", ShownJson(value),
                          " is not supported; leave it away, or use the job's optimizer.weight_decay"));
    } else {
      Refuse(absl::StrCat(shown, ": ", ShownJson(value), " is not supported; leave it away"));
    }
    return status_;
  }
  return absl::OkStatus();
}

}  // namespace cairn
