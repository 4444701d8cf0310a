// JobPartitions: what the core knows of a job's partitions beside their placement (JobStatus.partitions): what the ps
// have answered, which copies came back, are to move or are missing, and to which version all go back.
//
// Vectors "by partition" have an element for each partition of the placement. Each struct is written by its owner, as
// job_parts.h says.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "common/base/ids.h"
#include "coordinator/core/ps_links.h"

namespace cairn {

// Hosting: what the ps have answered in the present generation.
struct JobHosting {
  bool awaiting_ready = false;          // some ps has not answered the HostPartitions of this generation yet
  std::vector<bool> ready;              // by partition, in this generation
  std::vector<uint64_t> versions;       // by partition: the highest that its ps has reported
  std::vector<v1::HeldPartition> held;  // by partition, with `ready`: what its primary said

  // Every ps has answered, or the answers are no longer awaited.
  void EndWait() { awaiting_ready = false; }
  // All partitions continue from `version`; versions reported before are void.
  void SetVersions(uint64_t version) { versions.assign(versions.size(), version); }
  // Another copy serves the partition: the version reported by the previous one is void.
  void SetVersion(uint32_t partition, uint64_t version) { versions[partition] = version; }
};

// Rollback: whether the partitions go back to an earlier version. Stored (StoredJob.rollback_generation and so on).
struct JobRollback {
  uint64_t generation = 0;  // the last one that rolled them back: reports of earlier generations are ignored
  uint64_t to = 0;
  bool under_way = false;
  bool recovered = false;  // a partition was recovered from a disk: the versions have to be checked

  // When all partitions are ready, the version to which they go back has to be determined.
  void NeedsCheck() { recovered = true; }
  // The check was made, or is void.
  void EndCheck() { recovered = false; }
  // Every ps has reported its partitions ready. False: no rollback was under way.
  bool End() { return std::exchange(under_way, false); }
  // Reports of generations before this one are ignored from now on.
  void RefuseBefore(uint64_t present) { generation = present; }
  void Forget() { recovered = under_way = false; }
};

// Reconciler: what ps reported in Hello.
struct JobReconciling {
  // Ps whose process was restarted and has not answered a HostPartitions of the present generation: the partitions in
  // its Hello are those on its disk.
  std::set<NodeName> untold;
};

// Copies: in every state once there are partitions.
struct JobCopies {
  struct Returned {
    absl::Time since;
    std::optional<v1::HeldPartition> held;  // nullopt: not on its disk
  };
  // Copies whose process was restarted and that have had no role since: what their disk holds.
  std::map<std::pair<uint32_t, NodeName>, Returned> returned;
  std::set<std::pair<uint32_t, NodeName>> caught_up;         // backups, as reported in this generation, not stored yet
  std::map<std::pair<uint32_t, NodeName>, LinkLoss> lost;    // backups that their primary cannot reach, likewise
  std::map<uint32_t, NodeName> moves;                        // by partition: where its primary is to move, for balance
  std::map<uint32_t, std::pair<NodeName, NodeName>> shifts;  // by partition: the move of a backup, likewise: from, to
  bool repair_due = true;                                    // something changed since the last Repair
  // For an ended job, pending until its turn (TendEnded): ps came or went; the ps have to be told their roles again, in
  // a new generation.
  bool settle_due = false, renew_due = false;
  absl::Time balance_at = absl::InfinitePast();
  struct Moved {
    std::map<std::pair<NodeName, NodeName>, int> primaries, backups;  // how many from one ps to another
    absl::Time since = absl::InfiniteFuture();
  };
  Moved moved;  // that the job's events do not have yet
  // By partition: a draining ps that was its primary. Its move was noted; its copy is removed later.
  std::map<uint32_t, NodeName> handed_over;
  size_t balanced = 0;  // a hash of the copies and the ps when nothing was to be moved; 0: something was

  // Reports of the previous generation are void.
  void BeginGeneration() {
    caught_up.clear();
    lost.clear();
    repair_due = true;
  }
  void RepairLater() { repair_due = true; }
  void NoteMoved(std::map<std::pair<NodeName, NodeName>, int>& of, const NodeName& from, const NodeName& to,
                 absl::Time now) {
    ++of[{from, to}];
    moved.since = std::min(moved.since, now);
  }
  void SettleLater(bool renew) {
    settle_due = true;
    renew_due = renew_due || renew;
  }
  // The copies are placed again; disks that came back no longer matter.
  void ForgetReturned() { returned.clear(); }
  void BeginAnew() {
    returned.clear();
    moves.clear();
    shifts.clear();
    handed_over.clear();
  }
};

// CopyWatch: which copies were missing at the last look, and since when.
struct JobCopyWatch {
  struct Lack {
    int partitions = 0;              // with fewer backups in sync than the job asks for
    int mendable = 0;                // with fewer than the present ps allow, while their primary serves
    std::map<NodeName, int> behind;  // by ps: partitions that it should hold, but has incomplete or not loaded
  };
  Lack lack;
  absl::Time lacking_since = absl::InfiniteFuture();
  // When copies were lost of which no end was told yet, however soon others replaced them.
  absl::Time lost_at = absl::InfiniteFuture();

  void NoteLoss(absl::Time now) { lost_at = std::min(lost_at, now); }
};

struct JobPartitions {
  JobHosting hosting;
  JobRollback rollback;
  JobReconciling reconciling;
  JobCopies copies;
  JobCopyWatch copy_watch;
};

}  // namespace cairn
