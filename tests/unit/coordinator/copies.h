// Shared by the tests of a job's copies: the job, and short questions about its status.
#pragma once

#include <algorithm>
#include <string>

#include "tests/unit/coordinator/cluster.h"

namespace cairn {

// A job of five steps an epoch and four partitions.
inline v1::JobSpec SpecWithCopies(int epochs, int backups, v1::Durability durability = v1::REPLICATED,
                                  int replicas = 4) {
  v1::JobSpec spec = FakeCluster::Spec(replicas);
  spec.set_epochs(epochs);
  spec.set_backups(backups);
  spec.set_durability(durability);
  return spec;
}

inline int InSync(const v1::JobStatus& job) {
  int count = 0;
  for (const auto& p : job.partitions()) {
    for (const auto& b : p.backups()) count += b.in_sync();
  }
  return count;
}

inline int PrimariesOn(const v1::JobStatus& job, const std::string& ps) {
  return static_cast<int>(
      std::count_if(job.partitions().begin(), job.partitions().end(), [&](auto& p) { return p.primary() == ps; }));
}

// Waits until `what` is true, at most 10 s.
template <typename Condition>
bool Within10s(Cluster& c, Condition what) {
  for (int i = 0; i < 100 && !what(); ++i) c.Pass(absl::Milliseconds(100));
  return what();
}

// The session of ps-0 breaks while ps-1 is dead and the coordinator does not know: ps-1 is promoted and never answers.
inline uint64_t PromoteADeadPs(Cluster& c, v1::JobSpec spec) {
  spec.set_partition_bytes(4 << 20);  // one partition, on ps-0
  const uint64_t id = c.SubmitOk(spec);
  c.Pass(absl::Milliseconds(300));
  c.Train(3);
  c.node("ps-1").silent = true;
  c.BreakSession(c.node("ps-0"));
  EXPECT_TRUE(Within10s(c, [&] { return PrimariesOn(c.Job(id), "ps-1") == 1; }));
  return id;
}

}  // namespace cairn
