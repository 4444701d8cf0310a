// Workers whose process ends again and again while a job stands still: what it asks may be more than their machine has
// memory for. The system kills such a worker before it can say a word, and what started it starts it again. What is
// counted is stored: the coordinator may share the machine, and end with it.
#include <algorithm>

#include "absl/strings/str_format.h"
#include "coordinator/cluster_core.h"

namespace cairn {
namespace {

constexpr int kEndsMax = 3;  // at one step

}  // namespace

// `gone`: it was declared dead, and is not counted once more when it comes back.
void ClusterCore::NoteEnd(const NodeName& worker, bool gone) {
  for (auto& [id, job] : jobs_) {
    if (!job.running() || !job.progress) continue;
    const int64_t step = job.progress->step();
    std::erase_if(job.ends, [step](const auto& e) { return e.second.step != step; });
    if (!CopiesReason(job).empty()) continue;  // it stands still for another reason
    const auto known = job.ends.find(worker);
    if (!gone && known != job.ends.end() && known->second.gone) {
      known->second.gone = false;
      StoreJob(job);
    } else if (!job.ReplicasOf(worker).empty()) {
      Job::Ends& ends = job.ends[worker];
      ends = {step, ends.times + 1, gone};
      StoreJob(job);
    }
  }
}

// It has lost its device: it ends itself, and is there again soon, if what started it does its part. Jobs go on without
// it; one that nobody else can compute waits for it, unless that was too often at one step.
void ClusterCore::LeaveOutWhoLostDevice(const ClusterNode& worker) {
  for (auto& [id, job] : jobs_) {
    if (!job.running() || !job.progress || job.ReplicasOf(worker.name).empty()) continue;
    Job::Ends& ends = job.ends[worker.name];
    if (ends.step != job.progress->step()) ends = {job.progress->step()};
    ++ends.times;
    const std::string why = absl::StrFormat("worker \"%s\": %s", worker.name, worker.fault);
    if (ends.times >= kEndsMax && !OthersMayWork(job, worker.name)) {
      EndJob(job, v1::FAILED, absl::StrFormat("%s (%d times at step %d)", why, ends.times, ends.step));
      continue;
    }
    TellWarning(job, "goes on without %s", why);
    job.left_out[worker.name] = {worker.incarnation, why};
    UpdateReason(job);
    Changed(job);
    StoreJob(job);
  }
}

// The worker is there again. The job goes on without it where others can work; where nobody else can, it gets its
// replicas once more.
void ClusterCore::LeaveOutWhoEnds(const ClusterNode& worker) {
  for (auto& [id, job] : jobs_) {
    const auto ends = job.ends.find(worker.name);
    if (ends == job.ends.end() || ends->second.times < kEndsMax || !job.running()) continue;
    const std::string why = absl::StrFormat(
        "worker \"%s\": it ended %d times at step %d; its log, or the system's (out of memory?), says why", worker.name,
        ends->second.times, ends->second.step);
    if (ends->second.times == kEndsMax) {
      AddNote(job, std::max(0, job.status.epochs_size() - 1), "worker", why);
      StoreJob(job);
    }
    if (!OthersMayWork(job, worker.name)) continue;
    TellWarning(job, "goes on without %s", why);
    job.left_out[worker.name] = {worker.incarnation, why};
    reschedule_ = true;
    UpdateReason(job);
    StoreJob(job);
  }
}

}  // namespace cairn
