// ConnectionTable: who has a connection to this daemon, so that no machine takes all of them, or all of the time of the
// thread that accepts them.
//
// Not thread-safe. It does not learn that a connection ended: it looks, when a limit
// is reached, which descriptors are still the sockets that they were. Invariants:
//   1. At most `all_max` sockets that it admitted are open, at most `of_machine_max` of them from one machine.
//   2. It has an entry for each descriptor at most once; entries of closed sockets go when room is needed.
//   3. It looks at most once every kConnectionSweepEvery for a machine, and for all, so that a flood of connections at
//      a limit does not cost a look at all descriptors each. Room is found that much later.
//   4. None of a machine is admitted within kBarredAfterCalls of an End of one of it; longer if that was not the first.
//   5. Of a machine at most kConnectionsPerSecondMax a second are admitted, after kConnectionsAtOnceMax at once.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

namespace cairn {

struct ConnectionLimits {
  size_t all_max = 0;
  size_t of_machine_max = 0;
  uint64_t message_bytes_max = 0;  // of a call's message; 0: what connections send is not looked at
};

// open_files: how many a process may have. Half of them are left to its stores, pages and connections to others, and
// half of the connections to other machines than one.
ConnectionLimits ConnectionLimitsOf(uint64_t open_files);

class ConnectionTable {
 public:
  enum class Outcome { kAdmitted, kTooMany, kTooManyOfMachine, kTooFast, kBarred };

  using Time = std::chrono::steady_clock::time_point;

  explicit ConnectionTable(const ConnectionLimits& limits) : limits_(limits) {}

  // fd: an open socket from that machine, which stays the caller's; another owner may close it at any time after.
  Outcome Admit(int fd, const std::string& machine, Time now);
  // Ends the connection, what it had sent and was not read included, and admits none of its machine for a while. peer:
  // "ipv4:10.0.0.7:4711", "ipv6:[::1]:4711". False: there is no such connection.
  bool End(const std::string& peer, Time now);
  // By peer: what was read of it so far.
  std::unordered_map<std::string, uint64_t> BytesRead() const;
  const ConnectionLimits& limits() const { return limits_; }

 private:
  struct Entry {
    std::string machine;
    ino_t socket;
  };

  struct Machine {
    size_t open = 0;
    std::optional<Time> swept;
    std::optional<Time> barred_until;  // known for kBarsForgottenAfter
    Time::duration barred_for{};       // the last time
    double begun = 0;                  // admitted of late: kConnectionsPerSecondMax fewer a second
    Time begun_at;                     // when it was so many
  };

  bool IsOpen(int fd, const Entry& entry) const;
  void Forget(std::unordered_map<int, Entry>::iterator entry);
  // Forget closed ones, if that was not done just now.
  void SweepMachine(const std::string& machine, Time now);
  void SweepAll(Time now);
  static void Bar(Machine& machine, Time now);
  // Counts one more that is begun. False: they are too many.
  static bool Begin(Machine& machine, Time now);
  // Forgets machines of which nothing is known any more.
  void DropIdle(Time now);

  const ConnectionLimits limits_;
  std::unordered_map<int, Entry> entries_;   // by descriptor
  std::map<std::string, Machine> machines_;  // those with an entry, and those that were there of late
  size_t machines_looked_at_ = 0;            // how many there were after the last DropIdle
  std::optional<Time> swept_;                // all
};

}  // namespace cairn
