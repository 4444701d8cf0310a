// Addresses: "host:port", or "host:port,unix:/path" with a socket for peers on its host. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "common/base/limits.h"
#include "common/base/status.h"

namespace cairn {

struct Address {
  std::string tcp;          // "host:port"
  std::string unix_socket;  // path, or empty
};
// Errors: INVALID_ARGUMENT.
absl::StatusOr<Address> ParseAddress(const std::string& address);
// The host of "host:port", including the brackets of an IPv6 address.
inline std::string HostOf(const std::string& address) { return address.substr(0, address.rfind(':')); }

// Splits "host:port,host:port", at most kCoordinatorsMax addresses of coordinators. Errors: INVALID_ARGUMENT.
absl::StatusOr<std::vector<std::string>> ParseCoordinators(const std::string& addresses);

}  // namespace cairn
