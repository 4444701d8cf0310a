// The network between simulated hosts: links that are cut in one direction or both, and streams that break.
//
// A Stream behaves like a gRPC stream over TCP: each direction delivers in order, or stops for ever. Invariants:
//   1. Messages arrive in order, each once; after the stream broke for the receiver, nothing arrives.
//   2. On a cut link messages wait; they arrive when it heals, however old, unless the receiver has closed the stream
//      meanwhile.
//   3. Each end learns of a break at a time of its own: by the other end's notice, which a cut link delays, or by a
//      missed keepalive. Messages in flight may still arrive before that: frames of an old stream come late.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/world.h"

namespace cairn::sim {

// The quality of the whole network. Probabilities per message.
struct NetworkFaults {
  double broken = 0;    // the stream that carries the message breaks
  double repeated = 0;  // a worker's request arrives once more, later (a proxy, a retry)
  absl::Duration delay_min = absl::Microseconds(50);
  absl::Duration delay_max = absl::Milliseconds(2);
};

class Network;

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  enum End { kDialer = 0, kListener = 1 };

  // `deliver` runs in the receiver's process when the message arrives. A closed end sends nothing.
  void Send(End from, std::function<void()> deliver);
  // Closes this end and notifies the other one.
  void Close(End end);
  bool open(End end) const { return ends_[end].open; }
  // Runs in the end's process when it learns that the stream is broken; not after its own Close.
  void OnBroken(End end, std::function<void()> fn) { ends_[end].on_broken = std::move(fn); }
  uint64_t id() const { return id_; }
  Host& host(End end) { return *ends_[end].host; }
  bool InProcess(End end) const { return ends_[end].host->up && ends_[end].host->process == ends_[end].process; }
  size_t waiting(End to) const { return ends_[to].incoming.size(); }

 private:
  friend class Network;
  struct Message {
    std::function<void()> deliver;  // empty: the sender's notice that the stream has ended
  };
  struct Endpoint {
    Host* host = nullptr;
    uint64_t process = 0;
    bool open = true;
    std::function<void()> on_broken;
    std::deque<Message> incoming;  // in flight to this end
    absl::Time last_arrival;
    size_t scheduled = 0;  // how many of the first `incoming` have a scheduled arrival
  };

  void Schedule(End to);
  void Arrive(End to);
  void Break(End end);  // the end learns of it now

  Network* network_ = nullptr;
  uint64_t id_ = 0;
  bool dead_ = false;  // a message was lost: no later one may arrive
  Endpoint ends_[2];
};

class Network {
 public:
  explicit Network(World& world) : world_(world) {}
  ~Network();

  // From the dialer's current process to the listener's. Refused (OnBroken soon) if nothing listens; lost if the
  // link is cut.
  std::shared_ptr<Stream> Dial(Host& dialer, Host& listener);

  // Messages from one host to the other stop until Heal.
  void Cut(const Host& from, const Host& to);
  void Heal(const Host& from, const Host& to);
  void HealAll();
  bool Cuts(const Host& from, const Host& to) const { return cuts_.contains({&from, &to}); }
  bool Reaches(const Host& from, const Host& to) const { return !Cuts(from, to) && !Cuts(to, from); }

  // The host's process is paused until then, or its machine busy. It does not notice; its peers may have given it up.
  void StandStill(Host& host, absl::Time until);
  // The process on the host ended: its ends are closed, and the others are notified.
  void ProcessEnded(Host& host);
  // The stream breaks in the network: both ends learn of it, each at its own time.
  void BreakStream(const std::shared_ptr<Stream>& stream);
  // Streams between two hosts that both ends still use.
  std::vector<std::shared_ptr<Stream>> Between(const Host& a, const Host& b) const;

  absl::Duration Delay(const Host& from, const Host& to) {
    return world_.rng.Between(faults.delay_min, faults.delay_max) + from.network_delay + to.network_delay;
  }
  World& world() { return world_; }

  NetworkFaults faults;

 private:
  friend class Stream;
  using Link = std::pair<const Host*, const Host*>;
  void Keepalive(const std::shared_ptr<Stream>& stream, Stream::End end);
  void Forget(uint64_t id);

  World& world_;
  uint64_t next_id_ = 0;
  std::map<uint64_t, std::shared_ptr<Stream>> streams_;  // those with an open end or messages in flight
  std::set<Link> cuts_;
};

}  // namespace cairn::sim
