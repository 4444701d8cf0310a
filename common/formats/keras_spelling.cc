#include "common/formats/keras_spelling.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"

namespace cairn {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::OneofDescriptor;

// Keeps only letters and digits, in lower case.
std::string Squash(absl::string_view name) {
  std::string squashed;
  for (const char c : name) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c))) squashed.push_back(absl::ascii_tolower(c));
  }
  return squashed;
}

// Keras' other names of losses and metrics.
constexpr std::pair<const char*, const char*> kShortNames[] = {
    {"acc", "accuracy"},
    {"bce", "binarycrossentropy"},
    {"mse", "meansquarederror"},
    {"mae", "meanabsoluteerror"},
    {"mape", "meanabsolutepercentageerror"},
    {"msle", "meansquaredlogarithmicerror"},
    {"rmse", "rootmeansquarederror"},
    {"kld", "kldivergence"},
    {"kullbackleiblerdivergence", "kldivergence"},
    {"logcosh", "logcosherror"},
    {"topkcategoricalaccuracy", "topkaccuracy"},
    {"sparsetopkcategoricalaccuracy", "topkaccuracy"},
};

const EnumValueDescriptor* FindSquashed(const EnumDescriptor* type, const std::string& name) {
  for (int i = 0; i < type->value_count(); ++i) {
    if (Squash(type->value(i)->name()) == name) return type->value(i);
  }
  return nullptr;
}

const FieldDescriptor* EnumKind(const Descriptor* type) {
  const FieldDescriptor* kind = type->FindFieldByName("kind");
  return kind != nullptr && kind->enum_type() != nullptr && !kind->is_repeated() ? kind : nullptr;
}

}  // namespace

const EnumValueDescriptor* FindEnumValue(const EnumDescriptor* type, const std::string& name) {
  const std::string squashed = Squash(name);
  if (squashed.empty()) return nullptr;
  if (const EnumValueDescriptor* value = FindSquashed(type, squashed)) return value;
  for (const auto& [short_name, whole] : kShortNames) {
    if (squashed != short_name) continue;
    if (const EnumValueDescriptor* value = FindSquashed(type, whole)) return value;
  }
  const absl::string_view base = absl::StripSuffix(squashed, "strategy");
  return base.size() == squashed.size() || base.empty() ? nullptr : FindSquashed(type, std::string(base));
}

bool ToldByName(const Descriptor* type) {
  return EnumKind(type) != nullptr || type->FindOneofByName("kind") != nullptr;
}

KindOfMessage FindKind(const Descriptor* type, const std::string& name) {
  KindOfMessage kind;
  if (const FieldDescriptor* field = EnumKind(type)) {
    kind.value = FindEnumValue(field->enum_type(), name);
    if (kind.value != nullptr) kind.field = field;
    return kind;
  }
  const OneofDescriptor* oneof = type->FindOneofByName("kind");
  for (int i = 0; oneof != nullptr && i < oneof->field_count(); ++i) {
    if (Squash(oneof->field(i)->name()) == Squash(name)) kind.field = oneof->field(i);
  }
  return kind;
}

}  // namespace cairn
