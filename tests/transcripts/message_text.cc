#include "tests/transcripts/message_text.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/descriptor.h"

namespace cairn {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// What a reader does not miss.
const std::set<std::string>& LeftOut() {
  static const auto* const names = new std::set<std::string>{"spec",
                                                             "data",
                                                             "info",
                                                             "begin",
                                                             "end",
                                                             "address",
                                                             "host",
                                                             "incarnation",
                                                             "fingerprint",
                                                             "memory_bytes",
                                                             "input_shape",
                                                             "compute_dtypes",
                                                             "cluster_id",
                                                             "lease_ms",
                                                             "submitted_unix_ms",
                                                             "written_unix_ms",
                                                             "heartbeat_interval_ms",
                                                             "coordinator_incarnation",
                                                             "request_id",
                                                             "question",
                                                             "version_min",
                                                             "metrics",
                                                             "unix_ms",
                                                             "interface",
                                                             "takes_digests"};
  return *names;
}

bool IsLeftOut(const FieldDescriptor* f) {
  const bool release = f->name() == "version" && f->cpp_type() == FieldDescriptor::CPPTYPE_STRING;  // of a program
  return release || LeftOut().contains(f->name());
}

std::string ScalarText(const Message& m, const FieldDescriptor* f, int i) {
  const Reflection& r = *m.GetReflection();
  const bool repeated = f->is_repeated();
  switch (f->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: return absl::StrCat(repeated ? r.GetRepeatedInt32(m, f, i) : r.GetInt32(m, f));
    case FieldDescriptor::CPPTYPE_INT64: return absl::StrCat(repeated ? r.GetRepeatedInt64(m, f, i) : r.GetInt64(m, f));
    case FieldDescriptor::CPPTYPE_UINT32:
      return absl::StrCat(repeated ? r.GetRepeatedUInt32(m, f, i) : r.GetUInt32(m, f));
    case FieldDescriptor::CPPTYPE_UINT64:
      return absl::StrCat(repeated ? r.GetRepeatedUInt64(m, f, i) : r.GetUInt64(m, f));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return absl::StrCat(repeated ? r.GetRepeatedDouble(m, f, i) : r.GetDouble(m, f));
    case FieldDescriptor::CPPTYPE_FLOAT: return absl::StrCat(repeated ? r.GetRepeatedFloat(m, f, i) : r.GetFloat(m, f));
    case FieldDescriptor::CPPTYPE_BOOL: return (repeated ? r.GetRepeatedBool(m, f, i) : r.GetBool(m, f)) ? "yes" : "no";
    case FieldDescriptor::CPPTYPE_ENUM: return (repeated ? r.GetRepeatedEnum(m, f, i) : r.GetEnum(m, f))->name();
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string text = repeated ? r.GetRepeatedString(m, f, i) : r.GetString(m, f);
      return f->type() == FieldDescriptor::TYPE_BYTES ? absl::StrFormat("%d bytes", text.size())
                                                      : absl::StrCat("\"", text, "\"");
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return absl::StrCat("{", FieldsText(repeated ? r.GetRepeatedMessage(m, f, i) : r.GetMessage(m, f)), "}");
  }
  return "";
}

}  // namespace

std::string FieldsText(const Message& message) {
  const Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  std::vector<std::string> texts;
  // Numbers of partitions and replicas are shown where they are 0, too.
  for (const char* number : {"partition", "replica"}) {
    const FieldDescriptor* f = message.GetDescriptor()->FindFieldByName(number);
    if (f != nullptr && std::find(fields.begin(), fields.end(), f) == fields.end())
      texts.push_back(absl::StrCat(number, " ", ScalarText(message, f, 0)));
  }
  for (const FieldDescriptor* f : fields) {
    if (IsLeftOut(f)) continue;
    const std::string name = f->name() == "job_id" ? "job" : f->name();
    if (f->is_repeated()) {
      std::vector<std::string> items;
      for (int i = 0; i < reflection.FieldSize(message, f); ++i) items.push_back(ScalarText(message, f, i));
      texts.push_back(absl::StrCat(name, " [", absl::StrJoin(items, " "), "]"));
    } else if (f->cpp_type() == FieldDescriptor::CPPTYPE_BOOL && reflection.GetBool(message, f)) {
      texts.push_back(name);
    } else {
      texts.push_back(absl::StrCat(name, " ", ScalarText(message, f, 0)));
    }
  }
  return absl::StrJoin(texts, ", ");
}

std::string KindText(const Message& message) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  if (fields.empty()) return "nothing";
  const std::string inner = FieldsText(message.GetReflection()->GetMessage(message, fields.front()));
  return inner.empty() ? fields.front()->name() : absl::StrCat(fields.front()->name(), " ", inner);
}

}  // namespace cairn
