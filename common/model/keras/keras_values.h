// Values of Keras' configs that few layers have: seeds, and the activation that differs between the two dialects.
//
// Free functions; any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/model/keras/keras_config.h"

namespace cairn {

// Keras 2's hard_sigmoid, which differs from Keras 3's, under the name that keras_dialect.h gives it.
inline constexpr char kOldHardSigmoid[] = "hard_sigmoid of Keras 2";

namespace keras {

// "seed": a number, or the object of a SeedGenerator; nullopt: none.
inline std::optional<uint64_t> Seed(KerasConfig& c) {
  const Json* value = c.Take("seed");
  if (value == nullptr) return std::nullopt;
  const Json* number = value;
  if (value->is_object() && value->contains("config") && (*value)["config"].is_object()) {
    number = (*value)["config"].contains("seed") ? &(*value)["config"]["seed"] : nullptr;
    if (number == nullptr || number->is_null()) return std::nullopt;
  }
  if (!number->is_number_integer() || (!number->is_number_unsigned() && number->get<int64_t>() < 0)) {
    c.Refuse(absl::StrCat("seed: ", ShownJson(*value), " is not a whole number from 0"));
    return std::nullopt;
  }
  return number->get<uint64_t>();
}

}  // namespace keras
}  // namespace cairn
