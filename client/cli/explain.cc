#include "client/cli/explain.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/cli/job_protos.h"
#include "common/model/nearest.h"

namespace cairn {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptorSet;
using google::protobuf::SourceLocation;

struct Protos {
  DescriptorPool pool;
  std::vector<const google::protobuf::FileDescriptor*> files;
};

const Protos& JobProtos() {
  static const Protos* const protos = [] {
    auto* made = new Protos();
    FileDescriptorSet set;
    set.ParseFromArray(kJobProtos.data(), static_cast<int>(kJobProtos.size()));
    for (const auto& file : set.file()) made->files.push_back(made->pool.BuildFile(file));
    return made;
  }();
  return *protos;
}

const Descriptor* JobType() { return JobProtos().pool.FindMessageTypeByName("cairn.v1.JobSpec"); }

// The comments before a declaration and behind it, as one line.
template <class D>
std::string CommentOf(const D* declaration) {
  SourceLocation place;
  if (!declaration->GetSourceLocation(&place)) return "";
  std::string text = absl::StrCat(place.leading_comments, " ", place.trailing_comments);
  absl::RemoveExtraAsciiWhitespace(&text);
  return text;
}

std::string TypeName(const FieldDescriptor* field) {
  std::string name = field->cpp_type_name();
  if (field->message_type() != nullptr) name = field->message_type()->name();
  if (field->enum_type() != nullptr) name = field->enum_type()->name();
  if (field->type() == FieldDescriptor::TYPE_BYTES) name = "bytes";
  if (field->is_map()) {
    return absl::StrCat("map of ", TypeName(field->message_type()->field(0)), " to ",
                        TypeName(field->message_type()->field(1)));
  }
  return field->is_repeated() ? absl::StrCat("list of ", name) : name;
}

void AppendWrapped(const std::string& text, size_t indent, size_t width, std::string* out) {
  size_t column = 0;
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (column > 0 && column + 1 + word.size() > width) {
      absl::StrAppend(out, "\n");
      column = 0;
    }
    if (column == 0) {
      absl::StrAppend(out, std::string(indent, ' '), word);
      column = indent + word.size();
    } else {
      absl::StrAppend(out, " ", word);
      column += 1 + word.size();
    }
  }
  if (column > 0) absl::StrAppend(out, "\n");
}

// One line for each: a name, its type, and the comment below.
void AppendFields(const Descriptor* type, size_t width, std::string* out) {
  if (type->field_count() == 0) return absl::StrAppend(out, "\nIt has no fields.\n");
  absl::StrAppend(out, "\nFields:\n");
  size_t longest = 0;
  for (int i = 0; i < type->field_count(); ++i) longest = std::max(longest, type->field(i)->name().size());
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    absl::StrAppendFormat(out, "  %-*s  %s\n", static_cast<int>(longest), field->name(), TypeName(field));
    AppendWrapped(CommentOf(field), 6, width, out);
  }
}

void AppendValues(const EnumDescriptor* type, size_t width, std::string* out) {
  absl::StrAppend(out, "\nValues:\n");
  for (int i = 0; i < type->value_count(); ++i) {
    const EnumValueDescriptor* value = type->value(i);
    if (value->number() == 0 && absl::EndsWith(value->name(), "UNSPECIFIED")) {  // its comment says what is meant then
      if (const std::string text = CommentOf(value); !text.empty())
        AppendWrapped(absl::StrCat("Default: ", text), 2, width, out);
      continue;
    }
    absl::StrAppend(out, "  ", value->name(), "\n");
    AppendWrapped(CommentOf(value), 6, width, out);
  }
}

std::string DescribeType(const Descriptor* type, size_t width) {
  std::string out = absl::StrCat(type->name(), "\n");
  AppendWrapped(CommentOf(type), 2, width, &out);
  AppendFields(type, width, &out);
  return out;
}

