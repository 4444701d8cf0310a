// RestingValues: the values of a job that has ended are on the disk alone (docs/architecture.md#persistence).
//
// Nobody trains it any more. Once its last image, of the values alone, is in the store in place of all that was there,
// values and slots leave the memory: the copy is at rest. A request for values, or a backup that wants an image, has
// them loaded and waits here meanwhile; they are released when nobody waits for them. Answers that are on their way
// keep their own reference to them.
//
// The slots are gone then. A job that continues from this one starts from its checkpoint or its exported weights.
//
// Not thread-safe; part of PartitionCore. Invariants:
//   1. While anything waits here a load is under way; all of it is dispatched, in order, when that has ended.
//   2. The number of requests that wait is bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "server/core/copy_context.h"

namespace cairn {

class RestingValues {
 public:
  explicit RestingValues(CopyContext& copy) : copy_(copy) {}

  // The event can be handled only with the values. serves: this copy answers clients.
  bool Wants(const PartitionEvent& event, bool serves) const;
  // requests_max: more are refused.
  void Defer(PartitionEvent event, size_t requests_max);
  // The events that waited for it, to be handled now.
  std::deque<PartitionEvent> OnLoaded(LoadedEvent event);
  void LetGo() { copy_.state.contents->Clear(); }
  void OnClientGone(uint64_t client);
  std::vector<PartitionReply> End(const absl::Status& why);
  // An image that a backup wants waits for the values.
  bool image_waits() const;

 private:
  CopyContext& copy_;
  std::deque<PartitionEvent> deferred_;
  bool loading_ = false;  // LoadedEvent comes
};

}  // namespace cairn
