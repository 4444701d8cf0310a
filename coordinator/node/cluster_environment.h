// ClusterEnvironment: what ClusterDriver runs on: its clock, executor and observers. A coordinator process makes one;
// the simulator makes its own.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/executor.h"
#include "coordinator/core/cluster_core.h"

namespace cairn {

// Observes ClusterDriver as it drives the core. A coordinator has none; the simulator's checkers use it.
//
// Thread rule: called on the driver's executor.
class ClusterObserver {
 public:
  virtual ~ClusterObserver() = default;
  // The driver leads, and core lives until the next call; null: it no longer leads.
  virtual void OnLeads(const ClusterCore* core) = 0;
  // The effect is about to be carried out. All Stores before it are durable.
  virtual void OnEffect(const Effect& effect) = 0;
};

struct ClusterEnvironment {
  Clock* clock = nullptr;              // REQUIRED; outlives the driver
  std::unique_ptr<Executor> executor;  // REQUIRED
  // Called whenever the driver begins (true) or ceases to lead; on the executor, must not block. May be null.
  std::function<void(bool leading)> on_leading;
  ClusterObserver* observer = nullptr;  // outlives the driver
  // Called with the tokens whenever it begins to lead or they change, before whoever asked for the change is answered;
  // when it does not lead, with null and the status that callers get. As on_leading. May be null.
  std::function<void(const std::map<std::string, v1::StoredToken>* tokens, const absl::Status& why_none)> on_tokens;
};

}  // namespace cairn
