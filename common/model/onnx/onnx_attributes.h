// OnnxAttributes: one operator's attributes, read one by one. What nobody read is an option that Cairn does not have:
// Finish() names it. Nothing is ignored in silence.
//
// The first error is kept; later reads give the default. One thread; the node outlives it.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/status.h"
#include "onnx/onnx.pb.h"

namespace cairn {

class OnnxAttributes {
 public:
  explicit OnnxAttributes(const onnx::NodeProto& node) : node_(node) {}

  bool Has(const char* name) const;
  int64_t Int(const char* name, int64_t otherwise);
  float Float(const char* name, float otherwise);
  std::string Text(const char* name, const std::string& otherwise);
  std::vector<int64_t> Ints(const char* name);  // none: empty
  std::vector<float> Floats(const char* name);  // none: empty
  void Ignore(const char* name) { read_.insert(name); }
  // The attribute is missing or has this value; anything else is refused. `otherwise`: what to do.
  void Only(const char* name, int64_t value, const char* otherwise);

  // The first error, or of an attribute that nobody read. Errors: INVALID_ARGUMENT, UNIMPLEMENTED; without the node's
  // name.
  absl::Status Finish() const;

 private:
  const onnx::AttributeProto* Find(const char* name, onnx::AttributeProto::AttributeType type, const char* what);

  const onnx::NodeProto& node_;
  std::set<std::string> read_;
  absl::Status status_;
};

}  // namespace cairn
