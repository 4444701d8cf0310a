// The ground of a core (coordinator/core/component.h) with nodes and with jobs in any state, for tests of one part at a
// time. Domain events are not dispatched here: the test sees what was raised.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/core/component.h"

namespace cairn {

struct CoreParts {
  static constexpr int kPartitionEnd = 16;  // numbers in a partition

  explicit CoreParts(int ps = 0, int workers = 0) {
    for (int i = 0; i < ps; ++i) Join(absl::StrCat("ps-", i), v1::PS);
    for (int i = 0; i < workers; ++i) Join(absl::StrCat("worker-", i), v1::WORKER);
    TakeEffects();
  }

  ClusterNode& Join(const std::string& name, v1::Role role) {
    v1::Hello hello;
    hello.set_name(name);
    hello.set_role(role);
    hello.set_incarnation(7);
    if (role == v1::PS) hello.set_address(absl::StrCat(name, ":1"));
    if (role != v1::PS) hello.set_slots(1);
    const auto admission = nodes.Admit(SessionToken(++last_session), hello);
    EXPECT_TRUE(admission.ok()) << admission.status();
    return *nodes.Find(name);
  }

  // Adds a running job of so many partitions, each on a ps ("ps-0" and so on), with `backups` in sync on the next ones.
  Job& AddRunning(int partitions, int backups) {
    Job& job = jobs.Add();
    jobs.Transition(job, v1::QUEUED);
    jobs.Transition(job, v1::STARTING);
    jobs.Transition(job, v1::RUNNING);
    job.status.set_started_unix_ms(1);
    job.status.set_generation(1);
    job.status.set_total_steps(10);
    job.status.set_steps_per_epoch(5);
    job.status.mutable_spec()->set_name("a");
    job.status.mutable_spec()->set_replicas(1);
    job.status.mutable_spec()->set_epochs(2);
    job.status.mutable_spec()->set_backups(backups);
    job.status.mutable_spec()->set_durability(v1::LOGGED_AND_REPLICATED);
    job.status.add_replicas()->set_worker("worker-0");
    job.status.set_chief("worker-0");
    const int ps = static_cast<int>(nodes.Connected(v1::PS).size());
    for (int i = 0; i < partitions; ++i) {
      v1::PartitionPlacement& p = *job.status.add_partitions();
      p.set_partition(static_cast<uint32_t>(i));
      p.set_begin(static_cast<uint64_t>(i * kPartitionEnd));
      p.set_end(static_cast<uint64_t>((i + 1) * kPartitionEnd));
      p.set_primary(absl::StrCat("ps-", i % ps));
      for (int b = 1; b <= backups; ++b) {
        v1::BackupPlacement& backup = *p.add_backups();
        backup.set_node(absl::StrCat("ps-", (i + b) % ps));
        backup.set_in_sync(true);
      }
    }
    job.partitions.hosting.versions.assign(static_cast<size_t>(partitions), 3);
    job.partitions.hosting.held.resize(static_cast<size_t>(partitions));
    job.partitions.hosting.ready.assign(static_cast<size_t>(partitions), true);
    job.progress.emplace(job.status, std::vector<int64_t>{}, std::vector<bool>{}, step.now());
    jobs.Save(job);
    TakeEffects();
    return job;
  }

  // Breaks its session and lets its lease lapse.
  void Lose(const std::string& name) {
    nodes.Closed(nodes.Find(name)->lease.session());
    step.Begin(step.now() + absl::Minutes(10));
    for (ClusterNode* node : nodes.Connected(v1::PS)) nodes.Heard(node->lease.session());
    for (ClusterNode* node : nodes.Connected(v1::WORKER)) nodes.Heard(node->lease.session());
    nodes.Expire();
    TakeEffects();
  }

  Effects TakeEffects() {
    while (step.TakeRaised()) {
    }
    return step.TakeEffects();
  }
  // Returns what was raised of one kind, and drops the rest.
  template <typename T>
  int CountRaised() {
    int count = 0;
    while (const auto event = step.TakeRaised()) count += std::holds_alternative<T>(*event);
    return count;
  }

  uint64_t last_session = 0;
  Ground ground{CoordinatorOptions(), /*incarnation=*/5, StoredState(), absl::FromUnixSeconds(1'000'000)};
  const CoordinatorOptions& options = ground.options;
  StepContext& step = ground.step;
  JobTable& jobs = ground.jobs;
  Nodes& nodes = ground.nodes;
  const Candidates& candidates = ground.candidates;
  Hosting& hosting = ground.hosting;
};

// The effects of one kind, in order.
template <typename T>
std::vector<T> Only(const Effects& effects) {
  std::vector<T> found;
  for (const Effect& effect : effects) {
    if (const T* one = std::get_if<T>(&effect)) found.push_back(*one);
  }
  return found;
}

}  // namespace cairn
