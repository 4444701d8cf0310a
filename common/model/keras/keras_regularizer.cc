// KerasConfig::Regularizer: the classes of keras.regularizers.
#include <cmath>
#include <string>

#include "common/model/keras/keras_config.h"

namespace cairn {
namespace {

// Returns false if its config is not one that Keras writes.
bool ReadOrthogonal(const Json& value, v1::Regularizer* out) {
  const Json config = value.contains("config") ? value["config"] : Json::object();
  if (!config.is_object()) return false;
  float factor = 0.01f;  // Keras' default
  for (const auto& [key, argument] : config.items()) {
    if (key == "factor" && argument.is_number()) {
      factor = static_cast<float>(argument.get<double>());
    } else if (key == "mode" && (argument == "rows" || argument == "columns")) {
      out->set_orthogonal_columns(argument == "columns");
    } else {
      return false;
    }
  }
  out->set_orthogonal_factor(factor);
  return factor >= 0 && std::isfinite(factor);
}

}  // namespace

void KerasConfig::Regularizer(const char* key, v1::Regularizer* out) {
  const Json* value = Take(key);
  if (value == nullptr) return;
  const auto wrong = [&] {
    RefuseKey(
        key, *value,
        "is not supported; use L1, L2, L1L2 or OrthogonalRegularizer with finite numbers from 0, or leave it out");
  };
  if (!value->is_object() || !value->contains("class_name") || !(*value)["class_name"].is_string()) return wrong();
  const std::string name = (*value)["class_name"].get<std::string>();
  if (name == "OrthogonalRegularizer" && ReadOrthogonal(*value, out)) return;
  if (name != "L1" && name != "L2" && name != "L1L2") return wrong();
  const Json config = value->contains("config") ? (*value)["config"] : Json::object();
  if (!config.is_object()) return wrong();
  float factors[2] = {name == "L1" ? 0.01f : 0.0f, name == "L2" ? 0.01f : 0.0f};  // Keras' defaults
  for (const auto& [argument, factor] : config.items()) {
    const bool known = (argument == "l1" && name != "L2") || (argument == "l2" && name != "L1");
    if (!known || !factor.is_number()) return wrong();
    float& place = factors[argument == "l1" ? 0 : 1];
    place = static_cast<float>(factor.get<double>());
    if (!(place >= 0 && std::isfinite(place))) return wrong();
  }
  out->set_l1(factors[0]);
  out->set_l2(factors[1]);
}

}  // namespace cairn
