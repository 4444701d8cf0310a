// `--set path.to.field=value`: sets one field of a message, by name, through reflection.
//
//   setting := path '=' value
//   path    := step ('.' step)*
//   step    := FIELD | FIELD '[' NUMBER ']' | FIELD '[..]'        [..] appends an element
//   value   := for a scalar: the number, true or false, an enum's name in any case or as Keras spells it, or text
//              for a repeated scalar without an index: values separated by commas, optionally in [ ], which replace
//              the list; empty: none
//              for a message: {text format}; {} makes an empty one; for one with a kind (optimizer, loss, metrics) its
//              name: optimizer=adam, loss=mse, metrics=accuracy,auc
//
// Pure functions. A failed setting leaves the message unchanged.
#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <vector>

#include "common/base/status.h"

namespace cairn {

// Errors: INVALID_ARGUMENT names the setting, the wrong step of its path, and the most similar field, the allowed
// values or the range.
absl::Status ApplySetting(const std::string& setting, google::protobuf::Message* message);

enum class NumberKind { kNone, kWhole, kReal };
// Which numbers the field at `path` takes; kNone: it takes no number, or a list. Errors: as above, without the setting.
absl::StatusOr<NumberKind> NumberKindOf(const std::string& path, const google::protobuf::Message& message);

}  // namespace cairn
