// StepFinder: asks all partitions for their version, for a mode that does not know the job's step.
//
// Part of SynchronousMode. Invariants:
//   1. At most one request per partition is in flight; an answer to an earlier one is ignored.
//   2. all_found() holds once every partition has answered its latest request since Start.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "worker/core/replica_context.h"

namespace cairn::replica {

class StepFinder {
 public:
  // owner: identifies the requests in their names.
  StepFinder(Context& context, uint32_t owner) : context_(context), owner_(owner) {}

  // Asks all partitions for any version, after the pause.
  void Start(absl::Duration pause);
  // Asks the partition once more, for this version or any.
  void Again(uint32_t partition, std::optional<uint64_t> version);
  void Stop() { requests_.clear(); }
  // The back-off before the next Start; grows with each call since the last EndAttempts.
  absl::Duration NextPause() { return context_.backoff.Pause(attempts_++); }
  void EndAttempts() { attempts_ = 0; }

  enum class Answer {
    kIgnored,  // stale, or an error: the request is retried
    kGone,     // the requested version no longer exists: other workers have moved on
    kFound,
  };
  Answer OnReply(uint32_t partition, Reply& reply);
  // Retries: after a new assignment (Resend), and by time (ResendDue).
  void Resend(const std::vector<char>& moved, bool raised);
  void ResendDue();

  bool all_found() const { return found_ == versions_.size(); }
  const std::vector<uint64_t>& versions() const { return versions_; }  // by partition
  // The loss scale of partitions at this version, where the job has one; nullopt: none is at it.
  std::optional<float> LossScaleAt(uint64_t version) const;

 private:
  void Send(uint32_t partition);

  Context& context_;
  const uint32_t owner_;
  std::vector<Request> requests_;                // by partition
  std::vector<std::optional<uint64_t>> wanted_;  // by partition: the requested version; nullopt: any
  std::vector<uint64_t> versions_;
  std::vector<float> loss_scales_;  // by partition: at versions_
  size_t found_ = 0;
  int attempts_ = 0;
};

}  // namespace cairn::replica
