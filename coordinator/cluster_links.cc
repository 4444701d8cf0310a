// Links between two ps: a primary that gets nothing across to a backup, while both of them are there for the
// coordinator. Either no connection lives between the two, or one does, and the backup's ps is busy.
//
// The backup is taken away from the primary's partitions (one generation for all of them, where any of its copies was
// in sync), and another ps takes its place where there is one. The two are not joined again before a time that doubles
// with every loss; then the backup is tried as a copy that has to catch up, which costs no generation unless it does
// catch up and is lost again. So a link that is down, or that flaps, raises a generation at most once in that time. To
// one that is busy the time stays the same: it is over soon, and no fault of the network.
//
// What is known of links is kept in memory alone: after a restart of the coordinator the primaries say it again.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/cluster_core.h"
#include "coordinator/copies.h"

namespace cairn {
namespace {

// Between a loss and the next try.
constexpr absl::Duration kTryAgainMin = absl::Seconds(10);
constexpr absl::Duration kTryAgainMax = absl::Minutes(5);
// A link that was not lost for so long starts with the shortest time again.
constexpr absl::Duration kForgottenAfter = absl::Minutes(30);
static_assert(kForgottenAfter > kTryAgainMax);

std::pair<NodeName, NodeName> LinkOf(const NodeName& a, const NodeName& b) {
  return a < b ? std::pair(a, b) : std::pair(b, a);
}

std::string LinkText(const NodeName& primary, const NodeName& backup, const Job::Loss& loss) {
  if (loss.busy) return absl::StrFormat("ps \"%s\" waits for ps \"%s\", which is busy (%s)", primary, backup, loss.why);
  return absl::StrFormat("ps \"%s\" cannot reach ps \"%s\" (%s)", primary, backup, loss.why);
}

}  // namespace

bool ClusterCore::LinkCut(const NodeName& a, const NodeName& b) const {
  auto it = cut_links_.find(LinkOf(a, b));
  return it != cut_links_.end() && now_ < it->second.until;
}

// What primaries said since the last look. True: copies in sync were taken away, and a new generation is due. `stored`
// is set where others were.
bool ClusterCore::TakeLostAway(Job& job, bool* stored) {
  std::set<std::pair<NodeName, NodeName>> links;
  for (const auto& [copy, loss] : std::exchange(job.lost, {})) {
    const NodeName& primary = job.status.partitions(static_cast<int>(copy.first)).primary();
    // One that is left out has its own troubles: the copies of its backups are what the job goes on from.
    if (UsablePs(job, primary) == nullptr) continue;
    const ClusterNode* backup = members_.Find(copy.second);
    // One that is silent here, too, is no matter of the link: its lease decides. It is reported again.
    if (backup == nullptr || !backup->connected() || now_ - backup->last_heard > 2 * options_.heartbeat_interval)
      continue;
    if (!links.insert({primary, copy.second}).second) continue;
    CutLink& link = cut_links_[LinkOf(primary, copy.second)];
    link.seen = now_;
    link.primary = primary;
    link.backup = copy.second;
    link.why = loss.why;
    link.busy = loss.busy;
    link.over = false;
    if (now_ < link.until) continue;  // another job said so
    link.until =
        now_ + (loss.busy ? kTryAgainMin : std::min(kTryAgainMax, kTryAgainMin * (1 << std::min(link.losses, 8))));
    link.losses += !loss.busy;
    Warn("%s; they are tried again in %s", LinkText(primary, copy.second, loss),
         absl::FormatDuration(link.until - now_));
  }
  if (links.empty()) return false;
  bool raised = false;
  for (v1::PartitionPlacement& p : *job.status.mutable_partitions()) {
    *stored = RemoveBackups(p,
                            [&](const v1::BackupPlacement& b) {
                              if (!links.contains({p.primary(), b.node()})) return false;
                              raised = raised || b.in_sync();
                              job.caught_up.erase({p.partition(), b.node()});
                              return true;
                            }) ||
              *stored;
  }
  return raised;
}

// A backup has caught up. The times stay: it may be lost again soon.
void ClusterCore::NoteReached(const NodeName& primary, const NodeName& backup) {
  if (const auto it = cut_links_.find(LinkOf(primary, backup)); it != cut_links_.end()) it->second.over = true;
}

// A process that was started anew may be reached at another address, or over another network.
void ClusterCore::ForgetLinksOf(const NodeName& ps) {
  std::erase_if(cut_links_, [&](const auto& link) { return link.first.first == ps || link.first.second == ps; });
}

void ClusterCore::ForgetOldLinks() {
  std::erase_if(cut_links_, [&](const auto& link) { return now_ - link.second.seen > kForgottenAfter; });
}

// For as long as a partition lacks a copy for it. Of a ps that is gone other texts speak.
std::string ClusterCore::LinksText(const Job& job) const {
  std::string text;
  if (cut_links_.empty() || job.queued()) return text;
  const int wanted = job.status.spec().backups();
  const auto there = [&](const NodeName& name) {
    const ClusterNode* node = members_.Find(name);
    return node != nullptr && node->connected();
  };
  for (const auto& [ends, link] : cut_links_) {
    if (link.over || !there(ends.first) || !there(ends.second)) continue;
    int lacking = 0;
    for (const v1::PartitionPlacement& p : job.status.partitions()) {
      const bool of_link = p.primary() == ends.first || p.primary() == ends.second;
      const auto in_sync =
          std::count_if(p.backups().begin(), p.backups().end(), [](const auto& b) { return b.in_sync(); });
      lacking += of_link && in_sync < wanted;
    }
    if (lacking == 0) continue;
    absl::StrAppendFormat(
        &text, "%s%s: %d partitions lack a backup; %s", text.empty() ? "" : "; ",
        LinkText(link.primary, link.backup, {link.why, link.busy}), lacking,
        link.busy ? "it is tried again in a moment" : "see the network between them, it is tried again by and by");
  }
  return text;
}

}  // namespace cairn
