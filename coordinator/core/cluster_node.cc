#include "coordinator/core/cluster_node.h"

#include <cmath>
#include <utility>

#include "common/base/version.h"

namespace cairn {
namespace {

constexpr absl::Duration kLoadIntervalMin = absl::Milliseconds(100);

// Hello and NodeStatus have the same fields.
template <typename Message>
NodeMachine MachineOf(const Message& said) {
  NodeMachine machine;
  machine.host = said.host();
  machine.device = said.device();
  if (said.device_kind() != v1::DEVICE_UNSPECIFIED) machine.device_kind = said.device_kind();
  for (const int type : said.compute_dtypes()) machine.compute_dtypes.push_back(static_cast<v1::DataType>(type));
  machine.programs.assign(said.programs().begin(), said.programs().end());
  machine.programs_only = said.programs_only();
  machine.version = said.version();
  machine.interface = InterfaceOf(said.interface());
  return machine;
}

}  // namespace

NodeMachine NodeMachine::Of(const v1::Hello& hello) {
  NodeMachine machine = MachineOf(hello);
  machine.fingerprint = hello.fingerprint();
  machine.serves_log = hello.serves_log();
  machine.serves_trace = hello.serves_trace();
  return machine;
}

NodeMachine NodeMachine::Of(const v1::NodeStatus& stored) { return MachineOf(stored); }

void NodeLoad::Note(const v1::Heartbeat& heartbeat, absl::Time now) {
  memory_bytes_ = heartbeat.memory_bytes();
  if (now - noted_ < kLoadIntervalMin) return;  // the network held the one before up
  const double reported = heartbeat.cpu_seconds();
  const double before = std::exchange(cpu_seconds_, std::isfinite(reported) && reported > 0 ? reported : 0);
  const absl::Time noted = std::exchange(noted_, now);
  processors_.reset();
  if (before > 0 && cpu_seconds_ >= before && now > noted)
    processors_ = (cpu_seconds_ - before) / absl::ToDoubleSeconds(now - noted);
}

void NodeLoad::Fill(v1::NodeStatus& status) const {
  if (memory_bytes_) status.set_memory_bytes(*memory_bytes_);
  if (processors_) status.set_processors(*processors_);
}

v1::NodeStatus StatusOfNode(const ClusterNode& node) {
  v1::NodeStatus status;
  FillStatus(node, &status);
  return status;
}

void FillStatus(const ClusterNode& node, v1::NodeStatus* empty) {
  v1::NodeStatus& status = *empty;
  status.set_name(node.name);
  status.set_role(node.role);
  status.set_address(node.address);
  status.set_alive(node.alive());
  status.set_slots(node.slots);
  status.set_device(node.machine.device);
  status.set_host(node.machine.host);
  status.set_version(node.machine.version);
  status.set_interface(node.machine.interface);
  if (node.alive()) node.load.Fill(status);
  status.set_last_heartbeat_unix_ms(absl::ToUnixMillis(node.lease.last_heard()));
  status.set_joined_unix_ms(absl::ToUnixMillis(node.lease.joined()));
  status.set_draining(node.draining);
  status.set_fault(node.fault);
  if (node.role == v1::PS && node.alive())
    status.set_not_ready(node.work.not_ready.value_or("it has only just joined"));
  if (node.role != v1::PS) status.set_device_kind(node.machine.device_kind);
  status.mutable_compute_dtypes()->Assign(node.machine.compute_dtypes.begin(), node.machine.compute_dtypes.end());
  status.mutable_programs()->Assign(node.machine.programs.begin(), node.machine.programs.end());
  status.set_programs_only(node.machine.programs_only);
}

}  // namespace cairn
