// Channels to other processes.
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/rpc/address.h"

namespace grpc {
class Channel;
}

namespace cairn {

// The key of trailing metadata in a coordinator's UNAVAILABLE: the leader's "host:port".
inline constexpr char kLeaderMetadata[] = "cairn-leader";

struct ChannelOptions {
  // Interval of pings while calls are open; without an answer within the timeout the connection counts as dead.
  absl::Duration keepalive_interval = absl::Seconds(1);
  absl::Duration keepalive_timeout = absl::Seconds(2);
  absl::Duration connect_timeout = absl::Seconds(2);  // per attempt
  int receive_bytes_max = 4 << 20;                    // per message
};

// A channel with its own connection. Uses the Unix socket if the file exists and something accepts on it (with
// TLS: if it belongs to this user or root), else TCP, with the process' credentials (credentials.h).
// Does not wait for the connection.
absl::StatusOr<std::shared_ptr<grpc::Channel>> CreateChannel(const std::string& address, const ChannelOptions& options);

}  // namespace cairn
