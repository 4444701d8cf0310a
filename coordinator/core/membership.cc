#include "coordinator/core/membership.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/limits.h"
#include "common/base/text.h"
#include "common/base/version.h"
#include "common/model/external_check.h"
#include "common/model/limits.h"
#include "coordinator/core/limits.h"

namespace cairn {
namespace {

absl::Status CheckPrograms(const v1::Hello& hello) {
  if (hello.programs_size() > kNodeProgramsMax) {
    return absl::InvalidArgumentError(
        absl::StrFormat("hello.programs: %d are more than %d", hello.programs_size(), kNodeProgramsMax));
  }
  for (const v1::ExternalProgram& program : hello.programs()) {
    if (IsProgramName(program.name()) && IsProgramName(program.version())) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("hello.programs: name and version of a program are 1 to %d letters, digits, '-', '_' and '.'; "
                        "give it such ones",
                        kProgramNameBytesMax));
  }
  return absl::OkStatus();
}

absl::Status RefuseInterface(const v1::Hello& hello, const std::string& other) {
  return absl::InvalidArgumentError(absl::StrCat(
      "hello.interface: \"", hello.name(), "\" is ", ProgramText(hello.version(), InterfaceOf(hello.interface())), ", ",
      other, "; programs of a cluster are at most one interface apart: bring all to one release first"));
}

}  // namespace

absl::Status CheckHello(const v1::Hello& hello) {
  const std::string& name = hello.name();
  const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
  });
  if (name.empty() || name.size() > kNodeNameBytesMax || !plain) {
    return absl::InvalidArgumentError(
        absl::StrFormat("hello.name: must be 1 to %d letters, digits, '-', '_' or '.'; give the node such a --name",
                        kNodeNameBytesMax));
  }
  if (hello.role() != v1::PS && hello.role() != v1::WORKER && hello.role() != v1::EVALUATOR) {
    return absl::InvalidArgumentError(
        absl::StrFormat("hello.role: %d is not one of PS, WORKER, EVALUATOR", hello.role()));
  }
  for (const std::string* text :
       {&hello.address(), &hello.host(), &hello.device(), &hello.fingerprint(), &hello.version()}) {
    if (text->size() > kNodeTextBytesMax) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "hello: address, host, device, fingerprint and version have at most %d bytes each", kNodeTextBytesMax));
    }
  }
  if (const v1::Device kind = hello.device_kind();
      kind != v1::DEVICE_UNSPECIFIED && kind != v1::CPU && kind != v1::GPU) {
    return absl::InvalidArgumentError(absl::StrFormat("hello.device_kind: %d is neither CPU nor GPU", kind));
  }
  if (hello.compute_dtypes_size() > kComputeTypesMax) {
    return absl::InvalidArgumentError(
        absl::StrFormat("hello.compute_dtypes: %d are more than %d", hello.compute_dtypes_size(), kComputeTypesMax));
  }
  CAIRN_RETURN_IF_ERROR(CheckPrograms(hello));
  if (hello.role() == v1::PS && hello.address().empty()) {
    return absl::InvalidArgumentError("hello.address: empty; a ps must say where workers reach it (--advertise)");
  }
  if (hello.role() != v1::PS && (hello.slots() < 1 || hello.slots() > kNodeSlotsMax)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("hello.slots: %d is not between 1 and %d (--slots)", hello.slots(), kNodeSlotsMax));
  }
  return absl::OkStatus();
}

Membership::Membership(const CoordinatorOptions& options, const v1::StoredCluster& stored, absl::Time now)
    : options_(options), expected_until_(now + options.start_grace) {
  for (int i = 0; i < stored.nodes_size(); ++i) {
    const v1::NodeStatus& status = stored.nodes(i);
    ClusterNode& node = Add(status.name());
    SetRole(node, status.role());
    node.address = status.address();
    node.machine = NodeMachine::Of(status);
    node.slots = status.slots();
    node.draining = status.draining();
    if (i < stored.incarnation_size()) node.incarnation = stored.incarnation(i);
    node.lease =
        NodeLease(absl::FromUnixMillis(status.joined_unix_ms()), absl::FromUnixMillis(status.last_heartbeat_unix_ms()));
    if (status.alive()) node.lease.Expect(now, expected_until_);
    Count(node, 1);
  }
}

absl::StatusOr<Membership::Admission> Membership::Admit(SessionToken session, const v1::Hello& hello, absl::Time now) {
  CAIRN_RETURN_IF_ERROR(CheckHello(hello));
  CAIRN_RETURN_IF_ERROR(CheckInterface(hello));
  Admission admission;
  auto it = nodes_.find(hello.name());
  if (it == nodes_.end()) {
    if (nodes_.size() - dead_.size() >= static_cast<size_t>(kNodesMax)) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("the cluster has %d nodes, the most that it can have", kNodesMax));
    }
    Count(Add(hello.name()), 1);
    it = nodes_.find(hello.name());
  } else {
    ClusterNode& known = it->second;
    const bool same_process = known.incarnation == hello.incarnation();
    if (known.alive() && known.role != hello.role()) {
      return absl::AlreadyExistsError(
          absl::StrFormat("hello.name: \"%s\" is a %s of this cluster; choose another --name", hello.name(),
                          known.role == v1::PS ? "ps" : "worker"));
    }
    if (known.connected() && !same_process && now - known.lease.last_heard() < options_.lease) {
      return absl::AlreadyExistsError(
          absl::StrFormat("hello.name: another live node is called \"%s\"; choose another --name", hello.name()));
    }
    admission.superseded = known.lease.session();
    admission.was_alive = known.alive();
    admission.same_process = same_process;
    admission.address_changed = known.address != hello.address();
    if (known.connected()) sessions_.erase(known.lease.session());
  }
  ClusterNode& node = it->second;
  Count(node, -1);
  SetRole(node, hello.role());
  node.address = hello.address();
  node.machine = NodeMachine::Of(hello);
  node.slots = hello.role() == v1::WORKER ? hello.slots() : 0;
  if (!admission.same_process) node.load = {};
  node.incarnation = hello.incarnation();
  if (!admission.same_process) node.fault.clear();
  node.SetFault(std::string(CutUtf8(hello.fault(), kFaultTextMax)), now);
  node.lease.Open(session, now);
  Count(node, 1);
  sessions_[session] = &node;
  admission.node = &node;
  ++changes_;
  Forget(now);
  return admission;
}

