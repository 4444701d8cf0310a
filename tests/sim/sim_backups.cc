#include "tests/sim/sim_backups.h"

#include <algorithm>
#include <utility>

#include "tests/sim/sim_cluster.h"

namespace cairn::sim {
namespace {

constexpr absl::Duration kPauseMin = absl::Milliseconds(50), kPauseMax = absl::Milliseconds(500);

}  // namespace

SimBackups::SimBackups(SimCluster& cluster, Host& host, std::function<void()> on_broken)
    : cluster_(cluster), world_(cluster.world()), host_(host), on_broken_(std::move(on_broken)) {}

void SimBackups::Keep(const std::set<std::string>& addresses) {
  std::vector<Peer> gone;
  for (auto it = peers_.begin(); it != peers_.end();) {
    if (addresses.contains(it->first)) {
      ++it;
    } else {
      gone.push_back(std::move(it->second));
      it = peers_.erase(it);
    }
  }
  for (const std::string& address : addresses) peers_.try_emplace(address);
  for (Peer& peer : gone) {
    if (peer.exchange != nullptr) peer.exchange->Cancel();
    for (Request& request : peer.waiting) request.done(absl::CancelledError("the backup is not kept"));
  }
}

void SimBackups::Send(const std::string& address, std::vector<Frame> request, Done done) {
  const auto found = peers_.find(address);
  if (found == peers_.end()) return done(absl::CancelledError("no backup at " + address));
  if (cluster_.options().bug == PlantedBug::kBelieveUnconfirmed &&
      request.front().kind == v1::ExchangeFrame::REPLICATE) {
    Frame ack = request.front();
    ack.kind = v1::ExchangeFrame::ACK;
    ack.payload = {};
    world_.AfterOn(host_, absl::ZeroDuration(), [done, ack] { done(ack); });
  }
  Peer& peer = found->second;
  if (peer.exchange != nullptr) return SendNow(address, peer, {std::move(request), std::move(done)});
  peer.waiting.push_back({std::move(request), std::move(done)});
  if (std::exchange(peer.opening, true)) return;
  world_.RunOn(host_, host_.process, std::max(world_.now(), peer.open_at), [this, address] { Open(address); });
}

void SimBackups::SendNow(const std::string& address, Peer& peer, Request request) {
  peer.exchange->SendAll(std::move(request.frames),
                         [this, address, done = std::move(request.done)](absl::StatusOr<Frame> answer) {
                           const auto kept = peers_.find(address);
                           if (answer.ok() && kept != peers_.end()) kept->second.heard = world_.ClockOf(host_);
                           done(std::move(answer));
                         });
}

void SimBackups::Open(const std::string& address) {
  const auto found = peers_.find(address);
  if (found == peers_.end() || !std::exchange(found->second.opening, false)) return;
  Peer& peer = found->second;
  std::vector<Request> waiting = std::exchange(peer.waiting, {});
  SimPs* ps = cluster_.FindPs(address);
  if (ps == nullptr) {
    peer.open_at = world_.now() + world_.rng.Between(kPauseMin, kPauseMax);
    for (Request& request : waiting) request.done(absl::UnavailableError("connection refused"));
    return;
  }
  peer.exchange = std::make_shared<Exchange>(world_, cluster_.network(), host_, ps);
  peer.exchange->GiveErrorFrames();
  peer.exchange->OnBroken([this, address, exchange = peer.exchange.get()] { Broken(address, exchange); });
  for (Request& request : waiting) SendNow(address, peer, std::move(request));
}

// Called before the requests on it are told.
void SimBackups::Broken(const std::string& address, const Exchange* exchange) {
  const auto found = peers_.find(address);
  if (found == peers_.end() || found->second.exchange.get() != exchange) return;
  found->second.exchange = nullptr;
  found->second.open_at = world_.now() + world_.rng.Between(kPauseMin, kPauseMax);
  if (on_broken_) on_broken_();
}

std::map<std::string, PeerState> SimBackups::Peers() const {
  std::map<std::string, PeerState> peers;
  for (const auto& [address, peer] : peers_) {
    peers[address] = {peer.heard, peer.exchange != nullptr && peer.exchange->connected()};
  }
  return peers;
}

}  // namespace cairn::sim
