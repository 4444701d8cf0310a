#include "coordinator/core/idle_ps.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/base/text.h"

namespace cairn {
namespace {

constexpr absl::Duration kLookEvery = absl::Seconds(2);
// By then every running job has been looked at for moves to it (Copies::PlanMoves).
constexpr absl::Duration kLookAfter = absl::Seconds(6);
// How long it is waited for copies that are filled, or for a drain: nothing moves for balance until then.
constexpr absl::Duration kLookUntil = absl::Minutes(1);

}  // namespace

void IdlePs::Tick() {
  if (step_.now() < look_at_) return;
  look_at_ = step_.now() + kLookEvery;
  std::erase_if(known_, [&](const auto& known) {
    const ClusterNode* node = nodes_.Find(known.first);
    return node == nullptr || !node->alive();
  });
  for (const ClusterNode* ps : nodes_.Connected(v1::PS)) {
    const auto known = known_.find(ps->name);
    if (known != known_.end() && known->second == ps->lease.joined()) continue;
    if (step_.now() - ps->lease.joined() >= kLookAfter) Look(*ps);
  }
}

void IdlePs::Look(const ClusterNode& ps) {
  int running = 0, unsettled = 0;
  bool holds = false;
  for (const auto& [id, job] : jobs_.all()) {
    holds = holds || job.UsesPs(ps.name);
    running += job.running();
    unsettled += job.running() && job.partitions.copies.balanced == 0;
  }
  const absl::Duration age = step_.now() - ps.lease.joined();
  if (!holds && unsettled > 0 && age < kLookUntil) return;
  known_[ps.name] = ps.lease.joined();
  // One that joined long ago is known: this coordinator has begun to lead later.
  if (holds || running == 0 || ps.leaving() || age >= kLookUntil + kLookEvery) return;
  if (unsettled > 0) {
    return step_.Log(OfNode(ps), "holds no partitions yet: copies of %s are being filled or moved before",
                     CountText(unsettled, "running job"));
  }
  step_.Log(OfNode(ps),
            "holds no partitions: %s %s, since a move would bring no balance (one of a single partition, or of "
            "as many as there were ps, moves none); new jobs use it",
            CountText(running, "running job"), Verb(running, "keeps its partitions", "keep theirs"));
}

}  // namespace cairn
