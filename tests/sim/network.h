// The network between simulated hosts: links that are cut in one direction or both, and streams that break.
//
// A Stream is what a gRPC stream over TCP gives: each direction delivers in order, or stops for ever. Invariants:
//   1. What is sent arrives in order, each message once; after the stream broke for the receiver, nothing arrives.
//   2. On a cut link messages wait; they go on when it heals, however old, unless the receiver has given the stream up
//      meanwhile.
//   3. An end learns of a break at its own time: by the other end's notice, which a cut link holds back, or by its
//      missed keepalive. What was on its way may still arrive before: the frames of an old stream come late.
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

// How bad the network is everywhere.
struct NetworkFaults {
  double broken = 0;    // for one message: the stream that carries it breaks
  double repeated = 0;  // for one request of a worker: it arrives once more, later (a proxy, a retry)
  absl::Duration delay_min = absl::Microseconds(50);
  absl::Duration delay_max = absl::Milliseconds(2);
};

class Network;

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  enum End { kDialer = 0, kListener = 1 };

  // `deliver` runs in the receiver's process when the message arrives. Of an end that is closed nothing is sent.
  void Send(End from, std::function<void()> deliver);
  // This end is given up; the other one learns of it.
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
    std::function<void()> deliver;  // empty: the sender's notice that it is over
  };
  struct Endpoint {
    Host* host = nullptr;
    uint64_t process = 0;
    bool open = true;
    std::function<void()> on_broken;
    std::deque<Message> incoming;  // on the way to this end
    absl::Time last_arrival;
    size_t scheduled = 0;  // arrivals of the first so many of `incoming`
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

  // From the dialer's present process to the listener's. Refused (OnBroken soon) where nothing listens; lost where the
  // link is cut.
  std::shared_ptr<Stream> Dial(Host& dialer, Host& listener);

  // Messages from one host to the other stop until Heal.
  void Cut(const Host& from, const Host& to);
  void Heal(const Host& from, const Host& to);
  void HealAll();
  bool Cuts(const Host& from, const Host& to) const { return cuts_.contains({&from, &to}); }
  bool Reaches(const Host& from, const Host& to) const { return !Cuts(from, to) && !Cuts(to, from); }

  // Its process is stopped, or its machine busy: it goes on as if nothing had been, its peers may have given it up.
  void StandStill(Host& host, absl::Time until);
  // The process on the host ended: its ends are gone, the others learn of it.
  void ProcessEnded(Host& host);
  // The stream breaks on its way: both ends learn of it, each at its time.
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
  std::map<uint64_t, std::shared_ptr<Stream>> streams_;  // with an end that is open, or something on the way
  std::set<Link> cuts_;
};

}  // namespace cairn::sim
