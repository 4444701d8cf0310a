#include "common/rpc/channel.h"

#include <grpcpp/create_channel.h>

#include "absl/strings/str_cat.h"
#include "common/base/unix_socket.h"
#include "common/rpc/credentials.h"

namespace cairn {
namespace {

// Whether the socket exists and may be used by this process. With TLS, it is trusted only if the user who listens on it
// is.
bool AcceptsOn(const std::string& path) { return ConnectUnixSocket(path, /*own_only=*/UsesTls()).ok(); }

}  // namespace

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
