#include "client/cli/set_field.h"

#include <google/protobuf/descriptor.h>

#include <limits>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/limits.h"
#include "common/base/text.h"
#include "common/formats/job_text.h"
#include "common/formats/keras_spelling.h"
#include "common/model/nearest.h"

namespace cairn {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int kAppend = -2;
constexpr int kNoIndex = -1;

struct Step {
  std::string field;
  int index = kNoIndex;
};

// ---- the path ----

absl::StatusOr<Step> ParseStep(const std::string& text) {
  Step step;
  const size_t bracket = text.find('[');
  step.field = text.substr(0, bracket);
  if (step.field.empty()) return absl::InvalidArgumentError("a field's name is missing");
  if (bracket == std::string::npos) return step;
  if (text.back() != ']') return absl::InvalidArgumentError(absl::StrFormat("\"%s\" lacks its closing bracket", text));
  const std::string inside = text.substr(bracket + 1, text.size() - bracket - 2);
  if (inside == "..") {
    step.index = kAppend;
  } else if (!absl::SimpleAtoi(inside, &step.index) || step.index < 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("\"[%s]\" is not an index; write [0] for the first element or [..] to append one", inside));
  }
  return step;
}

absl::StatusOr<std::vector<Step>> ParsePath(const std::string& path) {
  // The dots of "[..]" are not separators.
  const std::string plain = absl::StrReplaceAll(path, {{"[..]", "[+]"}});
  std::vector<Step> steps;
  for (const auto& part : absl::StrSplit(plain, '.')) {
    CAIRN_ASSIGN_OR_RETURN(Step step, ParseStep(absl::StrReplaceAll(part, {{"[+]", "[..]"}})));
    steps.push_back(std::move(step));
  }
  if (steps.size() > kFieldPathStepsMax) return absl::InvalidArgumentError("the path is longer than any field's");
  return steps;
}

absl::StatusOr<const FieldDescriptor*> FindField(const Descriptor* type, const std::string& name) {
  if (const FieldDescriptor* field = type->FindFieldByName(name)) return field;
  std::vector<std::string> names;
  for (int i = 0; i < type->field_count(); ++i) names.push_back(type->field(i)->name());
  const std::string nearest = Nearest(name, names);
  return absl::InvalidArgumentError(
      absl::StrFormat("%s has no field \"%s\"%s (it has %s)", type->name(), name,
                      nearest.empty() ? "" : absl::StrFormat("; did you mean \"%s\"?", nearest),
                      names.empty() ? "none" : absl::StrJoin(names, ", ")));
}

// The field to which the path leads.
struct Target {
  Message* message = nullptr;
  const FieldDescriptor* field = nullptr;
  int index = kNoIndex;
};

absl::StatusOr<int> CheckIndex(const Message& message, const FieldDescriptor* field, int index) {
  const int size = message.GetReflection()->FieldSize(message, field);
  if (index < size) return index;
  return absl::InvalidArgumentError(
      size == 0 ? absl::StrFormat("%s is empty; write %s[..] to append", field->name(), field->name())
                : absl::StrFormat("%s[%d] does not exist: the last one is %s[%d]; write %s[..] to append",
                                  field->name(), index, field->name(), size - 1, field->name()));
}

absl::StatusOr<Message*> Descend(Message* message, const FieldDescriptor* field, int index) {
  if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
    return absl::InvalidArgumentError(absl::StrFormat("%s is not a message; it has no fields", field->name()));
  }
  const Reflection* reflection = message->GetReflection();
  if (!field->is_repeated()) return reflection->MutableMessage(message, field);
  if (index == kNoIndex) {
    return absl::InvalidArgumentError(absl::StrFormat("%s is a list; say which element: %s[0] or %s[..] to append one",
                                                      field->name(), field->name(), field->name()));
  }
  if (index == kAppend) return reflection->AddMessage(message, field);
  CAIRN_ASSIGN_OR_RETURN(const int i, CheckIndex(*message, field, index));
  return reflection->MutableRepeatedMessage(message, field, i);
}

absl::StatusOr<Target> Resolve(const std::vector<Step>& steps, Message* message) {
  for (size_t i = 0;; ++i) {
    const Step& step = steps[i];
    CAIRN_ASSIGN_OR_RETURN(const FieldDescriptor* field, FindField(message->GetDescriptor(), step.field));
    if (step.index != kNoIndex && !field->is_repeated()) {
      return absl::InvalidArgumentError(absl::StrFormat("%s is not a list; write it without an index", step.field));
    }
    if (i + 1 == steps.size()) return Target{message, field, step.index};
    CAIRN_ASSIGN_OR_RETURN(message, Descend(message, field, step.index));
  }
}

