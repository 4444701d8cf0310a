// StepClips: clips one step's gradients by norms that span partitions. It collects each partition's shares of the norms
// (common/model/clip_norm.h) and sends the resulting factors back in CLIP requests.
//
// Part of SynchronousMode. Invariants:
//   1. A partition is sent a CLIP only once all shares of its norms have arrived.
//   2. At most one CLIP to a partition is in flight.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/clip_norm.h"
#include "worker/core/replica_context.h"

namespace cairn::replica {

class StepClips {
 public:
  // owner: identifies the requests in their names. by_layer: the answers carry no values.
  StepClips(Context& context, uint32_t owner, bool by_layer) : context_(context), owner_(owner), by_layer_(by_layer) {}

  // A new step begins; all state of the previous one is cleared.
  void Begin(int64_t step);
  void Stop();

  // Takes the norms from an answer to a push or a CLIP. Returns the partitions whose factors became known. Errors:
  // INVALID_ARGUMENT.
  absl::StatusOr<std::vector<uint32_t>> Take(const Frame& frame, uint32_t partition);
  // Sends a CLIP to those of the partitions that are not done and need one.
  void Send(const std::vector<uint32_t>& partitions, const std::vector<char>& done);
  // The partition has made its update.
  void End(uint32_t partition) { requests_[partition] = Request(); }
  // The partition has lost its sum, and with it its share of the norms.
  void Forget(uint32_t partition);
  // Retries: after a new assignment (Resend), and by time (ResendDue).
  void Resend(uint32_t partition, bool moved, bool raised);
  void ResendDue();

  bool Has(uint32_t partition) const { return norms_.Has(partition); }  // its share of the norms
  uint32_t partitions() const { return static_cast<uint32_t>(requests_.size()); }
  Request& request(uint32_t partition) { return requests_[partition]; }

 private:
  void SendOne(uint32_t partition);

  Context& context_;
  const uint32_t owner_;
  const bool by_layer_;
  int64_t step_ = 0;
  NormBook norms_;
  std::vector<Request> requests_;  // by partition
};

}  // namespace cairn::replica
