// PartitionObserver: looks on while PartitionRunner drives the cores. A ps has none; the simulator's checkers do.
//
// Thread rule: called on the slot's lane. What is called for one event of a slot:
//
//   OnEvent            before the core sees it
//   OnEffects          after each step of the core, before anything of it is carried out or stored
//   OnHandled          all is carried out and stored; not where the store failed
#pragma once

#include "server/core/partition_events.h"
#include "server/core/partition_state.h"

namespace cairn {

struct PartitionSlot;

class PartitionObserver {
 public:
  virtual ~PartitionObserver() = default;
  // What the store gave, before a core begins with it: the simulator's planted defects are in how it is left.
  virtual void OnRecovered(const PartitionConfig& config, PartitionState& state) = 0;
  virtual void OnOpened(const PartitionSlot& slot) = 0;  // the slot has a core
  virtual void OnEnding(const PartitionSlot& slot) = 0;  // and now loses it
  virtual void OnEvent(const PartitionSlot& slot, const PartitionEvent& event) = 0;
  virtual void OnEffects(const PartitionSlot& slot, const PartitionEffects& effects) = 0;
  virtual void OnHandled(const PartitionSlot& slot) = 0;
};

}  // namespace cairn
