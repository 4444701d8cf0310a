#include "common/formats/text_hints.h"

#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/formats/keras_spelling.h"
#include "common/model/nearest.h"

namespace cairn {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;

// The texts inside the first, the second, ... pair of quotes.
std::vector<std::string> Quoted(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '"');
  std::vector<std::string> quoted;
  for (size_t i = 1; i + 1 < parts.size(); i += 2) quoted.push_back(parts[i]);
  return quoted;
}

void AddEnums(const Descriptor* type, const std::string& field, std::set<const Descriptor*>* seen,
              std::set<const EnumDescriptor*>* enums) {
  if (!seen->insert(type).second) return;
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* f = type->field(i);
    if (f->name() == field && f->enum_type() != nullptr) enums->insert(f->enum_type());
    if (f->message_type() != nullptr) AddEnums(f->message_type(), field, seen, enums);
  }
}

std::string FieldHint(const Descriptor* type, const std::string& name) {
  std::vector<std::string> names;
  for (int i = 0; type != nullptr && i < type->field_count(); ++i) names.push_back(type->field(i)->name());
  if (names.empty()) return "";
  const std::string nearest = Nearest(name, names);
  if (!nearest.empty()) return absl::StrCat("; did you mean \"", nearest, "\"?");
  return absl::StrCat("; it has ", absl::StrJoin(names, ", "));
}

std::string ValueHint(const Descriptor* root, const std::string& field, const std::string& name) {
  std::set<const Descriptor*> seen;
  std::set<const EnumDescriptor*> enums;
  AddEnums(root, field, &seen, &enums);
  std::vector<std::string> names;
  for (const EnumDescriptor* type : enums) {
    for (int i = 0; i < type->value_count(); ++i) {
      if (type->value(i)->number() != 0) names.push_back(type->value(i)->name());
    }
  }
  if (enums.size() == 1) return absl::StrCat("; use one of ", absl::StrJoin(names, ", "));
  for (const EnumDescriptor* type : enums) {  // Keras' name for it
    if (const EnumValueDescriptor* value = FindEnumValue(type, name))
      return absl::StrCat("; did you mean ", value->name(), "?");
  }
  const std::string nearest = Nearest(name, names);
  return nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?");
}

}  // namespace

std::string WithHint(const std::string& error, const Descriptor* root) {
  const std::vector<std::string> quoted = Quoted(error);
  const std::string plain(absl::StripSuffix(error, "."));
  if (absl::StrContains(error, "has no field named") && quoted.size() == 2) {
    return absl::StrCat(plain,
                        FieldHint(DescriptorPool::generated_pool()->FindMessageTypeByName(quoted[0]), quoted[1]));
  }
  if (absl::StartsWith(error, "Unknown enumeration value") && quoted.size() == 2) {
    return absl::StrCat(plain, ValueHint(root, quoted[1], quoted[0]));
  }
  if (absl::StartsWith(error, "Expected string, got")) return absl::StrCat(plain, "; put it in quotes");
  return error;
}

}  // namespace cairn
