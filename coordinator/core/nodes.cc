#include "coordinator/core/nodes.h"

#include <google/protobuf/arena.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/text.h"
#include "common/base/version.h"
#include "common/model/role_text.h"
#include "coordinator/core/limits.h"

namespace cairn {
namespace {

// A larger cluster is stored at most this often for nodes that may wait.
constexpr size_t kNodesSavedAtOnce = 256;
constexpr absl::Duration kSaveInterval = absl::Milliseconds(500);

// Of one ps: its copies of partitions.
struct CopiesHeld {
  int all = 0, primaries = 0, ended = 0, ended_primaries = 0;

  void Add(bool of_ended_job, bool primary, int copies = 1) {
    all += copies;
    primaries += primary ? copies : 0;
    ended += of_ended_job ? copies : 0;
    ended_primaries += of_ended_job && primary ? copies : 0;
  }
  void Fill(v1::NodeStatus& status) const {
    status.set_partitions(all);
    status.set_primaries(primaries);
    status.set_ended_partitions(ended);
    status.set_ended_primaries(ended_primaries);
  }
};

// What a node calls itself may be anything, and as long as its message.
std::string CalledText(const std::string& name) {
  return absl::StrCat("a node called \"", absl::CHexEscape(name.substr(0, kNodeNameBytesMax)), "\"");
}

}  // namespace

Nodes::Nodes(const CoordinatorOptions& options, uint64_t incarnation, const StoredState& stored, StepContext& step,
             JobTable& jobs)
    : options_(options),
      incarnation_(incarnation),
      cluster_id_(stored.cluster.cluster_id() != 0 ? stored.cluster.cluster_id() : std::max<uint64_t>(1, incarnation)),
      step_(step),
      jobs_(jobs),
      cluster_id_stored_(stored.cluster.cluster_id() != 0),
      members_(options, stored.cluster, step.now()) {}

// ---- sessions ----

absl::StatusOr<Membership::Admission> Nodes::Admit(SessionToken session, const v1::Hello& hello) {
  const absl::Status ours = CheckCluster(hello);
  absl::StatusOr<Membership::Admission> admission = ours.ok() ? members_.Admit(session, hello, step_.now()) : ours;
  if (!admission.ok()) {
    NoteRefusal({CalledText(hello.name()), ""}, std::string(admission.status().message()));
    step_.Emit(CloseSession{session, admission.status()});
    return admission;
  }
  const ClusterNode& node = *admission->node;
  std::erase_if(refusals_.known, [&, who = CalledText(node.name)](const auto& k) { return k.first.who == who; });
  if (admission->superseded.value != 0)
    step_.Emit(CloseSession{admission->superseded, absl::AbortedError("the node opened a newer session")});
  if (!admission->was_alive) {
    const std::string what = node.role == v1::PS
                                 ? absl::StrCat("at ", node.address)
                                 : absl::StrCat(CountText(node.slots, "slot"), ", ", node.machine.device);
    step_.Log(OfNode(node), "joined (%s)", what);
  } else {
    step_.Log(OfNode(node), "%s", admission->same_process ? "is connected again" : "was restarted");
  }
  return admission;
}

void Nodes::Welcome(const ClusterNode& node) {
  v1::CoordinatorMessage message;
  v1::Welcome& welcome = *message.mutable_welcome();
  welcome.set_heartbeat_interval_ms(static_cast<int32_t>(absl::ToInt64Milliseconds(options_.heartbeat_interval)));
  welcome.set_lease_ms(static_cast<int32_t>(absl::ToInt64Milliseconds(options_.lease)));
  welcome.set_coordinator_incarnation(incarnation_);
  welcome.set_cluster_id(cluster_id_);
  welcome.set_version(ProgramVersion());
  welcome.set_interface(ClusterInterface());
  if (!cluster_id_stored_) Save();
  step_.Send(node, std::move(message));
}

// A ps drops the jobs that its coordinator does not know, so the coordinator must be the one that assigned them.
absl::Status Nodes::CheckCluster(const v1::Hello& hello) const {
  if (hello.cluster_id() == 0 || hello.cluster_id() == cluster_id_) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("hello.cluster_id: the data directory of ps \"%s\" holds jobs of cluster %016x, this "
                      "coordinator's cluster is %016x; check the ps' "
                      "--coordinator and this coordinator's --data-dir or --state; if what the ps holds is not needed, "
                      "start it with an empty --data-dir",
                      absl::CHexEscape(hello.name().substr(0, kNodeNameBytesMax)), hello.cluster_id(), cluster_id_));
}

void Nodes::OnRefused(const NodeRefused& event) {
  const std::string from = event.from.empty() ? "this machine" : absl::CHexEscape(event.from);
  // A node that had not said its name is known by its machine.
  const Refused node = event.name.empty() ? Refused{absl::StrCat("a node from ", from), ""}
                                          : Refused{CalledText(event.name), absl::StrCat("(from ", from, ") ")};
  NoteRefusal(node, event.why);
}

