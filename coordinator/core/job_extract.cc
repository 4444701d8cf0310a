#include "coordinator/core/job_extract.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/reflection.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace cairn {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using v1::JobStatus;

template <typename T, auto Get, auto Set>
void CopyPlain(const Message& from, const FieldDescriptor* field, Message* to) {
  const Reflection* reflection = from.GetReflection();
  if (field->is_repeated()) {
    reflection->GetMutableRepeatedFieldRef<T>(to, field).CopyFrom(reflection->GetRepeatedFieldRef<T>(from, field));
  } else {
    (reflection->*Set)(to, field, (reflection->*Get)(from, field));
  }
}

void CopyMessages(const Message& from, const FieldDescriptor* field, Message* to) {
  const Reflection* reflection = from.GetReflection();
  if (!field->is_repeated())
    return reflection->MutableMessage(to, field)->CopyFrom(reflection->GetMessage(from, field));
  for (int i = 0; i < reflection->FieldSize(from, field); ++i)
    reflection->AddMessage(to, field)->CopyFrom(reflection->GetRepeatedMessage(from, field, i));
}

void CopyField(const Message& from, const FieldDescriptor* field, Message* to) {
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return CopyPlain<int32_t, &Reflection::GetInt32, &Reflection::SetInt32>(from, field, to);
    case FieldDescriptor::CPPTYPE_INT64:
      return CopyPlain<int64_t, &Reflection::GetInt64, &Reflection::SetInt64>(from, field, to);
    case FieldDescriptor::CPPTYPE_UINT32:
      return CopyPlain<uint32_t, &Reflection::GetUInt32, &Reflection::SetUInt32>(from, field, to);
    case FieldDescriptor::CPPTYPE_UINT64:
      return CopyPlain<uint64_t, &Reflection::GetUInt64, &Reflection::SetUInt64>(from, field, to);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return CopyPlain<float, &Reflection::GetFloat, &Reflection::SetFloat>(from, field, to);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return CopyPlain<double, &Reflection::GetDouble, &Reflection::SetDouble>(from, field, to);
    case FieldDescriptor::CPPTYPE_BOOL:
      return CopyPlain<bool, &Reflection::GetBool, &Reflection::SetBool>(from, field, to);
    case FieldDescriptor::CPPTYPE_ENUM:
      return CopyPlain<int32_t, &Reflection::GetEnumValue, &Reflection::SetEnumValue>(from, field, to);
    case FieldDescriptor::CPPTYPE_STRING:
      return CopyPlain<std::string, &Reflection::GetString, &Reflection::SetString>(from, field, to);
    case FieldDescriptor::CPPTYPE_MESSAGE: return CopyMessages(from, field, to);
  }
}

// Copies all set fields of `from` except these.
void CopyAllBut(const Message& from, std::initializer_list<int> left_out, Message* to) {
  std::vector<const FieldDescriptor*> fields;
  from.GetReflection()->ListFields(from, &fields);
  for (const FieldDescriptor* field : fields) {
    if (std::find(left_out.begin(), left_out.end(), field->number()) == left_out.end()) CopyField(from, field, to);
  }
}

void CopyData(const JobStatus& from, JobStatus* to) {
  if (from.has_data()) CopyAllBut(from.data(), {v1::DataInfo::kClassNamesFieldNumber}, to->mutable_data());
}

}  // namespace

void CopyForList(const JobStatus& from, JobStatus* to) {
  CopyAllBut(from,
             {JobStatus::kSpecFieldNumber, JobStatus::kDataFieldNumber, JobStatus::kReplicasFieldNumber,
              JobStatus::kPartitionsFieldNumber, JobStatus::kEpochsFieldNumber, JobStatus::kEventsFieldNumber,
              JobStatus::kStepDigestsFieldNumber},
             to);
  CopyData(from, to);
  *to->mutable_epochs() = from.epochs();  // copied separately: there may be thousands
  if (!from.has_spec()) return;
  CopyAllBut(from.spec(), {v1::JobSpec::kModelFieldNumber}, to->mutable_spec());
  if (from.spec().has_model())
    CopyAllBut(from.spec().model(), {v1::Model::kLayersFieldNumber}, to->mutable_spec()->mutable_model());
}

void CopyForRow(const JobStatus& from, JobStatus* to) {
  CopyAllBut(from,
             {JobStatus::kSpecFieldNumber, JobStatus::kDataFieldNumber, JobStatus::kReplicasFieldNumber,
              JobStatus::kPartitionsFieldNumber, JobStatus::kEpochsFieldNumber, JobStatus::kValidationsFieldNumber,
              JobStatus::kNotesFieldNumber, JobStatus::kEventsFieldNumber, JobStatus::kStepDigestsFieldNumber},
             to);
  CopyData(from, to);
  if (from.has_spec()) CopyAllBut(from.spec(), {v1::JobSpec::kModelFieldNumber}, to->mutable_spec());
  int validated = from.epochs_size() - 1;
  while (validated >= 0 && from.epochs(validated).validation().examples() == 0) --validated;
  if (validated >= 0) *to->add_epochs() = from.epochs(validated);
  if (const int last = from.epochs_size() - 1; last > validated) *to->add_epochs() = from.epochs(last);
}

}  // namespace cairn
