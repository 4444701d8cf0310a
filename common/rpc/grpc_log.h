// Routes gRPC's own messages to this program's log. A peer whose handshake keeps failing causes ten messages a second,
// so each place in gRPC's code may write one line per kGrpcLogEvery, with the number of suppressed messages.
//
// Thread rule: LogOfGrpc or SilenceGrpc once, by a main, before gRPC is used; a GrpcLogGate from one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"

namespace cairn {

inline constexpr absl::Duration kGrpcLogEvery = absl::Seconds(30);

void LogOfGrpc();
// Instead, by the main of a user's program: nothing is written. What fails is told by the status of the call.
void SilenceGrpc();

// Limits the rate of messages. Holds an entry for each place in gRPC that logs: a few hundred at most.
class GrpcLogGate {
 public:
  // The line to write for a message from `place` (file:line): the message, then the place; nullopt: suppressed.
  std::optional<std::string> Pass(std::string_view place, std::string_view message, absl::Time now);

 private:
  struct Place {
    absl::Time written;
    int64_t held = 0;  // suppressed since then
  };
  absl::flat_hash_map<std::string, Place> places_;
};

}  // namespace cairn
