// OnnxAttributes: reads one operator's attributes one by one. An attribute that was not read is an option that Cairn
// does not support: Finish() names it. Nothing is ignored silently.
//
// The first error is kept; later reads return the default. Used by one thread. The node must outlive this object.
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
  // Checks that the attribute is missing or has this value; rejects anything else. `otherwise`: what to do instead.
  void Only(const char* name, int64_t value, const char* otherwise);

  // Returns the first error, or an error for an attribute that was not read. Errors: INVALID_ARGUMENT, UNIMPLEMENTED;
  // without the node's name.
  absl::Status Finish() const;

 private:
  const onnx::AttributeProto* Find(const char* name, onnx::AttributeProto::AttributeType type, const char* what);

  const onnx::NodeProto& node_;
  std::set<std::string> read_;
  absl::Status status_;
};

}  // namespace cairn
