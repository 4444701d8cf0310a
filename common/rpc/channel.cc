#include "common/rpc/channel.h"

#include <grpcpp/create_channel.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/limits.h"
#include "common/base/unix_socket.h"
#include "common/rpc/credentials.h"

namespace cairn {
namespace {

// Whether the socket exists and may be used by this process. With TLS, it is trusted only if the user who listens on it
// is.
bool AcceptsOn(const std::string& path) { return ConnectUnixSocket(path, /*own_only=*/UsesTls()).ok(); }

}  // namespace

absl::StatusOr<Address> ParseAddress(const std::string& address) {
  const size_t comma = address.find(',');
  Address out;
  out.tcp = address.substr(0, comma);
  if (comma != std::string::npos) {
    absl::string_view rest = absl::string_view(address).substr(comma + 1);
    if (!absl::ConsumePrefix(&rest, "unix:") || rest.empty() || rest[0] != '/') {
      return absl::InvalidArgumentError(
          absl::StrCat("address \"", address, "\": after the comma \"unix:/path\" is expected"));
    }
    out.unix_socket = std::string(rest);
  }
  if (const size_t scheme = out.tcp.find("://"); scheme != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("address \"", address, "\": \"host:port\" is expected, without \"",
                                                   out.tcp.substr(0, scheme + 3), "\""));
  }
  const size_t colon = out.tcp.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == out.tcp.size()) {
    return absl::InvalidArgumentError(absl::StrCat("address \"", address, "\": \"host:port\" is expected"));
  }
  if (out.tcp[0] != '[' && out.tcp.find(':') != colon) {
    return absl::InvalidArgumentError(
        absl::StrCat("address \"", address, "\": an IPv6 address must be in brackets, as [::1]:7070"));
  }
  int port = -1;
  if (!absl::SimpleAtoi(out.tcp.substr(colon + 1), &port) || port < 0 || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("address \"", address, "\": the port is a number from 0 to 65535"));
  }
  return out;
}

absl::StatusOr<std::vector<std::string>> ParseCoordinators(const std::string& addresses) {
  std::vector<std::string> list = absl::StrSplit(addresses, ',');
  if (list.size() > kCoordinatorsMax) {
    return absl::InvalidArgumentError(absl::StrCat("\"", addresses, "\": more than ", kCoordinatorsMax, " addresses"));
  }
  for (const std::string& address : list) CAIRN_RETURN_IF_ERROR(ParseAddress(address).status());
  return list;
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> CreateChannel(const std::string& address,
                                                             const ChannelOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(const Address parsed, ParseAddress(address));
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(options.receive_bytes_max);
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(absl::ToInt64Milliseconds(options.keepalive_interval)));
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, static_cast<int>(absl::ToInt64Milliseconds(options.keepalive_timeout)));
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // no limit
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, static_cast<int>(absl::ToInt64Milliseconds(options.connect_timeout)));
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // traffic inside a cluster must not go through a web proxy
  const bool local = !parsed.unix_socket.empty() && AcceptsOn(parsed.unix_socket);
  return grpc::CreateCustomChannel(local ? absl::StrCat("unix:", parsed.unix_socket) : parsed.tcp,
                                   local ? grpc::InsecureChannelCredentials() : TcpChannelCredentials(), args);
}

}  // namespace cairn
