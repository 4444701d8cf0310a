#include "common/rpc/address.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace cairn {

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

}  // namespace cairn