// ---- the value ----

std::vector<std::string> EnumNames(const EnumDescriptor* type) {
  std::vector<std::string> names;
  for (int i = 0; i < type->value_count(); ++i) {
    if (!absl::EndsWith(type->value(i)->name(), "UNSPECIFIED")) names.push_back(type->value(i)->name());
  }
  return names;
}

// What is wrong with `name`, and the nearest of the names that there are.
std::string NotOneOf(const std::string& name, const std::vector<std::string>& names) {
  const std::string nearest = Nearest(name, names);
  return absl::StrFormat("\"%s\" is not one of %s%s", name, absl::StrJoin(names, ", "),
                         nearest.empty() ? "" : absl::StrFormat("; did you mean %s?", nearest));
}

absl::StatusOr<const EnumValueDescriptor*> ParseEnum(const EnumDescriptor* type, const std::string& text) {
  if (const EnumValueDescriptor* value = FindEnumValue(type, text)) return value;
  return absl::InvalidArgumentError(NotOneOf(text, EnumNames(type)));
}

template <typename Int>
absl::StatusOr<Int> ParseInt(const std::string& text) {
  Int value = 0;
  if (absl::SimpleAtoi(text, &value)) return value;
  return absl::InvalidArgumentError(absl::StrFormat("\"%s\" is not a whole number from %d to %d", text,
                                                    std::numeric_limits<Int>::min(), std::numeric_limits<Int>::max()));
}

absl::StatusOr<double> ParseReal(const std::string& text) {
  double value = 0;
  if (absl::SimpleAtod(text, &value)) return value;
  return absl::InvalidArgumentError(absl::StrFormat("\"%s\" is not a number", text));
}

absl::StatusOr<bool> ParseBool(const std::string& text) {
  bool value = false;
  if (absl::SimpleAtob(text, &value)) return value;
  return absl::InvalidArgumentError(absl::StrFormat("\"%s\" is neither true nor false", text));
}

