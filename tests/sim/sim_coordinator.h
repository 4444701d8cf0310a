// A simulated coordinator: the production ClusterDriver over its own disk, or one of several among which etcd elects.
//
// Once elected, it leads while its term is valid by its own clock; etcd refuses its writes as soon as another one could
// lead. A leader that was cut off or paused continues, with its nodes, until it notices.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/storage/kv_store.h"
#include "coordinator/node/cluster_driver.h"
#include "tests/sim/disk.h"
#include "tests/sim/network.h"
#include "tests/sim/planted_store.h"
#include "tests/sim/sim_executor.h"

namespace cairn::sim {

class SimCluster;

// The store shared by all coordinators of a run.
struct Etcd {
  Etcd() : host("etcd"), store(NewMemoryKvStore()) { host.up = true; }
  Host host;
  std::unique_ptr<KvStore> store;
  uint64_t term = 0;
  absl::Time lease_until = absl::InfinitePast();
  // The disks of all its members are lost.
  void Replace() {
    store = NewMemoryKvStore();
    lease_until = absl::InfinitePast();
  }
};

class SimCoordinator : private ClusterObserver {
 public:
  SimCoordinator(SimCluster& cluster, int index, Etcd* etcd);  // etcd: null if it is the only coordinator
  ~SimCoordinator() override;

  void Start();
  void End(bool power_loss);
  void ReplaceDisk() {
    if (disk_ != nullptr) disk_->Replace();
  }
  bool up() const { return host_.up; }
  bool leads() const { return core_ != nullptr; }
  Host& host() { return host_; }
  const ClusterCore* core() const { return core_; }

  using ToNode = std::function<void(const v1::CoordinatorMessage&)>;
  void OnHello(const std::shared_ptr<Stream>& stream, const v1::Hello& hello, ToNode to_node);
  void OnMessage(const std::shared_ptr<Stream>& stream, v1::NodeMessage message);
  // A user's call; has no effect if the coordinator is paused or down. If it ends first, the answer is dropped.
  void Call(std::function<Event(ReplyToken)> make_event, ClusterDriver::ReplyFn reply);

 private:
  class Session;  // corresponds to SessionReactor, which has gRPC's stream

  void OnLeads(const ClusterCore* core) override;
  void OnEffect(const Effect& effect) override;
  void Lead();
  absl::StatusOr<Leadership> BeginToLead(uint64_t term);
  std::unique_ptr<KvStore> OpenStore(uint64_t term);
  bool Valid(uint64_t term) const;
  void EndTerm(uint64_t term, const absl::Status& why);
  void Campaign();
  void Renew(uint64_t term);

  SimCluster& cluster_;
  World& world_;
  Host host_;
  SimClock clock_;
  Etcd* const etcd_;
  std::unique_ptr<SimDisk> disk_;                          // set if there is no etcd
  std::unique_ptr<PlantedStore> late_;                     // PlantedBug::kStoreLate
  uint64_t term_ = 0;                                      // the last one that it was elected for
  absl::Time valid_until_ = absl::InfinitePast();          // end of term_ by this host's clock; InfinitePast: given up
  const ClusterCore* core_ = nullptr;                      // while it leads
  std::map<uint64_t, std::shared_ptr<Session>> sessions_;  // by stream
  std::unique_ptr<ClusterDriver> driver_;                  // of the current process
};

}  // namespace cairn::sim
