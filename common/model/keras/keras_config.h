// KerasConfig: the `config` of one Keras layer, read key by key. What is not read, and is not null or known to mean
// nothing here, is an option that Cairn does not have: Finish() names it. Nothing of a model is ignored in silence.
//
// The first error is kept; later reads do nothing. Used by one thread; the JSON outlives it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "cairn/v1/model.pb.h"
#include "common/base/status.h"

namespace cairn {

using Json = nlohmann::json;
using Int32Field = google::protobuf::RepeatedField<int32_t>;

// JSON text of at most `bytes_max` bytes and kKerasJsonDepthMax levels. Errors: INVALID_ARGUMENT, without the source's
// name.
absl::StatusOr<Json> ParseBoundedJson(absl::string_view text, size_t bytes_max);

std::string ShownJson(const Json& value);       // a value as an error may show it: short, printable
std::string ShownText(absl::string_view text);  // a name that was not checked

// Keras' names, null where it has none: "leaky_relu", "HeNormal".
const char* KerasActivationName(v1::Activation activation);
const char* KerasInitializerClass(v1::Initializer::Kind kind);

class KerasConfig {
 public:
  // `layer` and `type` stand in the errors: `layer "conv2d" (Conv2D): ...`.
  KerasConfig(const Json& config, std::string layer, std::string type);

  // Each leaves *out alone where the key is missing or null. Numbers are checked for their range.
  void Int(const char* key, int32_t* out);
  void Float(const char* key, float* out);
  void Bool(const char* key, bool* out);
  void Text(const char* key, std::string* out);
  void Ints(const char* key, Int32Field* out);  // one number or a list
  void Activation(const char* key, v1::Activation* out);
  void Initializer(const char* key, v1::Initializer* out);
  // L1, L2, L1L2, OrthogonalRegularizer; null or all zero: the field is left alone, as it does nothing.
  void Regularizer(const char* key, v1::Regularizer* out);
  void Padding(v1::Padding* out);  // "valid" or "same"
  void Axis(const char* key);      // -1, or one number from 0, batch included: see axis()

  // The key is missing, null, or has this value; anything else is refused as an option. `otherwise`: what to do.
  void Only(const char* key, const Json& value, const char* otherwise);
  void InitializerOnly(const char* key, v1::Initializer::Kind kind);
  void Ignore(const char* key) { read_.insert(key); }

  bool Has(const char* key) const;      // and is not null
  const Json* Take(const char* key);    // marks it read; nullptr where it is missing or null
  void Refuse(absl::string_view what);  // `layer "x" (Type): what`
  int axis() const { return axis_; }    // of Axis(); -1: the last one

  bool ok() const { return status_.ok(); }
  // The first error, or of a key that nobody read.
  absl::Status Finish();

 private:
  void RefuseKey(const char* key, const Json& value, absl::string_view what_to_do);

  const Json& config_;
  const std::string layer_, type_;
  std::set<std::string> read_;
  absl::Status status_;
  int axis_ = -1;
};

}  // namespace cairn
