// StepFinder: asks all partitions at which version they are, for a mode that does not know the job's step.
//
// Part of SynchronousMode. Invariants:
//   1. Each partition is asked by one request at a time; an answer to an earlier one is ignored.
//   2. all_found() when each has answered since Start, and again where it was asked again.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "worker/core/replica_context.h"

namespace cairn::replica {

class StepFinder {
 public:
  // owner: of the requests, in their names.
  StepFinder(Context& context, uint32_t owner) : context_(context), owner_(owner) {}

  // All partitions, whatever they are at, after the pause.
  void Start(absl::Duration pause);
  // The partition once more: at this version, or whatever it is at.
  void Again(uint32_t partition, std::optional<uint64_t> version);
  void Stop() { requests_.clear(); }
  // Before it is started once more; the pause grows with each since the last EndAttempts.
  absl::Duration NextPause() { return context_.Pause(attempts_++); }
  void EndAttempts() { attempts_ = 0; }

  enum class Answer {
    kIgnored,  // an old one, or an error: it is asked again
    kGone,     // the version that was asked for is not there any more: the others went on meanwhile
    kFound,
  };
  Answer OnReply(uint32_t partition, Reply& reply);
  // After an assignment; and when a time has come.
  void Resend(const std::vector<char>& moved, bool raised);
  void ResendDue();

  bool all_found() const { return found_ == versions_.size(); }
  const std::vector<uint64_t>& versions() const { return versions_; }  // by partition
  // Of the partitions that are at the version, where the job has one; nullopt: none is there.
  std::optional<float> LossScaleAt(uint64_t version) const;

 private:
  void Send(uint32_t partition);

  Context& context_;
  const uint32_t owner_;
  std::vector<Request> requests_;                // by partition
  std::vector<std::optional<uint64_t>> wanted_;  // by partition: the version that is asked for
  std::vector<uint64_t> versions_;
  std::vector<float> loss_scales_;  // by partition: of versions_
  size_t found_ = 0;
  int attempts_ = 0;
};

}  // namespace cairn::replica
