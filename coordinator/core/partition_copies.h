// Helpers for the copies of one partition, shared by the parts of the core that deal with them.
//
// Stateless; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cairn/v1/job_status.pb.h"
#include "common/base/ids.h"

namespace cairn {

inline v1::BackupPlacement* FindBackup(v1::PartitionPlacement& p, const NodeName& node) {
  for (v1::BackupPlacement& b : *p.mutable_backups()) {
    if (b.node() == node) return &b;
  }
  return nullptr;
}

// Returns whether any was removed.
template <typename Predicate>
bool RemoveBackups(v1::PartitionPlacement& p, Predicate gone) {
  auto& backups = *p.mutable_backups();
  const auto end = std::remove_if(backups.begin(), backups.end(), gone);
  if (end == backups.end()) return false;
  backups.erase(end, backups.end());
  return true;
}

// Whether the copy has every acknowledged update.
inline bool Complete(const v1::BackupPlacement& b) { return b.in_sync() || b.former(); }

inline int BackupsInSync(const v1::PartitionPlacement& p) {
  return static_cast<int>(
      std::count_if(p.backups().begin(), p.backups().end(), [](const auto& b) { return b.in_sync(); }));
}

inline uint64_t BytesOf(const v1::PartitionPlacement& p) { return (p.end() - p.begin()) * sizeof(float); }

// The primary first.
inline std::vector<NodeName> HoldersOf(const v1::PartitionPlacement& p) {
  std::vector<NodeName> holders{p.primary()};
  for (const v1::BackupPlacement& b : p.backups()) holders.push_back(b.node());
  return holders;
}

}  // namespace cairn
