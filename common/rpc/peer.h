// Who calls, as gRPC names it. Pure; any thread.
#pragma once

#include <string>

namespace cairn {

// The machine of a server context's peer, "ipv4:10.0.0.7:4711"; empty: a Unix socket.
inline std::string MachineOf(const std::string& peer) {
  return peer.rfind("unix:", 0) == 0 ? "" : peer.substr(0, peer.rfind(':'));
}

}  // namespace cairn
