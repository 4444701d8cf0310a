// Jobs whose copies were taken up again from disks that may be behind: to which version they go back; and what is said
// of copies that are waited for.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model/fault_check.h"
#include "coordinator/cluster_core.h"
#include "coordinator/copies.h"

namespace cairn {
namespace {

constexpr size_t kNamesInReasonMax = 3;
constexpr char kNotTheBest[] = "its ps came back with other weights than those of its best epoch";
constexpr char kNoneLeft[] = ", and no checkpoint is left to take them from; submit the job again";

// The greatest version up to `most` at which the partition can be; nullopt: none.
std::optional<uint64_t> ReachableUpTo(const v1::HeldPartition& held, uint64_t most) {
  if (held.version() <= most) return held.version();
  if (held.version_min() <= most) return most;
  std::optional<uint64_t> best;
  for (uint64_t v : held.versions()) {
    if (v <= most && (!best || v > *best)) best = v;
  }
  return best;
}

}  // namespace

// Whether a job that is about to end has still all that it ends with.
bool ClusterCore::AllCameBack(const Job& job) {
  if (!job.finalizing()) return false;
  const bool at_last_step = job.synchronous() && !job.has_best;
  for (size_t i = 0; i < job.at.size(); ++i) {
    const bool known = i < job.final_versions.size();
    if (!known && !at_last_step) return false;
    if (job.at[i].version() != (known ? job.final_versions[i] : static_cast<uint64_t>(job.status.total_steps())))
      return false;
  }
  return true;
}

// Called when all primaries of a synchronous job have said at which version they are. True: they are not at one that
// the job can go on from, and a new generation takes them to one, or the job failed.
bool ClusterCore::FallBack(Job& job) {
  uint64_t least = UINT64_MAX, most = 0;
  for (const v1::HeldPartition& at : job.at) {
    least = std::min(least, at.version());
    most = std::max(most, at.version());
  }
  job.recovered = job.rolling_back = false;
  if (AllCameBack(job)) return false;
  if (job.has_best) {
    const v1::CheckpointInfo* info = BestCheckpoint(job);
    if (least == most && info != nullptr && most == static_cast<uint64_t>(info->step())) return false;
    if (!RestoreInstead(job, kNotTheBest)) EndJob(job, v1::FAILED, absl::StrCat(kNotTheBest, kNoneLeft));
    return true;
  }
  // With a log before the reply nothing acknowledged is gone: partitions are at most one update apart, which the
  // workers send again. Without one the workers are ahead, even where all partitions agree.
  if (LogsBeforeReply(job.status.spec().durability()) && most - least <= 1) return false;
  std::optional<uint64_t> to = least;
  for (bool lowered = true; lowered && to;) {
    lowered = false;
    for (const v1::HeldPartition& at : job.at) {
      const std::optional<uint64_t> reached = ReachableUpTo(at, *to);
      if (reached == to) continue;
      to = reached;
      lowered = true;
      break;
    }
  }
  if (!to && job.status.spec().durability() == v1::SNAPSHOT) to = 0;  // before the first images: a function of the seed
  const int64_t step = job.progress ? job.progress->step() : 0;
  if (!to) {
    const std::string why = absl::StrFormat(
        "the ps came back with partitions at versions %d to %d and can take them back to no common one, because they "
        "did not log updates before the reply",
        least, most);
    if (RestoreInstead(job, why)) return true;
    EndJob(job, v1::FAILED,
           absl::StrCat(why, "; submit the job again, with durability: LOGGED_AND_REPLICATED or checkpoints"));
    return true;
  }
  TellWarning(job, "falls back from step %d to %d: what came after was in the memory of ps that died", step, *to);
  job.rollback_to = *to;
  job.rollback_generation = job.status.generation() + 1;
  job.rolling_back = true;
  job.version.assign(job.version.size(), *to);
  if (job.progress) job.progress->RollBack(static_cast<int64_t>(*to), now_);
  job.files_until = absl::InfiniteFuture();
  if (job.finalizing() && static_cast<int64_t>(*to) < job.status.total_steps()) BackToRunning(job);
  BeginCopiesAnew(job);
  NewGeneration(job);
  return true;
}

// The partitions of an asynchronous job may each have lost updates: its replicas, also those that had finished, begin
// anew from what the partitions hold. True: a new generation was begun, or the job ended.
bool ClusterCore::GoOnFromWhatIsLeft(Job& job) {
  if (LogsBeforeReply(job.status.spec().durability()) || AllCameBack(job)) return false;
  if (job.has_best) {
    if (!RestoreInstead(job, kNotTheBest)) EndJob(job, v1::FAILED, absl::StrCat(kNotTheBest, kNoneLeft));
    return true;
  }
  TellWarning(
      job,
      "goes on from what its ps have kept; updates that were only in the memory of ps that died are computed again");
  job.rollback_generation = job.status.generation();
  if (job.progress) job.progress->RollBack(0, now_);
  job.checkpoint_heard = absl::InfinitePast();
  job.files_until = absl::InfiniteFuture();
  if (!job.finalizing()) return false;
  BackToRunning(job);
  job.recovered = false;
  job.rollback_generation = job.status.generation() + 1;
  NewGeneration(job);  // in which the ps do not keep what they have
  return true;
}

// ---- reasons ----

// Why partitions are not served; empty: they are.
std::string ClusterCore::CopiesReason(const Job& job) const {
  int waiting = 0;
  std::set<NodeName> away, back;
  for (const v1::PartitionPlacement& p : job.status.partitions()) {
    const bool returned = job.returned.contains({p.partition(), p.primary()});
    if (UsablePs(job, p.primary()) != nullptr && !returned) continue;
    ++waiting;
    for (const NodeName& name : HoldersOf(p)) {
      v1::PartitionPlacement copy = p;
      if (name != p.primary() && !Complete(*FindBackup(copy, name))) continue;
      (job.returned.contains({p.partition(), name}) ? back : away).insert(name);
    }
  }
  if (waiting == 0) return "";
  if (away.size() == 1 && back.empty()) {
    return absl::StrFormat("waits for ps \"%s\" to come back (its data directory holds %d partitions); restart it",
                           *away.begin(), job.PartitionsOn(*away.begin()));
  }
  std::vector<NodeName> names(away.begin(), away.end());
  const size_t more = names.size() - std::min(names.size(), kNamesInReasonMax);
  names.resize(names.size() - more);
  std::string text = absl::StrFormat(
      "waits for ps \"%s\"%s to come back: %d partitions have no other copy that is up to date; restart them",
      absl::StrJoin(names, "\", \""), more > 0 ? absl::StrFormat(" and %d more", more) : "", waiting);
  if (!back.empty()) absl::StrAppend(&text, " (\"", absl::StrJoin(back, "\", \""), "\" lost its memory)");
  return text;
}

}  // namespace cairn