// The node retries every second.
void Nodes::NoteRefusal(const Refused& node, std::string why) {
  why.resize(CutUtf8(why, kEventTextMax).size());
  const auto known = refusals_.known.find(node);
  if (known != refusals_.known.end() && known->second == why) return;
  AllowRefusals();
  if (refusals_.left == 0) {
    ++refusals_.left_out;
    return;
  }
  --refusals_.left;
  if (refusals_.known.size() >= kRefusalsKept && known == refusals_.known.end()) refusals_.known.clear();
  step_.Warn({}, "%s was refused: %s%s", node.who, node.from, why);
  refusals_.known[node] = std::move(why);
}

// One more for each kRefusalsTime, and what was left out until then.
void Nodes::AllowRefusals() {
  if (refusals_.left == kRefusalsToldMax) refusals_.since = step_.now();
  const int64_t more = (step_.now() - refusals_.since) / kRefusalsTime;
  if (more <= 0) return;
  refusals_.since += more * kRefusalsTime;
  refusals_.left = static_cast<int>(std::min<int64_t>(refusals_.left + more, kRefusalsToldMax));
  if (refusals_.left_out == 0) return;
  step_.Warn({}, "nodes were refused %d more times within %s, with names or reasons that are not shown",
             std::exchange(refusals_.left_out, 0), absl::FormatDuration(kRefusalsTime));
}

// ---- queries ----

std::string Nodes::FaultsText() const {
  std::string text;
  for (const auto& [name, node] : members_.nodes()) {
    if (node.alive() && node.role == v1::PS && !node.fault.empty())
      absl::StrAppendFormat(&text, "; ps \"%s\": %s", name, node.fault);
  }
  return text;
}

v1::ListNodesResponse Nodes::List() const {
  v1::ListNodesResponse response;
  // In one pass: there may be many jobs with many partitions, and many ps.
  absl::flat_hash_map<NodeName, CopiesHeld> held;
  for (const auto& [id, job] : jobs_.all()) {
    for (const v1::PartitionPlacement& p : job.status.partitions()) {
      held[p.primary()].Add(job.finished(), true);
      for (const v1::BackupPlacement& b : p.backups()) held[b.node()].Add(job.finished(), false);
    }
  }
  for (const v1::NodeStatus& node : members_.List()) {
    v1::NodeStatus& status = *response.add_nodes() = StatusWithoutPartitions(node.name());
    if (status.role() == v1::PS) held[node.name()].Fill(status);
  }
  return response;
}

v1::NodeStatus Nodes::StatusWithoutPartitions(const NodeName& name) const {
  const ClusterNode& node = *members_.Find(name);
  v1::NodeStatus status = StatusOfNode(node);
  // A node from before the coordinator's restart that is still awaited is shown neither as alive nor as dead.
  status.set_expected(node.lease.expected());
  if (node.lease.expected()) {
    status.set_alive(false);
    status.clear_last_heartbeat_unix_ms();
    status.clear_not_ready();
  }
  if (node.role != v1::PS) status.set_slots_used(std::min(node.slots, jobs_.usage().ReplicasOn(name)));
  return status;
}

v1::NodeStatus Nodes::StatusOf(const NodeName& name) const {
  v1::NodeStatus status = StatusWithoutPartitions(name);
  if (status.role() != v1::PS) return status;
  CopiesHeld held;
  for (const auto& [id, job] : jobs_.all()) {
    const int primaries = job.PrimariesOn(name);
    held.Add(job.finished(), true, primaries);
    held.Add(job.finished(), false, job.PartitionsOn(name) - primaries);
  }
  held.Fill(status);
  return status;
}

// ---- stored state ----

// Restarted ps whose copies wait for others that may have more updates. Only this process knows that: after a restart
// of the coordinator they must be treated as restarted again. So their incarnation is not stored before that is
// settled.
std::set<NodeName> Nodes::Unsettled() const {
  std::set<NodeName> names;
  for (const auto& [id, job] : jobs_.all()) {
    for (const auto& [copy, returned] : job.partitions.copies.returned) names.insert(copy.second);
    for (const NodeName& ps : job.partitions.reconciling.untold) {
      if (job.active() && job.UsesPs(ps)) names.insert(ps);
    }
  }
  return names;
}

void Nodes::Save() {
  save_due_ = false;
  saved_at_ = step_.now();
  google::protobuf::Arena arena;
  v1::StoredCluster& stored = *google::protobuf::Arena::CreateMessage<v1::StoredCluster>(&arena);
  stored.set_next_job_id(jobs_.next_id());
  stored.set_cluster_id(cluster_id_);
  stored.set_version(ProgramVersion());
  stored.set_interface(ClusterInterface());
  cluster_id_stored_ = true;
  members_.Save(stored);
  unsettled_stored_ = Unsettled();
  for (int i = 0; i < stored.incarnation_size(); ++i) {
    if (unsettled_stored_.contains(stored.nodes(i).name())) stored.set_incarnation(i, 0);
  }
  step_.Emit(cairn::Store{kClusterKey, stored.SerializeAsString()});
}

void Nodes::SaveSoon() {
  if (members_.nodes().size() <= kNodesSavedAtOnce) return Save();
  save_due_ = true;
}

void Nodes::Tick() {
  AllowRefusals();
  if (save_due_ && step_.now() - saved_at_ >= kSaveInterval) Save();
}

void Nodes::SaveIfSettled() {
  if (Unsettled() != unsettled_stored_) Save();
}

}  // namespace cairn
