// Looks up names as Keras users write them: "mse", "SparseCategoricalCrossentropy", "MultiWorkerMirroredStrategy".
//
// Pure functions; any thread.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>

namespace cairn {

// The value with this name: in any case, with or without underscores, or a short name of Keras. Null: none.
const google::protobuf::EnumValueDescriptor* FindEnumValue(const google::protobuf::EnumDescriptor* type,
                                                           const std::string& name);

// A message that a single name selects: by its enum `kind` (a loss, a metric) or its oneof `kind` (an optimizer).
struct KindOfMessage {
  const google::protobuf::FieldDescriptor* field = nullptr;  // the enum, or the message of the oneof; null: none
  const google::protobuf::EnumValueDescriptor* value = nullptr;
};
// Whether a single name selects messages of this type; and the kind that `name` selects (field null: no such kind).
bool ToldByName(const google::protobuf::Descriptor* type);
KindOfMessage FindKind(const google::protobuf::Descriptor* type, const std::string& name);

}  // namespace cairn
