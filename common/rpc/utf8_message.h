// Makes messages with texts from outside (file names, system errors) valid UTF-8: see common/base/text.h.
//
// Pure functions of their argument; any thread.
#pragma once

#include <google/protobuf/message.h>

namespace cairn {

// Repairs every `string` field, at any depth. A message that is valid already is only read.
void MakeUtf8(google::protobuf::Message* message);

}  // namespace cairn