ClusterNode& Membership::Add(const NodeName& name) {
  ClusterNode& node = nodes_[name];
  node.name = name;
  by_name_[name] = &node;
  return node;
}

void Membership::SetRole(ClusterNode& node, v1::Role role) {
  by_role_[node.role].erase(node.name);
  node.role = role;
  by_role_[role][node.name] = &node;
}

// by: 1 after a change of the node's lease or interface, -1 before it.
void Membership::Count(const ClusterNode& node, int by) {
  expected_ += node.lease.expected() ? by : 0;
  if (node.alive()) {
    alive_[node.machine.interface] += by;
  } else if (by > 0) {
    dead_.emplace(node.lease.last_heard(), node.name);
  } else {
    dead_.erase({node.lease.last_heard(), node.name});
  }
}

// Pulls and pushes go from node to node, so that nodes must understand each other, too.
absl::Status Membership::CheckInterface(const v1::Hello& hello) const {
  const uint32_t its = InterfaceOf(hello.interface());
  if (!WorkTogether(its, ClusterInterface())) {
    return RefuseInterface(hello,
                           absl::StrCat("the coordinator is ", ProgramText(ProgramVersion(), ClusterInterface())));
  }
  const bool with_all = std::all_of(alive_.begin(), alive_.end(),
                                    [&](const auto& a) { return a.second == 0 || WorkTogether(its, a.first); });
  if (with_all) return absl::OkStatus();
  for (const auto& [name, node] : nodes_) {
    // Also one that may come back: after a restart of the coordinator, all those that it knew.
    if (name == hello.name() || !node.alive() || WorkTogether(its, node.machine.interface)) continue;
    return RefuseInterface(hello, absl::StrCat(node.role == v1::PS ? "ps" : "worker", " \"", name, "\" is ",
                                               ProgramText(node.machine.version, node.machine.interface)));
  }
  return absl::OkStatus();
}

ClusterNode* Membership::Heard(SessionToken session, absl::Time now) {
  auto it = sessions_.find(session);
  if (it == sessions_.end()) return nullptr;
  it->second->lease.Hear(now);
  return it->second;
}

ClusterNode* Membership::Closed(SessionToken session, absl::Time now) {
  auto it = sessions_.find(session);
  if (it == sessions_.end()) return nullptr;
  ClusterNode* node = it->second;
  sessions_.erase(it);
  ++changes_;
  node->lease.Break(now + options_.reopen_grace);
  return node;
}

std::vector<Membership::Death> Membership::Expire(absl::Time now) {
  std::vector<Death> deaths;
  for (auto& [name, node] : nodes_) {
    if (!node.lease.Lapsed(now, options_.lease)) continue;
    Count(node, -1);
    const SessionToken session = node.lease.End();
    Count(node, 1);
    sessions_.erase(session);
    ++changes_;
    node.work = {};
    deaths.push_back({&node, session});
  }
  if (deaths.empty()) Forget(now);
  return deaths;
}

void Membership::Forget(absl::Time now) {
  const auto& kept = options_.dead_nodes_kept;
  while (!dead_.empty() &&
         (dead_.size() > static_cast<size_t>(kept.most) || now - dead_.begin()->first > kept.longest)) {
    const NodeName name = dead_.begin()->second;
    dead_.erase(dead_.begin());
    ++changes_;
    by_role_[nodes_.at(name).role].erase(name);
    by_name_.erase(name);
    nodes_.erase(name);
  }
}

ClusterNode* Membership::Find(const NodeName& name) {
  auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : it->second;
}

const ClusterNode* Membership::Find(const NodeName& name) const {
  auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : it->second;
}

std::vector<ClusterNode*> Membership::Connected(v1::Role role) {
  std::vector<ClusterNode*> result;
  for (const auto& [name, node] : by_role_[role]) {
    if (node->connected()) result.push_back(node);
  }
  return result;
}

void Membership::Save(v1::StoredCluster& stored) const {
  for (const auto& [name, node] : nodes_) {
    FillStatus(node, stored.add_nodes());
    stored.add_incarnation(node.incarnation);
  }
}

std::vector<v1::NodeStatus> Membership::List() const {
  std::vector<v1::NodeStatus> list;
  for (const auto& [name, node] : nodes_) list.push_back(StatusOfNode(node));
  return list;
}

}  // namespace cairn
