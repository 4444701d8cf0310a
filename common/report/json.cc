#include "common/report/json.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/limits.h"
#include "common/model/role_text.h"
#include "common/report/figures.h"

namespace cairn {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Json = nlohmann::ordered_json;

// Rounds to the shortest decimal that reads back as this float, so that 0.1f prints as 0.1.
double Shortest(float value) {
  for (int digits = 6; digits <= 9; ++digits) {
    double decimal = 0;
    if (absl::SimpleAtod(absl::StrFormat("%.*g", digits, value), &decimal) && static_cast<float>(decimal) == value)
      return decimal;
  }
  return value;
}

Json Whole(uint64_t value) { return value <= kJsonWholeMax ? Json(value) : Json(absl::StrCat(value)); }

class Writer {
 public:
  explicit Writer(const v1::JobSpec& spec) : spec_(spec) {}

  Json Write(const Message& message, bool with_defaults) const {
    if (const auto* sums = dynamic_cast<const v1::MetricSums*>(&message)) return Sums(*sums);
    const bool defaults = with_defaults && message.GetDescriptor() != v1::JobSpec::descriptor();
    Json object = Json::object();
    for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
      const FieldDescriptor* field = message.GetDescriptor()->field(i);
      if (field->is_repeated()) {
        const int size = message.GetReflection()->FieldSize(message, field);
        if (size > 0 || defaults) object[field->name()] = List(message, field, size, defaults);
      } else if (message.GetReflection()->HasField(message, field) || (defaults && !field->has_presence())) {
        object[field->name()] = Value(message, field, defaults);
      }
    }
    return object;
  }

  Json Sums(const v1::MetricSums& sums) const {
    Json object = {{"examples", sums.examples()}};
    for (const auto& [name, value] : MeanFigures(spec_, sums)) object[name] = value;
    return object;
  }

 private:
  Json Value(const Message& m, const FieldDescriptor* f, bool defaults) const {
    const Reflection* r = m.GetReflection();
    switch (f->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32: return r->GetInt32(m, f);
      case FieldDescriptor::CPPTYPE_INT64: return r->GetInt64(m, f);
      case FieldDescriptor::CPPTYPE_UINT32: return r->GetUInt32(m, f);
      case FieldDescriptor::CPPTYPE_UINT64: return Whole(r->GetUInt64(m, f));
      case FieldDescriptor::CPPTYPE_FLOAT: return Shortest(r->GetFloat(m, f));
      case FieldDescriptor::CPPTYPE_DOUBLE: return r->GetDouble(m, f);
      case FieldDescriptor::CPPTYPE_BOOL: return r->GetBool(m, f);
      case FieldDescriptor::CPPTYPE_ENUM: return EnumName(f, r->GetEnumValue(m, f));
      case FieldDescriptor::CPPTYPE_STRING: return r->GetString(m, f);
      case FieldDescriptor::CPPTYPE_MESSAGE: return Write(r->GetMessage(m, f), defaults);
    }
    return nullptr;
  }

  Json Item(const Message& m, const FieldDescriptor* f, int i, bool defaults) const {
    const Reflection* r = m.GetReflection();
    switch (f->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32: return r->GetRepeatedInt32(m, f, i);
      case FieldDescriptor::CPPTYPE_INT64: return r->GetRepeatedInt64(m, f, i);
      case FieldDescriptor::CPPTYPE_UINT32: return r->GetRepeatedUInt32(m, f, i);
      case FieldDescriptor::CPPTYPE_UINT64: return Whole(r->GetRepeatedUInt64(m, f, i));
      case FieldDescriptor::CPPTYPE_FLOAT: return Shortest(r->GetRepeatedFloat(m, f, i));
      case FieldDescriptor::CPPTYPE_DOUBLE: return r->GetRepeatedDouble(m, f, i);
      case FieldDescriptor::CPPTYPE_BOOL: return r->GetRepeatedBool(m, f, i);
      case FieldDescriptor::CPPTYPE_ENUM: return EnumName(f, r->GetRepeatedEnumValue(m, f, i));
      case FieldDescriptor::CPPTYPE_STRING: return r->GetRepeatedString(m, f, i);
      case FieldDescriptor::CPPTYPE_MESSAGE: return Write(r->GetRepeatedMessage(m, f, i), defaults);
    }
    return nullptr;
  }

  Json List(const Message& m, const FieldDescriptor* f, int size, bool defaults) const {
    Json list = Json::array();
    for (int i = 0; i < size; ++i) list.push_back(Item(m, f, i, defaults));
    return list;
  }

  // A value that is newer than this program stays a number.
  static Json EnumName(const FieldDescriptor* f, int value) {
    const auto* known = f->enum_type()->FindValueByNumber(value);
    return known != nullptr ? Json(known->name()) : Json(value);
  }

  const v1::JobSpec& spec_;
};

// Text that is not UTF-8 (such as a path) gets replacement characters instead of an error.
std::string Dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json ToJson(const v1::JobStatus& job) { return Writer(job.spec()).Write(job, true); }

Json EventObject(const v1::ClusterEvent& event) {
  Json object = {
      {"number", event.number()}, {"time_ms", event.unix_ms()}, {"severity", event.warning() ? "warning" : "info"}};
  if (event.job_id() != 0) {
    object["job_id"] = event.job_id();
    object["job_name"] = event.job_name();
  }
  if (!event.node().empty()) {
    object["role"] = RoleText(event.role());
    object["node"] = event.node();
  }
  object["text"] = event.text();
  return object;
}

}  // namespace

std::string JobJson(const v1::JobStatus& job) { return Dump(ToJson(job)); }

std::string JobsJson(const v1::ListJobsResponse& jobs) {
  Json list = Json::array();
  for (const v1::JobStatus& job : jobs.jobs()) list.push_back(ToJson(job));
  return Dump({{"jobs", list}, {"retention", jobs.retention()}});
}

std::string NodesJson(const std::vector<v1::NodeStatus>& nodes) {
  const v1::JobSpec none;
  Json list = Json::array();
  for (const v1::NodeStatus& node : nodes) list.push_back(Writer(none).Write(node, true));
  return Dump({{"nodes", list}});
}

std::string EventJson(const v1::ClusterEvent& event) { return Dump(EventObject(event)); }

std::string EventsJson(const v1::ListEventsResponse& events) {
  Json list = Json::array();
  for (const v1::ClusterEvent& event : events.events()) list.push_back(EventObject(event));
  return Dump({{"events", list}, {"since_ms", events.since_unix_ms()}, {"dropped", events.dropped()}});
}

std::string DataInfoJson(const v1::DataInfo& info) {
  const v1::JobSpec none;
  return Dump(Writer(none).Write(info, true));
}

std::string SubmitJson(const v1::SubmitResponse& response) {
  const v1::JobStatus& job = response.job();
  return Dump({{"job_id", job.job_id()},
               {"name", job.spec().name()},
               {"state", v1::JobState_Name(job.state())},
               {"reason", job.reason()},
               {"warnings", std::vector<std::string>(response.warnings().begin(), response.warnings().end())}});
}

std::string EvaluateJson(const v1::JobStatus& job, v1::Split split, const v1::EvaluateResponse& response) {
  Json object = {{"job_id", job.job_id()}, {"split", v1::Split_Name(split)}};
  object.update(Writer(job.spec()).Sums(response.sums()));
  object["version"] = response.version();
  return Dump(object);
}

}  // namespace cairn
