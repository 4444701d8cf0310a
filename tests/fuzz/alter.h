// Alters any message, field by field, as the input's bytes say: what a peer, a user or a damaged disk might produce.
#pragma once

#include <google/protobuf/message.h>

#include "tests/fuzz/input.h"

namespace cairn {

// One alteration.
//
//   alteration := field:u8 how                         field number modulo the type's number of fields
//   how        := scalar                               of a single scalar: the new value
//               | clear:u8 (0: the field is cleared)   of a single message, else an alteration inside it
//               | action:u8                            of a list: 0 clear, 1 drop the last, 2 double the last,
//                                                      3 append, else change element number `action`
void Alter(ByteSource& in, google::protobuf::Message* message);

// n:u8, then n modulo 8 alterations.
void AlterSome(ByteSource& in, google::protobuf::Message* message);

}  // namespace cairn
