// Endings: how a job ends, what it failed to deliver, and how long it is kept.
//
// Users name a job by its number or by its name. A name means the one job of that name to which the action can
// apply; where several qualify, the action is refused.
//
// Not thread-safe; one core owns it. Invariants:
//   1. A job ends once; its final state is stored before anyone is told.
//   2. Weights of a job that succeeded are never dropped unless the user asks for it (retention.h).
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "coordinator/core/component.h"
#include "coordinator/core/requester.h"

namespace cairn {

class Endings : Component {
 public:
  explicit Endings(Ground& ground) : Component(ground) {}

  void OnCancel(const CancelJob& event);
  void OnDelete(const DeleteJob& event);

  void End(Job& job, v1::JobState state, std::string reason);
  // All steps are done and the digest is taken. variable_not_finite: a variable with a non-finite weight; empty: none.
  void EndComplete(Job& job, const std::string& variable_not_finite);
  // Updates whether the job's loss is finite, from the newest figures.
  void NoteFinite(Job& job);
  // What a user should know permanently about a job that has run.
  std::string LastingText(const Job& job) const;

  void ForgetEnded();
  // Whether one more job could be kept after its end. RESOURCE_EXHAUSTED says what to do.
  absl::Status CheckRoomForEnded(const Requester& who) const;

 private:
  std::string ShortfallText(const Job& job, const std::string& variable) const;
  void RemoveBackup(Job& job);
  void Forget(uint64_t job_id);
  std::string ForgetReason(const Job& job, int newer) const;
};

}  // namespace cairn
