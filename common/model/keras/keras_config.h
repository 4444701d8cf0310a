// KerasConfig: reads the `config` of one Keras layer key by key. A key that was not read, is not null and is not known
// to have no effect here is an option that Cairn does not support: Finish() names it. No part of a model is ignored
// silently.
//
// The first error is kept; later reads do nothing. Used by one thread. The JSON must outlive this object.
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

// Parses JSON text of at most `bytes_max` bytes and kKerasJsonDepthMax levels. Errors: INVALID_ARGUMENT, without the
// source's name.
absl::StatusOr<Json> ParseBoundedJson(absl::string_view text, size_t bytes_max);

std::string ShownJson(const Json& value);       // a value as errors show it: short and printable
std::string ShownText(absl::string_view text);  // a name that was not checked

// Keras' names, or null if it has none: "leaky_relu", "HeNormal".
const char* KerasActivationName(v1::Activation activation);
const char* KerasInitializerClass(v1::Initializer::Kind kind);

class KerasConfig {
 public:
  // `layer` and `type` appear in errors: `layer "conv2d" (Conv2D): ...`.
  KerasConfig(const Json& config, std::string layer, std::string type);

  // Each leaves *out unchanged if the key is missing or null. Numbers are checked for their range.
  void Int(const char* key, int32_t* out);
  void Float(const char* key, float* out);
  void Bool(const char* key, bool* out);
  void Text(const char* key, std::string* out);
  void Ints(const char* key, Int32Field* out);  // one number or a list
  void Activation(const char* key, v1::Activation* out);
  void Initializer(const char* key, v1::Initializer* out);
  // Accepts L1, L2, L1L2 and OrthogonalRegularizer. Leaves *out unchanged for null or if all factors are zero, which
  // has no effect.
  void Regularizer(const char* key, v1::Regularizer* out);
  void Padding(v1::Padding* out);  // "valid" or "same"
  void Axis(const char* key);      // -1, or one axis counted from 0, batch included: see axis()

  // Checks that the key is missing, null, or has this value; rejects anything else. `otherwise`: what to do instead.
  void Only(const char* key, const Json& value, const char* otherwise);
  void InitializerOnly(const char* key, v1::Initializer::Kind kind);
  void Ignore(const char* key) { read_.insert(key); }

  bool Has(const char* key) const;      // whether the key exists and is not null
  const Json* Take(const char* key);    // marks the key as read; nullptr if it is missing or null
  void Refuse(absl::string_view what);  // `layer "x" (Type): what`
  int axis() const { return axis_; }    // that of Axis(); -1: the last one

  bool ok() const { return status_.ok(); }
  // Returns the first error, or an error for a key that was not read.
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
