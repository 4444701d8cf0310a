// StepClips: the clipping of one step's gradients by norms that span partitions: the shares that partitions told of
// their norms (common/model/clip_norm.h), and the CLIPs that take the factors to them.
//
// Part of SynchronousMode. Invariants:
//   1. A partition is sent a CLIP only when all shares of its norms are here.
//   2. One CLIP to a partition is under way at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/clip_norm.h"
#include "worker/core/replica_context.h"

namespace cairn::replica {

class StepClips {
 public:
  // owner: of the requests, in their names. by_layer: the answers are wanted without values.
  StepClips(Context& context, uint32_t owner, bool by_layer) : context_(context), owner_(owner), by_layer_(by_layer) {}

  // Another step begins; everything about the one before is forgotten.
  void Begin(int64_t step);
  void Stop();

  // What an answer to a push or a CLIP says about norms. The partitions whose factors are known by it. Errors:
  // INVALID_ARGUMENT.
  absl::StatusOr<std::vector<uint32_t>> Take(const Frame& frame, uint32_t partition);
  // To those of the partitions that are not done and wait for one.
  void Send(const std::vector<uint32_t>& partitions, const std::vector<char>& done);
  // The partition has made its update.
  void End(uint32_t partition) { requests_[partition] = Request(); }
  // The partition has lost its sum, and with it its share.
  void Forget(uint32_t partition);
  // After an assignment; and when a time has come.
  void Resend(uint32_t partition, bool moved, bool raised);
  void ResendDue();

  bool Has(uint32_t partition) const { return norms_.Has(partition); }  // its share
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
