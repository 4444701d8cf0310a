// How a user's program reaches a coordinator, and how it says that it does not.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "client/limits.h"
#include "common/rpc/channel.h"

namespace cairn {

inline ChannelOptions CoordinatorChannel() {
  ChannelOptions options;
  options.keepalive_interval = absl::Seconds(5);
  options.keepalive_timeout = absl::Seconds(5);
  options.receive_bytes_max = kAnswerBytesMax;
  return options;
}

// Extracts the system's reason from "failed to connect to all addresses; last error: UNKNOWN: ipv4:...: Connection
// refused".
inline std::string ShortReason(const std::string& message) {
  const size_t colon = message.rfind(": ");
  std::string reason = colon == std::string::npos ? message : message.substr(colon + 2);
  if (reason == "Connection refused") reason = "connection refused";
  return reason;
}

}  // namespace cairn
