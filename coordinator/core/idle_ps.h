// IdlePs: tells, once, why a ps that has just joined holds nothing while jobs run.
//
// Not thread-safe; one core owns it.
#pragma once

#include <map>

#include "coordinator/core/component.h"

namespace cairn {

class IdlePs : Component {
 public:
  explicit IdlePs(Ground& ground) : Component(ground) {}

  // Call after Copies::Repair.
  void Tick();

 private:
  void Look(const ClusterNode& ps);

  std::map<NodeName, absl::Time> known_;  // connected ps: when they joined, once nothing is to be told of them any more
  absl::Time look_at_ = absl::InfinitePast();
};

}  // namespace cairn
