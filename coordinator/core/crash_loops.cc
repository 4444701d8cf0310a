#include "coordinator/core/crash_loops.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_format.h"
#include "common/base/limits.h"
#include "coordinator/core/limits.h"

namespace cairn {
// `gone`: it was declared dead, and is not counted again when it comes back.
void CrashLoops::NoteEnd(const NodeName& worker, bool gone) {
  for (auto& [id, job] : jobs_.all()) {
    if (!job.running() || !job.progress) continue;
    const int64_t step = job.progress->step();
    std::erase_if(job.workers.crash_loops.ends, [step](const auto& e) { return e.second.step != step; });
    const auto known = job.workers.crash_loops.ends.find(worker);
    if (known == job.workers.crash_loops.ends.end() && job.ReplicasOf(worker).empty()) continue;
    if (!copies_.WaitText(job).empty()) continue;  // it makes no progress for another reason
    if (!gone && known != job.workers.crash_loops.ends.end() && known->second.gone) {
      known->second.gone = false;
      jobs_.Save(job);
    } else if (!job.ReplicasOf(worker).empty()) {
      JobCrashLoops::Ends& ends = job.workers.crash_loops.ends[worker];
      ends = {step, ends.times + 1, gone};
      jobs_.Save(job);
    }
  }
}

// The worker lost its device and ends its process; its supervisor should restart it soon. Jobs continue without it. A
// job that no other worker can compute waits for it, unless that happened too often at one step.
void CrashLoops::LeaveOutWorkerWithLostDevice(const ClusterNode& worker) {
  for (auto& [id, job] : jobs_.all()) {
    if (!job.running() || !job.progress || job.ReplicasOf(worker.name).empty()) continue;
    JobCrashLoops::Ends& ends = job.workers.crash_loops.ends[worker.name];
    if (ends.step != job.progress->step()) ends = {job.progress->step()};
    ++ends.times;
    const std::string why = absl::StrFormat("worker \"%s\": %s", worker.name, worker.fault);
    if (ends.times >= kCrashesAtOneStepMax && !candidates_.OthersMayWork(job, worker.name)) {
      endings_.End(job, v1::FAILED, absl::StrFormat("%s (%d times at step %d)", why, ends.times, ends.step));
      continue;
    }
    jobs_.TellWarning(job, "continues without %s", why);
    job.workers.left_out.Add(worker.name, worker.incarnation, why);
    step_.Raise(ReasonDue{job.id()});
    jobs_.Changed(job);
    jobs_.Save(job);
  }
}

// The worker is back. The job continues without it if others can work; otherwise it gets its replicas once more.
void CrashLoops::QuarantineCrashLoopingWorker(const ClusterNode& worker) {
  for (auto& [id, job] : jobs_.all()) {
    const auto ends = job.workers.crash_loops.ends.find(worker.name);
    if (ends == job.workers.crash_loops.ends.end() || ends->second.times < kCrashesAtOneStepMax || !job.running())
      continue;
    const std::string why = absl::StrFormat(
        "worker \"%s\": it ended %d times at step %d; its log, or the system's (out of memory?), says why", worker.name,
        ends->second.times, ends->second.step);
    if (ends->second.times == kCrashesAtOneStepMax) {
      AddNote(job, std::max(0, job.status.epochs_size() - 1), "worker", why);
      jobs_.Save(job);
    }
    if (!candidates_.OthersMayWork(job, worker.name)) continue;
    jobs_.TellWarning(job, "continues without %s", why);
    job.workers.left_out.AddCrashLoop(worker.name, worker.incarnation, why);
    step_.Raise(SlotsChanged{});
    step_.Raise(ReasonDue{job.id()});
    jobs_.Save(job);
  }
}

void CrashLoops::Note(SlotsChanged) {
  if (nodes_.Settling()) return;  // others may come back
  for (auto& [id, job] : jobs_.all()) {
    if (!job.running()) continue;
    const auto held_back = [this](const auto& left_out) {  // alive, and not started again since
      const ClusterNode* const node = left_out.second.crash_loop ? nodes_.Find(left_out.first) : nullptr;
      return node != nullptr && node->alive() && node->incarnation == left_out.second.incarnation;
    };
    const auto& left_out = job.workers.left_out.nodes;
    if (std::none_of(left_out.begin(), left_out.end(), held_back)) continue;
    const auto may_work = [this, &of = job](const auto& n) {
      return n.second.role == v1::WORKER && candidates_.MayWork(of, n.second);
    };
    if (std::any_of(nodes_.all().begin(), nodes_.all().end(), may_work)) continue;
    for (const NodeName& worker : job.workers.left_out.ForgiveCrashLoops())
      jobs_.TellWarning(job, "tries worker \"%s\" again: no other can compute the job", worker);
    step_.Raise(ReasonDue{job.id()});
    jobs_.Save(job);
  }
}

}  // namespace cairn
