// CallWatch: finds connections that make more calls than a connection, or a machine, may. gRPC 1.51 holds a client to
// the number of calls that it was told only once the client has confirmed that it heard it; one that never does could
// open calls until no memory is left. gRPC's own counters (channelz) say how many calls there are.
//
// Not thread-safe. Invariants:
//   1. A connection with more than kCallsOfConnectionMax open calls is found at the first look after it has twice as
//      many, at the latest; so is one that has begun twice as many more than kCallsPerSecondMax, also if they have
//      ended: what a call costs that is reset at once (CVE-2023-44487) ends later.
//   2. So are connections of a machine that has more than kCallsOfMachineMax, those with the most calls first, until it
//      has no more without them.
//   3. So are connections of a machine that begins more than kCallsOfMachinePerSecondMax, after
//      kCallsOfMachineAtOnceMax at once: those first that have begun the most since the look before. Calls of
//      connections that ended before a look are not counted here.
//   4. While all connections together keep to the rate of one, and their open calls do not grow by
//      kCallsOfConnectionMax, a look costs one question.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/rpc/limits.h"

namespace cairn {

class CallWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Calls {
    int64_t begun = 0, ended = 0;
    int64_t open() const { return begun - ended; }
  };
  struct Connection {
    int64_t id = 0;
    std::string peer;  // "ipv4:10.0.0.7:4711", "ipv6:[::1]:4711"
    Calls calls;
    int64_t messages = 0;  // that came whole
  };
  // Where the counts come from; GrpcCounters outside of tests.
  class Counters {
   public:
    virtual ~Counters() = default;
    virtual Calls All() = 0;  // of all connections of this process' servers
    virtual std::vector<Connection> Each() = 0;
  };

  explicit CallWatch(Counters& counters) : counters_(counters) {}

  // The connections to end. Call it every kCallWatchEvery, or kBusyWatchEvery.
  std::vector<Connection> Look(Time now);

 private:
  // How many calls may be begun.
  struct Rate {
    int at_once, per_second;
  };
  // What may be begun yet.
  struct Allowance {
    int64_t begun = 0;
    Time at;
    double left = 0;
    bool Take(const Rate& rate, int64_t all_begun, Time now);  // false: too many were begun
  };
  static constexpr Rate kOfConnection = {kCallsOfConnectionMax, kCallsPerSecondMax};
  static constexpr Rate kOfMachine = {kCallsOfMachineAtOnceMax, kCallsOfMachinePerSecondMax};
  struct Counted {
    Connection connection;
    int64_t begun = 0;  // since the look before
  };

  // Moves connections of machines that begin too many calls from `rest` to `out`.
  void TakeFromHastyMachines(Time now, std::vector<Counted>& rest, std::vector<Connection>& out);

  Counters& counters_;
  int64_t usual_ = 0;  // calls that were open when all connections kept to their number
  std::optional<Allowance> all_;
  std::unordered_map<int64_t, Allowance> each_;          // of those that were there at the last look at each
  std::unordered_map<std::string, Allowance> machines_;  // of those that have less left than they may have
  std::optional<Time> each_at_;                          // the last look at each
};

// ByteWatch: finds connections that send more than a message without a call or a message that is whole: gRPC 1.51 keeps
// a call's headers until they end, however long they get (CVE-2023-33953). Not thread-safe.
class ByteWatch {
 public:
  // bytes_max: of a message, and of what gRPC has read beyond it.
  explicit ByteWatch(uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // The connections to end. bytes: what was read of each peer so far.
  std::vector<CallWatch::Connection> Look(const std::vector<CallWatch::Connection>& connections,
                                          const std::unordered_map<std::string, uint64_t>& bytes);

 private:
  struct Seen {
    int64_t progress = 0;
    uint64_t bytes = 0;  // when it was there first
  };

  const uint64_t bytes_max_;
  std::unordered_map<int64_t, Seen> seen_;  // by id, at the last look
};

// Of all gRPC servers of this process.
class GrpcCounters : public CallWatch::Counters {
 public:
  CallWatch::Calls All() override;
  std::vector<CallWatch::Connection> Each() override;
};

}  // namespace cairn
