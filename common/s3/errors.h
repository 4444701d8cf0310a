// What a reply that is not a success means, and what to do about it.
//
// A pure function; any thread.
#pragma once

#include <string>

#include "common/base/status.h"
#include "common/s3/settings.h"
#include "common/s3/transport.h"

namespace cairn {

// Of a request that was not begun, or given up, since it is not wanted any more.
inline constexpr char kS3Stopping[] = "the worker is stopping, or the job has ended";

// address: of what was asked for, "s3://bucket/key". action: what was done: "read", "list", "write" or "remove".
// UNAVAILABLE: the same request may succeed later; UNIMPLEMENTED: the server does not know it.
absl::Status ErrorOfReply(const S3Reply& reply, const std::string& address, const std::string& action,
                          const S3Settings& settings);

}  // namespace cairn
