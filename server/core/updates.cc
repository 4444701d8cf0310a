#include "server/core/updates.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace cairn {

const Buffer& Updates::Update::Packed(const PartitionConfig& config) {
  if (packed.empty()) packed = config.kind->Pack(config, entry, gradient);
  return packed;
}

Updates::Update& Updates::Accept(v1::LogEntry entry, Buffer gradient) {
  entry.set_generation(copy_.config.generation.value);
  entry.set_version(accepted_version() + 1);
  const v1::DataType dtype = copy_.config.kind->LogDtype(copy_.config);
  if (!gradient.empty() && dtype != v1::FLOAT32) entry.set_dtype(dtype);
  return Add(std::move(entry), std::move(gradient), {});
}

Updates::Update& Updates::Add(v1::LogEntry entry, Buffer gradient, Buffer packed) {
  for (uint32_t r = 0; r < entry.replica_count(); ++r) sequences_[entry.replica_first() + r] = entry.sequence();
  under_way_.push_back({std::move(entry), std::move(gradient), std::move(packed)});
  return under_way_.back();
}

void Updates::Persist(Update& update) {
  // There is no log, at a backup too: recovery would take it for a log that reaches further.
  if (copy_.config.durability == v1::SNAPSHOT) return OnPersisted(update.entry.version());
  copy_.effects.persists.push_back({update.entry, update.Packed(copy_.config), images_.TakeNote()});
}

void Updates::OnPersisted(uint64_t version) {
  CAIRN_CHECK(version <= accepted_version(), "persisted what was never accepted");
  persisted_ = std::max(persisted_, version);
}

void Updates::ApplyNext() {
  Update update = std::move(under_way_.front());
  under_way_.pop_front();
  update.packed = {};  // so that the update can reuse its memory
  ApplyEntry(copy_.config, update.entry, std::move(update.gradient), copy_.state);
}

void Updates::StateReplaced() {
  under_way_.clear();
  sequences_ = copy_.state.sequences;
  persisted_ = copy_.state.version;
}

}  // namespace cairn
