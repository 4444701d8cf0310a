#include "tests/sim/planted_store.h"

#include <utility>

#include "tests/sim/disk.h"

namespace cairn::sim {

absl::StatusOr<std::optional<std::string>> PlantedStore::Get(std::string_view key) {
  CatchUp();
  return disk_.Get(key);
}

absl::Status PlantedStore::Scan(std::string_view prefix,
                                const std::function<bool(std::string_view, std::string_view)>& fn) {
  CatchUp();
  return disk_.Scan(prefix, fn);
}

absl::Status PlantedStore::Write(const KvBatch& batch, bool sync) {
  if (bug_ == PlantedBug::kReplyBeforePersist && hooks_.loses()) return absl::OkStatus();
  if (bug_ == PlantedBug::kPersistLate) return WriteLate(batch, sync);
  const absl::Status written = disk_.Write(batch, sync && bug_ != PlantedBug::kNoSync);
  if (bug_ != PlantedBug::kIgnoreDiskErrors || written.ok()) return written;
  hooks_.dies();
  return absl::OkStatus();
}

// As a driver that hands the batch to another thread and carries out the effects after it at once.
absl::Status PlantedStore::WriteLate(const KvBatch& batch, bool sync) {
  late_.push_back({SimDisk::Copy(batch), sync});
  world_.AfterOn(host_, world_.rng.Between(absl::Milliseconds(1), absl::Milliseconds(20)), [this] { CatchUp(); });
  return absl::OkStatus();
}

void PlantedStore::CatchUp() {
  for (Late& late : std::exchange(late_, {})) disk_.Write(late.batch, late.sync).IgnoreError();
}

}  // namespace cairn::sim
