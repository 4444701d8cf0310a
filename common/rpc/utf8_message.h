// Messages whose texts came from somewhere else (names of files, errors of a system): see common/base/text.h.
//
// Pure functions of their argument; any thread.
#pragma once

#include <google/protobuf/message.h>

namespace cairn {

// Every `string` field, at any depth, becomes UTF-8. A message that is UTF-8 already is only read.
void MakeUtf8(google::protobuf::Message* message);

}  // namespace cairn
