// A store with a planted defect, between a simulated ps and its disk.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "common/storage/kv_store.h"
#include "tests/sim/simulation.h"
#include "tests/sim/world.h"

namespace cairn::sim {

class PlantedStore : public KvStore {
 public:
  struct Hooks {
    std::function<bool()> loses;  // kReplyBeforePersist: this write is lost
    std::function<void()> dies;   // the process ends soon, and loses what it did not store
  };
  PlantedStore(KvStore& disk, World& world, Host& host, PlantedBug bug, Hooks hooks)
      : disk_(disk), world_(world), host_(host), bug_(bug), hooks_(std::move(hooks)) {}

  absl::StatusOr<std::optional<std::string>> Get(std::string_view key) override;
  absl::Status Write(const KvBatch& batch, bool sync) override;
  absl::Status Scan(std::string_view prefix,
                    const std::function<bool(std::string_view, std::string_view)>& fn) override;
  // True: writes that were confirmed to the process are lost with it.
  bool ProcessEnded() { return !std::exchange(late_, {}).empty(); }

 private:
  absl::Status WriteLate(const KvBatch& batch, bool sync);
  void CatchUp();

  struct Late {
    KvBatch batch;
    bool sync = false;
  };
  KvStore& disk_;
  World& world_;
  Host& host_;
  const PlantedBug bug_;
  const Hooks hooks_;
  std::vector<Late> late_;  // kPersistLate: writes that the process believes to be done
};

}  // namespace cairn::sim
