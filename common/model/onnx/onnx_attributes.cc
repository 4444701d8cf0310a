#include "common/model/onnx/onnx_attributes.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace cairn {

bool OnnxAttributes::Has(const char* name) const {
  for (const onnx::AttributeProto& attribute : node_.attribute()) {
    if (attribute.name() == name) return true;
  }
  return false;
}

const onnx::AttributeProto* OnnxAttributes::Find(const char* name, onnx::AttributeProto::AttributeType type,
                                                 const char* what) {
  read_.insert(name);
  for (const onnx::AttributeProto& attribute : node_.attribute()) {
    if (attribute.name() != name) continue;
    if (attribute.type() == type) return &attribute;
    status_.Update(absl::InvalidArgumentError(absl::StrCat("attribute \"", name, "\" is not ", what)));
  }
  return nullptr;
}

int64_t OnnxAttributes::Int(const char* name, int64_t otherwise) {
  const onnx::AttributeProto* found = Find(name, onnx::AttributeProto::INT, "a whole number");
  return found == nullptr ? otherwise : found->i();
}

float OnnxAttributes::Float(const char* name, float otherwise) {
  const onnx::AttributeProto* found = Find(name, onnx::AttributeProto::FLOAT, "a number");
  return found == nullptr ? otherwise : found->f();
}

std::string OnnxAttributes::Text(const char* name, const std::string& otherwise) {
  const onnx::AttributeProto* found = Find(name, onnx::AttributeProto::STRING, "a text");
  return found == nullptr ? otherwise : found->s();
}

std::vector<int64_t> OnnxAttributes::Ints(const char* name) {
  const onnx::AttributeProto* found = Find(name, onnx::AttributeProto::INTS, "a list of whole numbers");
  return found == nullptr ? std::vector<int64_t>() : std::vector<int64_t>(found->ints().begin(), found->ints().end());
}

std::vector<float> OnnxAttributes::Floats(const char* name) {
  const onnx::AttributeProto* found = Find(name, onnx::AttributeProto::FLOATS, "a list of numbers");
  return found == nullptr ? std::vector<float>() : std::vector<float>(found->floats().begin(), found->floats().end());
}

void OnnxAttributes::Only(const char* name, int64_t value, const char* otherwise) {
  const int64_t given = Int(name, value);
  if (given != value)
    status_.Update(absl::UnimplementedError(absl::StrCat("attribute \"", name, "\" is ", given, "; ", otherwise)));
}

absl::Status OnnxAttributes::Finish() const {
  if (!status_.ok()) return status_;
  for (const onnx::AttributeProto& attribute : node_.attribute()) {
    if (read_.contains(attribute.name())) continue;
    return absl::UnimplementedError(absl::StrCat("attribute \"", absl::CEscape(attribute.name().substr(0, 128)),
                                                 "\" is not supported; export the model without it"));
  }
  return absl::OkStatus();
}

}  // namespace cairn
