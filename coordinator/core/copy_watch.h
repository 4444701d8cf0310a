// CopyWatch: which partitions lack copies. It reports this to users (JobStatus.degraded) and tells each ps whether it
// is ready (Readiness).
//
// Jobs whose copies or nodes have changed are examined at each Tick, once each; readiness follows from the results. A
// shortage that is repaired within a second is not reported as one: copies of a new job, moves for balance. The end of
// a loss is told, however short it was, unless the job has ended. Readiness has no such delay.
//
// Not thread-safe; one core owns it.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "coordinator/core/component.h"

namespace cairn {

class CopyWatch : Component {
 public:
  explicit CopyWatch(Ground& ground) : Component(ground) {}

  void Note(CopiesChanged event) { due_.insert(event.job); }
  void Note(ReadinessDue) { readiness_due_ = true; }
  // Call after Copies::Repair.
  void Tick();

 private:
  void Look(Job& job);
  std::string NoCopyText(const Job& job);
  std::string MendText(const Job& job);
  std::string DegradedText(const Job& job);
  void UpdateDegraded(Job& job);
  void Say(Job& job, bool warning, const std::string& text);
  void TellReadiness();

  std::set<uint64_t> due_;
  bool readiness_due_ = false;
};

}  // namespace cairn
