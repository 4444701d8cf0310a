// RestingValues: keeps the values of an ended job only on the disk (docs/architecture.md#persistence).
//
// Once the final image, which has no slots, has replaced everything else in the store, values and slots are
// dropped from memory: the copy is at rest. A request for values, or a backup that wants an image, triggers a load and
// waits here meanwhile. The values are released when no request waits for them; answers in flight keep their own
// reference.
//
// The slots are gone for good. A job that continues from this one starts from its checkpoint or its exported weights.
//
// Not thread-safe; part of PartitionCore. Invariants:
//   1. While events wait here a load is in progress; when it ends they are all dispatched, in order.
//   2. The number of waiting requests is bounded.
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

  // Whether the event can be handled only with the values. serves: this copy answers clients.
  bool Wants(const PartitionEvent& event, bool serves) const;
  // requests_max: requests beyond it are refused.
  void Defer(PartitionEvent event, size_t requests_max);
  // Returns the events that waited for the values, to be handled now.
  std::deque<PartitionEvent> OnLoaded(LoadedEvent event);
  void LetGo() { copy_.state.contents->Clear(); }
  void OnClientGone(uint64_t client);
  std::vector<PartitionReply> End(const absl::Status& why);
  // Whether an image for a backup waits for the values.
  bool image_waits() const;

 private:
  CopyContext& copy_;
  std::deque<PartitionEvent> deferred_;
  bool loading_ = false;  // a LoadedEvent is pending
};

}  // namespace cairn