// Sets, replaces (index >= 0) or appends (kAppend) one scalar.
#define CAIRN_PUT(Kind, value)                                             \
  (t.index == kNoIndex  ? reflection->Set##Kind(t.message, t.field, value) \
   : t.index == kAppend ? reflection->Add##Kind(t.message, t.field, value) \
                        : reflection->SetRepeated##Kind(t.message, t.field, t.index, value))

absl::Status PutScalar(const Target& t, const std::string& text) {
  const Reflection* reflection = t.message->GetReflection();
  switch (t.field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: {
      CAIRN_ASSIGN_OR_RETURN(const int32_t value, ParseInt<int32_t>(text));
      CAIRN_PUT(Int32, value);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_INT64: {
      CAIRN_ASSIGN_OR_RETURN(const int64_t value, ParseInt<int64_t>(text));
      CAIRN_PUT(Int64, value);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_UINT32: {
      CAIRN_ASSIGN_OR_RETURN(const uint32_t value, ParseInt<uint32_t>(text));
      CAIRN_PUT(UInt32, value);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      CAIRN_ASSIGN_OR_RETURN(const uint64_t value, ParseInt<uint64_t>(text));
      CAIRN_PUT(UInt64, value);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_FLOAT: {
      CAIRN_ASSIGN_OR_RETURN(const double value, ParseReal(text));
      CAIRN_PUT(Float, static_cast<float>(value));
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      CAIRN_ASSIGN_OR_RETURN(const double value, ParseReal(text));
      CAIRN_PUT(Double, value);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_BOOL: {
      CAIRN_ASSIGN_OR_RETURN(const bool value, ParseBool(text));
      CAIRN_PUT(Bool, value);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      CAIRN_ASSIGN_OR_RETURN(const EnumValueDescriptor* value, ParseEnum(t.field->enum_type(), text));
      CAIRN_PUT(Enum, value);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_STRING: CAIRN_PUT(String, text); return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_MESSAGE: break;
  }
  return absl::InvalidArgumentError("this field cannot be set");
}
#undef CAIRN_PUT

// "adam", "mse": sets a message of that kind; its other fields keep their defaults.
absl::Status PutKind(const FieldDescriptor* field, const std::string& name, Message* message) {
  const KindOfMessage kind = FindKind(field->message_type(), name);
  if (kind.field == nullptr) {
    std::vector<std::string> names;
    const FieldDescriptor* by_enum = field->message_type()->FindFieldByName("kind");
    if (by_enum != nullptr) {
      names = EnumNames(by_enum->enum_type());
    } else {
      const auto* oneof = field->message_type()->FindOneofByName("kind");
      for (int i = 0; i < oneof->field_count(); ++i) names.push_back(oneof->field(i)->name());
    }
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: %s; give a name, or {text format}, {} for an empty one, or set a field of it (%s.FIELD=...)",
        field->name(), NotOneOf(name, names), field->name()));
  }
  message->Clear();
  if (kind.value != nullptr) {
    message->GetReflection()->SetEnum(message, kind.field, kind.value);
  } else {
    message->GetReflection()->MutableMessage(message, kind.field);
  }
  return absl::OkStatus();
}

// "{ ... }" in text format, or the name of a kind, which replaces the present value.
absl::Status PutMessage(const Target& t, const std::string& text) {
  CAIRN_ASSIGN_OR_RETURN(Message * message, Descend(t.message, t.field, t.index));
  if (!text.empty() && text.front() != '{' && ToldByName(t.field->message_type())) {
    return PutKind(t.field, text, message);
  }
  if (text.size() < 2 || text.front() != '{' || text.back() != '}') {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s is a message; set a field of it (%s.FIELD=...) or give it as {text format}, {} for an empty one",
        t.field->name(), t.field->name()));
  }
  message->Clear();
  return ParseText(absl::StrCat(" ", text.substr(1, text.size() - 2)), t.field->name(), message);
}

absl::Status PutList(Target t, std::string text) {
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']') text = text.substr(1, text.size() - 2);
  t.message->GetReflection()->ClearField(t.message, t.field);
  t.index = kAppend;
  if (text.empty()) return absl::OkStatus();
  for (const auto& item : absl::StrSplit(text, ',')) {
    const std::string one(absl::StripAsciiWhitespace(item));
    CAIRN_RETURN_IF_ERROR(t.field->message_type() != nullptr ? PutMessage(t, one) : PutScalar(t, one));
  }
  return absl::OkStatus();
}

absl::Status Put(const Target& t, const std::string& text) {
  const bool message = t.field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  const bool names = message && ToldByName(t.field->message_type()) && text.find('{') == std::string::npos;
  if (t.field->is_repeated() && t.index == kNoIndex && (!message || names)) return PutList(t, text);
  if (message) return PutMessage(t, text);
  if (t.index >= 0) CAIRN_RETURN_IF_ERROR(CheckIndex(*t.message, t.field, t.index).status());
  return PutScalar(t, text);
}

absl::Status Apply(const std::string& path, const std::string& value, Message* message) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<Step> steps, ParsePath(path));
  CAIRN_ASSIGN_OR_RETURN(const Target target, Resolve(steps, message));
  return Put(target, value);
}

NumberKind KindOf(const FieldDescriptor* field) {
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_INT64:
    case FieldDescriptor::CPPTYPE_UINT32:
    case FieldDescriptor::CPPTYPE_UINT64: return NumberKind::kWhole;
    case FieldDescriptor::CPPTYPE_FLOAT:
    case FieldDescriptor::CPPTYPE_DOUBLE: return NumberKind::kReal;
    default: return NumberKind::kNone;
  }
}

}  // namespace

absl::StatusOr<NumberKind> NumberKindOf(const std::string& path, const Message& message) {
  const std::unique_ptr<Message> copy(message.New());
  copy->CopyFrom(message);
  CAIRN_ASSIGN_OR_RETURN(const std::vector<Step> steps, ParsePath(path));
  CAIRN_ASSIGN_OR_RETURN(const Target target, Resolve(steps, copy.get()));
  return target.field->is_repeated() && target.index == kNoIndex ? NumberKind::kNone : KindOf(target.field);
}

absl::Status ApplySetting(const std::string& setting, Message* message) {
  const size_t equals = setting.find('=');
  if (equals == std::string::npos || equals == 0) {
    return absl::InvalidArgumentError(absl::StrFormat("--set %s: write it as path.to.field=value", setting));
  }
  if (!IsUtf8(setting)) return absl::InvalidArgumentError(absl::StrFormat("--set %s: is not UTF-8", ToUtf8(setting)));
  const std::unique_ptr<Message> changed(message->New());
  changed->CopyFrom(*message);
  const absl::Status status = Apply(setting.substr(0, equals), setting.substr(equals + 1), changed.get());
  if (!status.ok()) return Annotate(status, absl::StrCat("--set ", setting));
  message->GetReflection()->Swap(message, changed.get());
  return absl::OkStatus();
}

}  // namespace cairn
