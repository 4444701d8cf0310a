// Goal: counting job by job gives the same as counting all jobs from scratch, whatever is added and removed.
#include "coordinator/core/usage.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

Job RandomJob(uint64_t id, std::mt19937& rng) {
  const auto pick = [&](int n) { return static_cast<int>(rng() % static_cast<unsigned>(n)); };
  constexpr v1::JobState kStates[] = {v1::QUEUED, v1::STARTING, v1::RUNNING, v1::FINALIZING, v1::SUCCEEDED};
  Job job;
  job.status.set_job_id(id);
  job.status.set_state(kStates[pick(5)]);
  for (int r = pick(4); r > 0; --r) {
    const int w = pick(4);
    job.status.add_replicas()->set_worker(w == 0 ? "" : absl::StrCat("w", w));
  }
  for (int i = pick(3); i > 0; --i) {
    v1::PartitionPlacement& p = *job.status.add_partitions();
    p.set_end(static_cast<uint64_t>(16 * (1 + pick(5))));
    const int ps = pick(3);
    p.set_primary(ps == 0 ? "" : absl::StrCat("p", ps));
    if (pick(2) == 0) continue;
    v1::BackupPlacement& b = *p.add_backups();
    b.set_node("p3");
    b.set_in_sync(pick(2) == 0);
  }
  return job;
}

TEST(Usage, IsWhatCountingAnewGives) {
  for (uint32_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 rng(seed);
    Usage usage;
    std::map<uint64_t, Job> jobs;
    for (int i = 0; i < 60; ++i) {
      const uint64_t id = 1 + rng() % 5;
      if (rng() % 4 == 0) {
        jobs.erase(id);
        usage.Forget(id);
      } else {
        jobs[id] = RandomJob(id, rng);
        usage.Note(jobs[id]);
      }
      for (const char* worker : {"w1", "w2", "w3"}) {
        size_t replicas = 0;
        for (const auto& [other, job] : jobs) {
          if (job.starting() || job.running()) replicas += job.ReplicasOf(worker).size();
        }
        EXPECT_EQ(usage.ReplicasOn(worker), static_cast<int32_t>(replicas)) << worker;
      }
      for (const char* ps : {"p1", "p2", "p3"}) {
        uint64_t bytes = 0;
        for (const auto& [other, job] : jobs) {
          uint64_t own = 0;
          for (const v1::PartitionPlacement& p : job.status.partitions()) {
            own += 4 * p.end() * ((p.primary() == ps) + (p.backups_size() > 0 && p.backups(0).node() == ps));
          }
          EXPECT_EQ(usage.BytesOn(ps, other), own) << ps;
          bytes += own;
        }
        EXPECT_EQ(usage.BytesOn(ps), bytes) << ps;
        int syncing = 0;
        for (const auto& [other, job] : jobs) {
          for (const v1::PartitionPlacement& p : job.status.partitions()) {
            if (job.finished() && p.backups_size() > 0 && !p.backups(0).in_sync())
              syncing += (p.primary() == ps) + (p.backups(0).node() == ps);
          }
        }
        EXPECT_EQ(usage.EndedSyncingOn(ps), syncing) << ps;
      }
      int syncing = 0;
      for (const auto& [other, job] : jobs) {
        for (const v1::PartitionPlacement& p : job.status.partitions()) {
          syncing += job.finished() && p.backups_size() > 0 && !p.backups(0).in_sync();
        }
      }
      EXPECT_EQ(usage.EndedSyncing(), syncing);
    }
  }
}

}  // namespace
}  // namespace cairn
