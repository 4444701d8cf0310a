// ClusterEnvironment: the world around ClusterDriver: time, its thread, and who looks on. A coordinator's process makes
// one; the simulator makes its own.
#pragma once

#include <functional>
#include <memory>

#include "common/base/clock.h"
#include "common/base/executor.h"
#include "coordinator/core/cluster_core.h"

namespace cairn {

// Looks on while ClusterDriver drives the core. A coordinator has none; the simulator's checkers do.
//
// Thread rule: called on the driver's executor.
class ClusterObserver {
 public:
  virtual ~ClusterObserver() = default;
  // It leads, and core is there until the next call; null: it leads no more.
  virtual void OnLeads(const ClusterCore* core) = 0;
  // The effect is carried out next. What had to be stored before it is stored.
  virtual void OnEffect(const Effect& effect) = 0;
};

struct ClusterEnvironment {
  Clock* clock = nullptr;              // REQUIRED; outlives the driver
  std::unique_ptr<Executor> executor;  // REQUIRED
  // Whenever it begins to lead (true) or ceases to; on the executor, must not block. May be null.
  std::function<void(bool leading)> on_leading;
  ClusterObserver* observer = nullptr;  // outlives the driver
};

}  // namespace cairn
