#include "client/user_channel.h"

#include "absl/time/time.h"
#include "client/limits.h"

namespace cairn {

ChannelOptions UserChannel() {
  ChannelOptions options;
  options.keepalive_interval = absl::Seconds(5);
  options.keepalive_timeout = absl::Seconds(5);
  options.receive_bytes_max = kAnswerBytesMax;
  return options;
}

std::string ShortReason(const std::string& message) {
  const size_t colon = message.rfind(": ");
  std::string reason = colon == std::string::npos ? message : message.substr(colon + 2);
  if (reason == "Connection refused") reason = "connection refused";
  return reason;
}

}  // namespace cairn
