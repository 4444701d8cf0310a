// CopyWatch: what partitions lack of copies: what a user is told of it (JobStatus.degraded), and which ps may be
// counted on (Readiness).
//
// Looked at where copies or nodes have changed, once a Tick: a job at most once, and readiness by what was seen of each
// job. A lack that is mended within a second is not worth a word: copies of a new job, moves for balance. Readiness
// knows no such time.
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
  explicit CopyWatch(const Ground& ground) : Component(ground) {}

  void Note(CopiesChanged event) { due_.insert(event.job); }
  void Note(ReadinessDue) { readiness_due_ = true; }
  // After what is due was done for the copies (Copies::Repair).
  void Tick();

 private:
  void Look(Job& job);
  std::string MendText(const Job& job);
  std::string DegradedText(const Job& job);
  void UpdateDegraded(Job& job);
  void Say(Job& job, bool warning, const std::string& text);
  void TellReadiness();

  std::set<uint64_t> due_;
  bool readiness_due_ = false;
};

}  // namespace cairn
