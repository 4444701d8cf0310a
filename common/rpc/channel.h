// Addresses and channels. An address is "host:port", or "host:port,unix:/path" for those on the same host.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/limits.h"
#include "common/base/status.h"

namespace grpc {
class Channel;
}

namespace cairn {

struct Address {
  std::string tcp;          // "host:port"
  std::string unix_socket;  // path, or empty
};
// Errors: INVALID_ARGUMENT.
absl::StatusOr<Address> ParseAddress(const std::string& address);
// Of "host:port"; with its brackets, if it has them.
inline std::string HostOf(const std::string& address) { return address.substr(0, address.rfind(':')); }

// "host:port,host:port": where coordinators listen, at most kCoordinatorsMax. Errors: INVALID_ARGUMENT.
absl::StatusOr<std::vector<std::string>> ParseCoordinators(const std::string& addresses);
// Trailing metadata of a coordinator's UNAVAILABLE: the leader's "host:port".
inline constexpr char kLeaderMetadata[] = "cairn-leader";

struct ChannelOptions {
  // Pings while calls are open, and how long an answer may take; then the connection counts as dead.
  absl::Duration keepalive_interval = absl::Seconds(1);
  absl::Duration keepalive_timeout = absl::Seconds(2);
  absl::Duration connect_timeout = absl::Seconds(2);  // of one attempt
  int receive_bytes_max = 4 << 20;                    // of one message
};

// A channel of its own (no connection is shared with another channel). Takes the socket where the file is there and
// something accepts on it (with TLS: of this user or root), else TCP, with the process' credentials (credentials.h).
// Does not wait for the connection.
absl::StatusOr<std::shared_ptr<grpc::Channel>> CreateChannel(const std::string& address, const ChannelOptions& options);

}  // namespace cairn