std::string DescribeEnum(const EnumDescriptor* type, size_t width) {
  std::string out = absl::StrCat(type->name(), "\n");
  AppendWrapped(CommentOf(type), 2, width, &out);
  AppendValues(type, width, &out);
  return out;
}

std::string DescribeField(const std::string& path, const FieldDescriptor* field, size_t width) {
  std::string out = absl::StrCat(path, ": ", TypeName(field), "\n");
  AppendWrapped(CommentOf(field), 2, width, &out);
  if (const auto* choice = field->real_containing_oneof(); choice != nullptr && choice->field_count() > 1) {
    std::vector<std::string> others;
    for (int i = 0; i < choice->field_count(); ++i) {
      if (choice->field(i) != field) others.push_back(choice->field(i)->name());
    }
    AppendWrapped(absl::StrCat("In place of it one of: ", absl::StrJoin(others, ", "), "."), 2, width, &out);
  }
  if (const Descriptor* type = field->message_type(); type != nullptr && !field->is_map()) {
    AppendWrapped(CommentOf(type), 2, width, &out);
    AppendFields(type, width, &out);
  }
  if (field->enum_type() != nullptr) {
    AppendWrapped(CommentOf(field->enum_type()), 2, width, &out);
    AppendValues(field->enum_type(), width, &out);
  }
  return out;
}

// The text of a message or an enum of this name, "" if there is none.
std::string DescribeName(const std::string& name, size_t width) {
  for (const google::protobuf::FileDescriptor* of : JobProtos().files) {
    if (const Descriptor* type = of->FindMessageTypeByName(name)) return DescribeType(type, width);
    if (const EnumDescriptor* type = of->FindEnumTypeByName(name)) return DescribeEnum(type, width);
  }
  return "";
}

std::vector<std::string> NamesOfTypes() {
  std::vector<std::string> names;
  for (const google::protobuf::FileDescriptor* file : JobProtos().files) {
    for (int i = 0; i < file->message_type_count(); ++i) names.push_back(file->message_type(i)->name());
    for (int i = 0; i < file->enum_type_count(); ++i) names.push_back(file->enum_type(i)->name());
  }
  return names;
}

absl::Status NoField(const Descriptor* type, const std::string& name) {
  std::vector<std::string> names;
  for (int i = 0; i < type->field_count(); ++i) names.push_back(type->field(i)->name());
  if (type == JobType() && Nearest(name, names).empty()) {
    if (const std::string message = Nearest(name, NamesOfTypes()); !message.empty())
      return absl::InvalidArgumentError(
          absl::StrFormat("there is no field or message \"%s\"; did you mean \"%s\"?", name, message));
  }
  const std::string nearest = Nearest(name, names);
  return absl::InvalidArgumentError(
      absl::StrFormat("%s has no field \"%s\"%s", type->name(), name,
                      !nearest.empty() ? absl::StrFormat("; did you mean \"%s\"?", nearest)
                      : names.empty()  ? " (it has none)"
                                       : absl::StrFormat(" (it has %s)", absl::StrJoin(names, ", "))));
}

}  // namespace

absl::StatusOr<std::string> Explain(const std::string& path, size_t width) {
  const absl::string_view plain = absl::StripPrefix(path, "job.");
  if (plain.empty() || plain == "job") return DescribeType(JobType(), width);
  if (std::string of_name = DescribeName(path, width); !of_name.empty()) return of_name;
  const Descriptor* type = JobType();
  const FieldDescriptor* field = nullptr;
  for (const absl::string_view step : absl::StrSplit(plain, '.')) {
    const std::string name(step.substr(0, step.find('[')));
    if (field != nullptr && type == nullptr) {
      return absl::InvalidArgumentError(absl::StrFormat("%s is not a message; it has no fields", field->name()));
    }
    field = type->FindFieldByName(name);
    if (field == nullptr) return NoField(type, name);
    type = field->is_map() ? nullptr : field->message_type();
  }
  return DescribeField(std::string(plain), field, width);
}

}  // namespace cairn
