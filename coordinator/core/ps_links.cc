#include "coordinator/core/ps_links.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/base/text.h"
#include "coordinator/core/limits.h"

namespace cairn {
namespace {

// The delay between a loss and the next attempt.
constexpr absl::Duration kTryAgainMin = absl::Seconds(10);
// A link that stayed up for this long starts again with the shortest delay.
constexpr absl::Duration kForgottenAfter = absl::Minutes(30);
static_assert(kForgottenAfter > kLinkTryAgainMax);

std::pair<NodeName, NodeName> EndsOf(const NodeName& a, const NodeName& b) {
  return a < b ? std::pair(a, b) : std::pair(b, a);
}

// Goes on after the primary's name.
std::string LossText(const NodeName& backup, const LinkLoss& loss) {
  if (loss.busy) return absl::StrFormat("waits for ps \"%s\", which is busy (%s)", backup, loss.why);
  return absl::StrFormat("cannot reach ps \"%s\" (%s)", backup, loss.why);
}

}  // namespace

std::optional<std::string> PsLinks::NoteLoss(const NodeName& primary, const NodeName& backup, const LinkLoss& loss,
                                             absl::Time now) {
  Link& link = links_[EndsOf(primary, backup)];
  link.seen = now;
  link.primary = primary;
  link.backup = backup;
  link.loss = loss;
  link.over = false;
  if (now < link.until) return std::nullopt;
  const absl::Duration doubled = kTryAgainMin * (1 << std::min(link.losses, kLinkDoublingsMax));
  link.until = now + (loss.busy ? kTryAgainMin : std::min(kLinkTryAgainMax, doubled));
  link.losses += !loss.busy;
  return absl::StrFormat("%s; they are tried again in %s", LossText(backup, loss),
                         absl::FormatDuration(link.until - now));
}

void PsLinks::NoteReached(const NodeName& primary, const NodeName& backup) {
  if (const auto it = links_.find(EndsOf(primary, backup)); it != links_.end()) it->second.over = true;
}

bool PsLinks::Cut(const NodeName& a, const NodeName& b, absl::Time now) const {
  const auto it = links_.find(EndsOf(a, b));
  return it != links_.end() && now < it->second.until;
}

void PsLinks::ForgetPs(const NodeName& ps) {
  std::erase_if(links_, [&](const auto& link) { return link.first.first == ps || link.first.second == ps; });
}

void PsLinks::ForgetOld(absl::Time now) {
  std::erase_if(links_, [&](const auto& link) { return now - link.second.seen > kForgottenAfter; });
}

std::string PsLinks::Text(const v1::JobStatus& job, const std::function<bool(const NodeName&)>& there) const {
  std::string text;
  for (const auto& [ends, link] : links_) {
    if (link.over || !there(ends.first) || !there(ends.second)) continue;
    int lacking = 0;
    for (const v1::PartitionPlacement& p : job.partitions()) {
      const bool of_link = p.primary() == ends.first || p.primary() == ends.second;
      const auto in_sync =
          std::count_if(p.backups().begin(), p.backups().end(), [](const auto& b) { return b.in_sync(); });
      lacking += of_link && in_sync < job.spec().backups();
    }
    if (lacking == 0) continue;
    absl::StrAppendFormat(
        &text, "%sps \"%s\" %s: %s %s a backup; %s", text.empty() ? "" : "; ", link.primary,
        LossText(link.backup, link.loss), CountText(lacking, "partition"), Verb(lacking, "lacks", "lack"),
        link.loss.busy ? "it is tried again shortly" : "check the network between them; it is tried again");
  }
  return text;
}

}  // namespace cairn
