// Names as users of Keras write them: "mse", "SparseCategoricalCrossentropy", "MultiWorkerMirroredStrategy", "RMSprop".
//
// Pure functions; any thread.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>

namespace cairn {

// The value of that name: in any case, with or without underscores, or one of Keras' short names. Null: none.
const google::protobuf::EnumValueDescriptor* FindEnumValue(const google::protobuf::EnumDescriptor* type,
                                                           const std::string& name);

// A message that is told by one name: by its enum `kind` (a loss, a metric) or its oneof `kind` (an optimizer).
struct KindOfMessage {
  const google::protobuf::FieldDescriptor* field = nullptr;  // the enum, or the message of the oneof; null: none
  const google::protobuf::EnumValueDescriptor* value = nullptr;
};
// Whether one name tells the type's messages; and what `name` tells, whose field is null where there is no such kind.
bool ToldByName(const google::protobuf::Descriptor* type);
KindOfMessage FindKind(const google::protobuf::Descriptor* type, const std::string& name);

}  // namespace cairn
