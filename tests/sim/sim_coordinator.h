// A simulated coordinator: ClusterCore over a disk of its own, or one of several that an etcd elects.
//
// Elected, it leads while its term is valid by its own clock; a write is refused by etcd from the moment on at which
// another one could lead. A leader that is cut off, or stood still, goes on until it finds out, and its nodes with it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/storage/kv_store.h"
#include "coordinator/core/cluster_core.h"
#include "tests/sim/disk.h"
#include "tests/sim/network.h"

namespace cairn::sim {

class SimCluster;

// The store that all coordinators of a run share.
struct Etcd {
  Etcd() : host("etcd"), store(NewMemoryKvStore()) { host.up = true; }
  Host host;
  std::unique_ptr<KvStore> store;
  uint64_t term = 0;
  absl::Time lease_until = absl::InfinitePast();
  // All its members' disks are lost.
  void Replace() {
    store = NewMemoryKvStore();
    lease_until = absl::InfinitePast();
  }
};

class SimCoordinator {
 public:
  SimCoordinator(SimCluster& cluster, int index, Etcd* etcd);  // etcd: null where it is the only one

  void Start();
  void End(bool power_loss);
  void ReplaceDisk() {
    if (disk_ != nullptr) disk_->Replace();
  }
  bool up() const { return host_.up; }
  bool leads() const { return core_ != nullptr; }
  Host& host() { return host_; }
  ClusterCore* core() { return core_.get(); }

  using ToNode = std::function<void(const v1::CoordinatorMessage&)>;
  void OnHello(const std::shared_ptr<Stream>& session, const v1::Hello& hello, ToNode to_node);
  void OnMessage(const std::shared_ptr<Stream>& session, const v1::NodeMessage& message);
  void Call(Event event);  // a user's; nothing happens where it does not lead

 private:
  struct Session {
    std::shared_ptr<Stream> stream;
    ToNode to_node;
    std::string node;
  };
  void Lead(KvStore& store);
  void StandBy(const std::string& why);
  void Campaign();
  void Renew();
  void Tick(uint64_t reign);
  void Step(const Event& event);
  bool Carry(Effect& effect);
  bool Write(const Store& store);
  bool MayAct() const;
  void CloseSession(uint64_t token);
  absl::Time Now() const;

  SimCluster& cluster_;
  World& world_;
  Host host_;
  Etcd* const etcd_;
  std::unique_ptr<SimDisk> disk_;  // where there is no etcd
  std::unique_ptr<ClusterCore> core_;
  uint64_t reign_ = 0;                    // counts times of leading
  uint64_t term_ = 0;                     // etcd's
  absl::Time valid_until_;                // by this host's clock
  std::map<uint64_t, Session> sessions_;  // by stream
};

}  // namespace cairn::sim
