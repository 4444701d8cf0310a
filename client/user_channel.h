// The channel of a user's calls, and what a user is told of it.
//
// Thread-safe.
#pragma once

#include <string>

#include "common/rpc/channel.h"

namespace cairn {

ChannelOptions UserChannel();

// The system's reason in gRPC's "failed to connect to all addresses; last error: UNKNOWN: ...: Connection refused".
std::string ShortReason(const std::string& message);

}  // namespace cairn
