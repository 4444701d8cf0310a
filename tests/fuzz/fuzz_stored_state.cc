// What the coordinator reads back at its start, with any field altered: refused with a reason, or a core that lives on
// with it.
//
//   input := state:u8 asynchronous:u8 alterations of the cluster, alterations of the job, op*
#include "coordinator/core/cluster_core.h"
#include "coordinator/core/stored_check.h"
#include "tests/fuzz/alter.h"
#include "tests/fuzz/job_seed.h"

namespace cairn {
namespace {

StoredState Right(v1::JobState state, bool asynchronous) {
  StoredState stored;
  stored.cluster.set_next_job_id(2);
  for (int i = 0; i < 3; ++i) {
    v1::NodeStatus& node = *stored.cluster.add_nodes();
    node.set_name(i < 2 ? "ps" + std::to_string(i) : "worker2");
    node.set_role(i < 2 ? v1::PS : v1::WORKER);
    node.set_alive(true);
    if (i < 2) node.set_address("host:100" + std::to_string(i));
    if (i == 2) node.set_slots(2);
    stored.cluster.add_incarnation(1);
  }
  v1::StoredJob& job = stored.jobs.emplace_back();
  v1::JobStatus& status = *job.mutable_status();
  status.set_job_id(1);
  const absl::StatusOr<CheckedJob> checked = CheckJob(SmallJob(asynchronous));
  MustBeOk(checked.status());
  *status.mutable_spec() = checked->spec;
  status.set_state(state);
  status.set_submitted_unix_ms(1'000'000'000'000);
  *status.mutable_data() = SmallData();
  if (state == v1::QUEUED) return stored;
  status.set_started_unix_ms(1'000'000'001'000);
  status.set_steps_per_epoch(5);
  status.set_total_steps(10);
  status.set_generation(3);
  for (uint32_t i = 0; i < 3; ++i) {
    v1::PartitionPlacement& p = *status.add_partitions();
    p.set_partition(i);
    p.set_begin(i * 64);
    p.set_end((i + 1) * 64);
    p.set_primary("ps" + std::to_string(i % 2));
    p.set_primary_address("host:100" + std::to_string(i % 2));
    v1::BackupPlacement& b = *p.add_backups();
    b.set_node("ps" + std::to_string((i + 1) % 2));
    b.set_address("host:100" + std::to_string((i + 1) % 2));
    b.set_in_sync(i != 2);
  }
  for (int32_t r = 0; r < 2; ++r) {
    status.add_replicas()->set_replica(r);
    status.mutable_replicas(r)->set_worker("worker2");
    job.add_replica_step(3 + r);
    job.add_replica_finished(false);
  }
  job.set_assignment(2);
  return stored;
}

// The nodes of the stored state return, unchanged or with something altered; time passes.
void Live(ByteSource& in, ClusterCore& core, absl::Time now) {
  for (uint64_t session = 1; !in.empty() && session < 64; ++session) {
    const size_t who = in.Below(3);
    switch (in.Below(4)) {
      case 0:
      case 1: {
        v1::Hello hello;
        hello.set_name(who < 2 ? "ps" + std::to_string(who) : "worker2");
        hello.set_role(who < 2 ? v1::PS : v1::WORKER);
        if (who < 2) hello.set_address("host:100" + std::to_string(who));
        if (who == 2) hello.set_slots(2);
        hello.set_incarnation(in.Below(3));
        v1::HeldPartitions& held = *hello.add_held();
        held.set_job_id(1);
        held.set_generation(3);
        for (uint32_t i = 0; i < 3; ++i) {
          held.add_partitions()->set_partition(i);
          held.mutable_partitions(static_cast<int>(i))->set_version(in.Below(6));
          held.mutable_partitions(static_cast<int>(i))->set_backup(i % 2 != who);
        }
        if (in.Below(2) == 1) AlterSome(in, &hello);
        core.Step(NodeUp{SessionToken(session), hello}, now);
        break;
      }
      case 2: {
        v1::NodeMessage message;
        AlterSome(in, &message);
        core.Step(NodeSays{SessionToken(in.Below(8)), message}, now);
        break;
      }
      case 3:
        now += absl::Milliseconds(int64_t{1} << in.Below(20));
        core.Step(Tick{}, now);
        break;
    }
  }
  core.ListJobs(now);
  core.ListNodes();
}

void Check(ByteSource in) {
  static constexpr v1::JobState kStates[] = {v1::QUEUED, v1::STARTING, v1::RUNNING, v1::FINALIZING, v1::SUCCEEDED};
  const v1::JobState state = kStates[in.Below(std::size(kStates))];
  StoredState stored = Right(state, in.Below(2) == 1);
  MustBeOk(CheckStored(stored));
  AlterSome(in, &stored.cluster);
  AlterSome(in, &stored.jobs[0]);
  if (const absl::Status status = CheckStored(stored); !status.ok()) {
    CAIRN_CHECK(status.message().find("key \"") != std::string_view::npos, "an error that names no key");
    return;
  }
  const absl::Time now = absl::FromUnixSeconds(1'000'000'100);
  ClusterCore core(CoordinatorOptions(), 7, stored, now);
  Live(in, core, now);
}

}  // namespace
}  // namespace cairn

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cairn::Check({data, size});
  return 0;
}
