// A job as people write it: text protobuf, or JSON. The command line reads files of it, the coordinator's pages what is
// written there.
//
// Pure functions; any thread. Invariant: what is returned is a message as it would come by gRPC: its texts are UTF-8.
#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "cairn/v1/job.pb.h"
#include "common/base/status.h"

namespace cairn {

// Text protobuf, or JSON if it begins with '{'. where: what errors begin with, such as the file's name.
// Errors: INVALID_ARGUMENT: of text protobuf one line per mistake, "WHERE:LINE:COLUMN: what" (lines and columns from
// 1), of JSON the first one.
absl::StatusOr<v1::JobSpec> ParseJobText(const std::string& text, const std::string& where);

// Merges text protobuf into any message. Errors: as ParseJobText.
absl::Status ParseText(const std::string& text, const std::string& where, google::protobuf::Message* message);

// Removes the byte order mark that editors of other systems write before UTF-8. Errors: INVALID_ARGUMENT: any other
// encoding.
absl::Status TakeUtf8(const std::string& where, std::string* text);

}  // namespace cairn
