#include "coordinator/core/rollback.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/model/fault_check.h"
#include "coordinator/core/job_facts.h"

namespace cairn {
namespace {

constexpr char kNotTheBest[] = "its ps came back with other weights than those of its best epoch";
constexpr char kNoneLeft[] = ", and no checkpoint is left to take them from; submit the job again";

// The greatest version, up to `most`, that the partition can return to; nullopt: none.
std::optional<uint64_t> ReachableUpTo(const v1::HeldPartition& held, uint64_t most) {
  if (held.version() <= most) return held.version();
  if (held.version_min() <= most) return most;
  std::optional<uint64_t> best;
  for (uint64_t v : held.versions()) {
    if (v <= most && (!best || v > *best)) best = v;
  }
  return best;
}

// Whether a job that is about to end still has all its final weights.
bool AllCameBack(const Job& job) {
  if (!job.finalizing()) return false;
  const bool at_last_step = job.synchronous() && !job.best.restored;
  for (size_t i = 0; i < job.partitions.hosting.held.size(); ++i) {
    const bool known = i < job.end.versions.size();
    if (!known && !at_last_step) return false;
    if (job.partitions.hosting.held[i].version() !=
        (known ? job.end.versions[i] : static_cast<uint64_t>(job.status.total_steps())))
      return false;
  }
  return true;
}

}  // namespace

// Steps have to be repeated.
void Rollback::BackToRunning(Job& job) {
  jobs_.Transition(job, v1::RUNNING);
  job.end.BeginAnew(step_.now());
  step_.Raise(SlotsChanged{});
}

// Called when all primaries of a synchronous job have reported their versions. Returns true if the job cannot continue
// from these: then a new generation rolls them back, or the job failed.
bool Rollback::FallBack(Job& job) {
  uint64_t least = UINT64_MAX, most = 0;
  for (const v1::HeldPartition& at : job.partitions.hosting.held) {
    least = std::min(least, at.version());
    most = std::max(most, at.version());
  }
  job.partitions.rollback.Forget();
  // The best epoch's weights take the place of what there is.
  if (AllCameBack(job) || job.best.restoring) return false;
  if (job.best.restored) {
    const v1::CheckpointInfo* info = BestCheckpoint(job);
    if (least == most && info != nullptr && most == static_cast<uint64_t>(info->step())) return false;
    if (!restores_.RestoreInstead(job, kNotTheBest))
      endings_.End(job, v1::FAILED, absl::StrCat(kNotTheBest, kNoneLeft));
    return true;
  }
  // With a log before the reply no acknowledged update is lost: partitions are at most one update apart, which the
  // workers send again. Without one the workers are ahead even if all partitions agree.
  if (LogsBeforeReply(job.status.spec().durability()) && most - least <= 1) return false;
  std::optional<uint64_t> to = least;
  for (bool lowered = true; lowered && to;) {
    lowered = false;
    for (const v1::HeldPartition& at : job.partitions.hosting.held) {
      const std::optional<uint64_t> reached = ReachableUpTo(at, *to);
      if (reached == to) continue;
      to = reached;
      lowered = true;
      break;
    }
  }
  // Before the first images: the initial values are a function of the seed.
  if (!to && job.status.spec().durability() == v1::SNAPSHOT) to = 0;
  const int64_t step = job.progress ? job.progress->step() : 0;
  if (!to) {
    const std::string why = absl::StrFormat(
        "the ps came back with partitions at versions %d to %d and can take them back to no common one, because they "
        "did not log updates before the reply",
        least, most);
    if (restores_.RestoreInstead(job, why)) return true;
    endings_.End(job, v1::FAILED,
                 absl::StrCat(why, "; submit the job again, with durability: LOGGED_AND_REPLICATED or checkpoints"));
    return true;
  }
  // Just after the coordinator's start it may not be known yet how far the job was.
  const std::string from = step > static_cast<int64_t>(*to) ? absl::StrFormat("from step %d to %d", step, *to)
                                                            : absl::StrFormat("to step %d", *to);
  jobs_.TellWarning(job, "falls back %s: later updates were only in the memory of ps that died", from);
  job.partitions.rollback.to = *to;
  job.partitions.rollback.generation = job.status.generation() + 1;
  job.partitions.rollback.under_way = true;
  job.partitions.hosting.SetVersions(*to);
  if (job.progress) job.progress->RollBack(static_cast<int64_t>(*to), step_.now());
  job.outputs.RollBack();
  if (job.finalizing() && static_cast<int64_t>(*to) < job.status.total_steps()) BackToRunning(job);
  hosting_.BeginCopiesAnew(job);
  hosting_.NewGeneration(job);
  return true;
}

// Each partition of an asynchronous job may have lost updates. Its replicas, including finished ones, continue from
// what the partitions hold. Returns true if a new generation was begun, or the job ended.
bool Rollback::GoOnFromWhatIsLeft(Job& job) {
  if (LogsBeforeReply(job.status.spec().durability()) || AllCameBack(job) || job.best.restoring) return false;
  if (job.best.restored) {
    if (!restores_.RestoreInstead(job, kNotTheBest))
      endings_.End(job, v1::FAILED, absl::StrCat(kNotTheBest, kNoneLeft));
    return true;
  }
  jobs_.TellWarning(
      job,
      "continues from what its ps have kept; updates that were only in the memory of ps that died are computed again");
  job.partitions.rollback.RefuseBefore(job.status.generation());
  if (job.progress) job.progress->RollBack(0, step_.now());
  job.outputs.RollBack();
  job.outputs.checkpoints.ForgetWord();
  if (!job.finalizing()) return false;
  BackToRunning(job);
  job.partitions.rollback.EndCheck();
  job.partitions.rollback.RefuseBefore(job.status.generation() + 1);
  hosting_.NewGeneration(job);  // in which the ps drop what they have
  return true;
}

}  // namespace cairn
