#include "common/rpc/channel.h"

#include <fcntl.h>
#include <grpcpp/create_channel.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/limits.h"
#include "common/rpc/credentials.h"

namespace cairn {
namespace {

// With TLS, a socket is trusted only if the user who listens on it is: `fd` must be connected to a socket of this user
// or root, which no other user can replace. Its folder may be writable by others if that is sticky, such as /tmp.
bool IsOfThisUser(int fd, const std::string& path) {
  ucred listener{};
  socklen_t size = sizeof(listener);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &listener, &size) != 0) return false;
  struct stat found {};
  if (lstat(path.c_str(), &found) != 0 || !S_ISSOCK(found.st_mode)) return false;
  const auto trusted = [](uid_t user) { return user == geteuid() || user == 0; };
  return trusted(listener.uid) && trusted(found.st_uid);
}

// Whether the socket exists and may be used by this process.
bool AcceptsOn(const std::string& path) {
  sockaddr_un address{};
  if (path.size() >= sizeof(address.sun_path)) return false;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  const bool ok = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
                  (!UsesTls() || IsOfThisUser(fd, path));
  close(fd);
  return ok;
}

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
