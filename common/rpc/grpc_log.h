// gRPC's own messages in this program's log. A peer that never gets through a handshake makes one at every attempt, ten
// a second: of each place in gRPC that speaks, one line in kGrpcLogEvery is written, with the number of those between.
//
// Thread rule: LogOfGrpc once, by a main, before gRPC is used; a GrpcLogGate from one thread at a time.
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

// Which messages are written. Knows as many places as gRPC's library has that speak: some hundred at most.
class GrpcLogGate {
 public:
  // What is to be written of a message of `place` (file:line), if anything is: the message, with the place behind it.
  std::optional<std::string> Pass(std::string_view place, std::string_view message, absl::Time now);

 private:
  struct Place {
    absl::Time written;
    int64_t held = 0;  // since then
  };
  absl::flat_hash_map<std::string, Place> places_;
};

}  // namespace cairn
