// A simulated ps: its streams to the backups of its partitions.
#include <set>
#include <utility>

#include "tests/sim/sim_cluster.h"
#include "tests/sim/sim_ps.h"

namespace cairn::sim {

bool SimPs::Wanted(const std::string& address) const {
  for (const auto& [partition, core] : cores_) {
    for (const BackupLink& link : core->links()) {
      if (link.address() == address) return true;
    }
  }
  return false;
}

void SimPs::Connect(const std::string& address) {
  Peer& peer = peers_[address];
  if (peer.exchange == nullptr) return DialPeer(address);
  if (!peer.up) return;
  std::set<uint32_t> partitions;
  for (auto& [partition, core] : cores_) partitions.insert(partition);
  for (uint32_t partition : partitions) Run(partition, LinkUpEvent{address, peer.epoch});
}

void SimPs::DialPeer(const std::string& address) {
  Peer& peer = peers_[address];
  if (peer.exchange != nullptr) return;
  if (!Wanted(address)) {
    peers_.erase(address);
    return;
  }
  const auto again = [this, address] {
    Later(world_.rng.Between(absl::Milliseconds(50), absl::Milliseconds(500)), [this, address] { DialPeer(address); });
  };
  SimPs* ps = cluster_.FindPs(address);
  if (ps == nullptr) return again();
  peer.exchange = std::make_shared<Exchange>(world_, cluster_.network(), host_, ps);
  peer.exchange->GiveErrorFrames();
  peer.epoch = ++last_epoch_;
  peer.up = false;
  peer.exchange->OnBroken([this, address, epoch = peer.epoch, again] {
    auto found = peers_.find(address);
    if (found == peers_.end() || found->second.epoch != epoch) return;
    found->second.exchange = nullptr;
    found->second.up = false;
    std::set<uint32_t> partitions;
    for (auto& [partition, core] : cores_) partitions.insert(partition);
    for (uint32_t partition : partitions) {
      Run(partition, LinkDownEvent{address, epoch});
      auto core = cores_.find(partition);
      if (cluster_.options().bug == PlantedBug::kGoOnAlone && core != cores_.end() && !core->second->config().backup) {
        Run(partition, AssignEvent{core->second->generation(), false, {}});
      }
    }
    again();
  });
  peer.exchange->Open();
  Later(world_.rng.Between(absl::Milliseconds(1), absl::Milliseconds(20)), [this, address, epoch = peer.epoch] {
    auto found = peers_.find(address);
    if (found == peers_.end() || found->second.epoch != epoch || found->second.exchange == nullptr) return;
    found->second.up = true;
    Connect(address);
  });
}

void SimPs::SendToPeer(uint32_t partition, PeerSend send) {
  auto found = peers_.find(send.address);
  if (found == peers_.end() || found->second.epoch != send.epoch || found->second.exchange == nullptr) return;
  const uint64_t request_id = send.frames.front().request_id;
  if (cluster_.options().bug == PlantedBug::kBelieveUnconfirmed &&
      send.frames.front().kind == v1::ExchangeFrame::REPLICATE) {
    Frame ack = send.frames.front();
    ack.kind = v1::ExchangeFrame::ACK;
    ack.payload = {};
    Later(absl::ZeroDuration(), [this, partition, address = send.address, epoch = send.epoch, ack] {
      Run(partition, PeerFrameEvent{address, epoch, ack});
    });
  }
  found->second.exchange->SendAll(std::move(send.frames),
                                  [this, partition, request_id, address = send.address, epoch = send.epoch,
                                   serial = serials_[partition]](absl::StatusOr<Frame> answer) {
                                    auto peer = peers_.find(address);
                                    if (!answer.ok() || peer == peers_.end() || peer->second.epoch != epoch)
                                      return;  // LinkDownEvent says it
                                    if (!cores_.contains(partition) || serials_[partition] != serial)
                                      return;  // another core's
                                    answer->request_id = request_id;
                                    Run(partition, PeerFrameEvent{address, epoch, *std::move(answer)});
                                  });
}

// One partition's image at a time is on its way.
void SimPs::NextImage() {
  for (const auto& [partition, core] : cores_) {
    if (core->sending_image()) return;
  }
  for (const auto& [partition, core] : cores_) {
    if (core->image_to_send(Now())) return Run(partition, SendImageEvent{});
  }
}

}  // namespace cairn::sim
