// PartitionObserver: observes PartitionRunner as it drives the cores. A ps has none; the simulator's checkers use it.
//
// Thread rule: called on the slot's lane. The calls for one event of a slot:
//
//   OnEvent            before the core sees it
//   OnEffects          after each step of the core, before its effects are carried out or stored
//   OnHandled          when all effects are carried out and stored; not called if the store failed
#pragma once

#include "server/core/partition_events.h"
#include "server/core/partition_state.h"

namespace cairn {

struct PartitionSlot;

class PartitionObserver {
 public:
  virtual ~PartitionObserver() = default;
  // The recovered state, before a core begins with it. The simulator plants defects by changing it.
  virtual void OnRecovered(const PartitionConfig& config, PartitionState& state) = 0;
  virtual void OnOpened(const PartitionSlot& slot) = 0;  // the slot has got a core
  virtual void OnEnding(const PartitionSlot& slot) = 0;  // the slot is about to lose its core
  virtual void OnEvent(const PartitionSlot& slot, const PartitionEvent& event) = 0;
  virtual void OnEffects(const PartitionSlot& slot, const PartitionEffects& effects) = 0;
  virtual void OnHandled(const PartitionSlot& slot) = 0;
};

}  // namespace cairn
