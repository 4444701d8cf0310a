#include "coordinator/core/copy_watch.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/limits.h"
#include "common/base/text.h"
#include "coordinator/core/limits.h"
#include "coordinator/core/partition_copies.h"

namespace cairn {
namespace {

constexpr absl::Duration kDegradedAfter = absl::Seconds(1);

std::string NamesText(const std::set<NodeName>& names) {
  std::vector<NodeName> shown(names.begin(), names.end());
  const size_t more = shown.size() - std::min(shown.size(), kDegradedNamesMax);
  shown.resize(shown.size() - more);
  return absl::StrCat("\"", absl::StrJoin(shown, "\", \""), "\"",
                      more > 0 ? absl::StrFormat(" and %d more", more) : "");
}

}  // namespace

void CopyWatch::Look(Job& job) {
  JobCopyWatch::Lack lack;
  const int wanted = job.queued() ? 0 : job.status.spec().backups();
  const int possible = std::min(wanted, std::max(0, static_cast<int>(candidates_.PsThere(job)) - 1));
  for (int i = 0; i < job.status.partitions_size(); ++i) {
    const v1::PartitionPlacement& p = job.status.partitions(i);
    const auto has_all = [&](const NodeName& name) {
      return candidates_.UsablePs(job, name) != nullptr &&
             !job.partitions.copies.returned.contains({p.partition(), name});
    };
    const bool loading = job.partitions.hosting.awaiting_ready && !job.partitions.hosting.ready[static_cast<size_t>(i)];
    if (loading || !has_all(p.primary())) ++lack.behind[p.primary()];
    int in_sync = 0;
    for (const v1::BackupPlacement& b : p.backups()) {
      const bool good = b.in_sync() && has_all(b.node());
      in_sync += good;
      if (!good) ++lack.behind[b.node()];
    }
    lack.partitions += in_sync < wanted;
    lack.mendable += in_sync < possible && has_all(p.primary());
  }
  job.partitions.copy_watch.lack = std::move(lack);
}

// Of partitions without any copy that is there none can be made; empty: there are no such ones.
std::string CopyWatch::NoCopyText(const Job& job) {
  if (!job.keeps_updates()) return "";
  int partitions = 0;
  std::set<NodeName> away;
  for (const v1::PartitionPlacement& p : job.status.partitions()) {
    if (candidates_.CopyThere(job, p)) continue;
    ++partitions;
    for (const NodeName& name : HoldersOf(p)) {
      v1::PartitionPlacement copy = p;
      const ClusterNode* node = nodes_.Find(name);
      const bool complete = name == p.primary() || Complete(*FindBackup(copy, name));
      if (complete && (node == nullptr || !node->alive())) away.insert(name);
    }
  }
  if (away.empty()) return "";
  return absl::StrFormat("of %s no copy is there: start ps %s again, on the same data directory",
                         CountText(partitions, "partition"), NamesText(away));
}

// Who will restore the missing copies, or what a user can do.
std::string CopyWatch::MendText(const Job& job) {
  std::set<NodeName> filled, dead;
  for (const v1::PartitionPlacement& p : job.status.partitions()) {
    for (const v1::BackupPlacement& b : p.backups()) {
      const ClusterNode* node = candidates_.UsablePs(job, b.node());
      if (!b.in_sync() && !b.former() && node != nullptr && node->connected()) filled.insert(b.node());
    }
  }
  if (const std::string lost = NoCopyText(job); !lost.empty()) return lost;
  if (!filled.empty()) return absl::StrCat("copies are being filled on ps ", NamesText(filled));
  const size_t there = candidates_.PsThere(job), needed = 1 + static_cast<size_t>(job.status.spec().backups());
  if (there >= needed) return "copies are made as soon as there is capacity";
  for (const auto& [name, node] : nodes_.all()) {
    if (node.role == v1::PS && !node.alive()) dead.insert(name);
  }
  const std::string has = absl::StrFormat("%d ps that may hold copies, %d are needed", there, needed);
  if (dead.empty()) return absl::StrCat(has, ": start another one");
  return absl::StrCat(has, ": start ps ", NamesText(dead), " again, or another one");
}

std::string CopyWatch::DegradedText(const Job& job) {
  const int lack = job.partitions.copy_watch.lack.partitions;
  const std::string lacking = absl::StrFormat("%d of %s", lack, CountText(job.status.partitions_size(), "partition"));
  const std::string what = job.active()
                               ? absl::StrCat(lacking, Verb(lack, " lacks", " lack"), " a backup in sync")
                               : absl::StrCat("the weights of ", lacking, " are on fewer ps than was asked for");
  return absl::StrFormat("%s (backups: %d); %s", what, job.status.spec().backups(), MendText(job));
}

void CopyWatch::UpdateDegraded(Job& job) {
  if (job.partitions.copy_watch.lack.partitions == 0) {
    job.partitions.copy_watch.lacking_since = absl::InfiniteFuture();
    const absl::Time lost_at = std::exchange(job.partitions.copy_watch.lost_at, absl::InfiniteFuture());
    // Of hundreds of ended jobs, only those that were told to be degraded.
    const bool lost = lost_at != absl::InfiniteFuture() && job.status.spec().backups() > 0 && !job.finished();
    if (!job.status.has_degraded() && !lost) return;
    if (job.status.partitions_size() == 0) return job.status.clear_degraded();  // there is nothing left to be kept
    const absl::Duration lasted =
        step_.now() -
        (job.status.has_degraded() ? absl::FromUnixMillis(job.status.degraded().since_unix_ms()) : lost_at);
    job.status.clear_degraded();
    return Say(job, false,
               absl::StrCat("every partition has its backups in sync again, after ",
                            absl::FormatDuration(absl::Trunc(lasted, absl::Milliseconds(100)))));
  }
  job.partitions.copy_watch.lacking_since = std::min(job.partitions.copy_watch.lacking_since, step_.now());
  if (!job.status.has_degraded() && step_.now() - job.partitions.copy_watch.lacking_since < kDegradedAfter) return;
  const bool news = !job.status.has_degraded();
  v1::Degraded degraded = job.status.degraded();
  if (news) degraded.set_since_unix_ms(absl::ToUnixMillis(job.partitions.copy_watch.lacking_since));
  degraded.set_partitions(job.partitions.copy_watch.lack.partitions);
  degraded.set_text(DegradedText(job));
  if (!news && degraded.text() == job.status.degraded().text()) return;
  *job.status.mutable_degraded() = std::move(degraded);
  if (news) {
    Say(job, true, absl::StrCat("degraded: ", job.status.degraded().text()));
  } else {
    jobs_.Changed(job);
  }
}

// Losing a ps may affect hundreds of ended jobs: for these only an event is recorded, no log line.
void CopyWatch::Say(Job& job, bool warning, const std::string& text) {
  if (job.finished()) return jobs_.NoteEvent(job, warning, text);
  jobs_.TellText(job, warning, text);
}

// Copies are checked after all due repairs have been made (Copies::Repair).
void CopyWatch::Tick() {
  for (uint64_t id : std::exchange(due_, {})) {
    Job* job = jobs_.Find(id);
    if (job == nullptr) continue;
    Look(*job);
    UpdateDegraded(*job);
    const bool waits =
        job->partitions.copy_watch.lacking_since != absl::InfiniteFuture() && !job->status.has_degraded();
    if (waits) due_.insert(id);
    readiness_due_ = true;
  }
  if (std::exchange(readiness_due_, false)) TellReadiness();
}

// A ps may be stopped, or the next one restarted, when all ps are ready: then everything that it serves has another
// copy, if possible. Hence a ps is also not ready while partitions of another ps lack a backup that could exist.
void CopyWatch::TellReadiness() {
  std::map<NodeName, std::string> behind;
  std::string lack;
  for (const auto& [name, node] : nodes_.all()) {
    if (node.role == v1::PS && node.lease.expected() && lack.empty())
      lack = absl::StrFormat("nothing has been heard yet from ps \"%s\", since the coordinator was started", name);
  }
  for (const auto& [id, job] : jobs_.all()) {
    for (const auto& [name, partitions] : job.partitions.copy_watch.lack.behind) {
      std::string& why = behind[name];
      if (!why.empty()) continue;
      why = absl::StrFormat("%s of job %d %s not up to date on it yet", CountText(partitions, "partition"), id,
                            Verb(partitions, "is", "are"));
    }
    if (const int mendable = job.partitions.copy_watch.lack.mendable; lack.empty() && mendable > 0) {
      lack = absl::StrFormat("%s of job %d %s a backup in sync", CountText(mendable, "partition"), id,
                             Verb(mendable, "lacks", "lack"));
    }
  }
  for (ClusterNode* ps : nodes_.Connected(v1::PS)) {
    const auto own = behind.find(ps->name);
    const std::string& why = own == behind.end() ? lack : own->second;
    if (ps->work.not_ready == why) continue;
    ps->work.not_ready = why;
    v1::CoordinatorMessage message;
    message.mutable_readiness()->set_why(why);
    step_.Send(*ps, std::move(message));
  }
}

}  // namespace cairn
