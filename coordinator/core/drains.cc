#include "coordinator/core/drains.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/text.h"
#include "common/model/role_text.h"

namespace cairn {

// Logs that its partitions or replicas are about to move. Schedule logs the moves themselves.
void Drains::TellDrain(const ClusterNode& node) {
  for (auto& [id, job] : jobs_.all()) {
    const int partitions = job.active() ? job.PartitionsOn(node.name) : 0;
    if (partitions == 0) continue;
    jobs_.Tell(job, "ps \"%s\" %s", node.name,
               node.draining
                   ? absl::StrFormat("is drained: its copies of %s move to others", CountText(partitions, "partition"))
                   : "is not drained any more");
  }
}

// A ps reports that its store is unusable, or a worker that its device is lost: it gets no more work, and what it has
// moves away, as if it were drained.
void Drains::NoteFault(ClusterNode& node, const std::string& fault) {
  if (node.fault == fault) return;
  node.SetFault(fault, step_.now());
  const char* const what = node.role == v1::PS ? "partitions" : "replicas";
  if (!fault.empty()) step_.Warn(OfNode(node), "has failed and is given no %s: %s", what, fault);
  if (!fault.empty() && node.role == v1::WORKER) crash_loops_.LeaveOutWorkerWithLostDevice(node);
  step_.Raise(SlotsChanged{});
}

void Drains::OnDrain(const DrainNode& event) {
  const NodeName& name = event.request.name();
  ClusterNode* node = nodes_.Find(name);
  if (node == nullptr) {
    return step_.ReplyError(event.reply, absl::NotFoundError(absl::StrFormat(
                                             "there is no node \"%s\"; see `cairn nodes`", name.substr(0, 63))));
  }
  if (!(node->role == v1::PS ? event.rights.ps : event.rights.workers)) {
    return step_.ReplyError(event.reply, absl::PermissionDeniedError(absl::StrFormat(
                                             "%s \"%s\": your certificate is that of another kind of node; see "
                                             "docs/security.md",
                                             RoleText(node->role), name)));
  }
  const bool draining = !event.request.undo();
  if (draining && node->role == v1::PS && nodes_.StatusOf(name).partitions() > 0) {
    const std::vector<ClusterNode*> all = nodes_.Connected(v1::PS);
    const bool others =
        std::any_of(all.begin(), all.end(), [&](const ClusterNode* n) { return n->name != name && !n->leaving(); });
    if (!others) {
      return step_.ReplyError(
          event.reply, absl::FailedPreconditionError(absl::StrFormat(
                           "ps \"%s\" holds partitions, and no other ps is there to take them; start one", name)));
    }
  }
  if (node->draining != draining) {
    node->draining = draining;
    nodes_.Save();
    step_.Log(OfNode(*node), "%s", draining ? "is drained" : "may work again");
    if (node->role == v1::PS) TellDrain(*node);
    step_.Raise(SlotsChanged{});
  }
  step_.Emit(Reply{event.reply, absl::OkStatus(), nodes_.StatusOf(name)});
}

}  // namespace cairn
