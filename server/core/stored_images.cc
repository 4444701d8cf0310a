#include "server/core/stored_images.h"

#include <algorithm>
#include <utility>

namespace cairn {

bool StoredImages::in_memory() const {
  const PartitionState& state = copy_.state;
  return copy_.config.durability == v1::SNAPSHOT && state.version > 0 &&
         (state.version > state.image_version || (copy_.config.keep && !synced_));
}

bool StoredImages::Due(const CopyActivity& activity) const {
  const PartitionConfig& config = copy_.config;
  const PartitionState& state = copy_.state;
  if (under_way_ || activity.receiving) return false;
  if (config.ended) {
    return !state.at_rest() && !has_final() && !activity.updating && !activity.restoring && !failed_;
  }
  if (config.durability == v1::SNAPSHOT) return config.keep && in_memory() && !failed_;
  const uint64_t image_bytes = state.contents->image_bytes();
  return !failed_ && state.version > 0 &&
         state.log_bytes >= std::max(config.image.log_bytes_min, config.image.log_to_image_ratio * image_bytes);
}

void StoredImages::Take(const CopyActivity& activity) {
  const PartitionConfig& config = copy_.config;
  const PartitionState& state = copy_.state;
  if (config.ended) {
    if (!Due(activity)) return;
    under_way_ = UnderWay{state.version, state.log_bytes, /*synced=*/true, /*final=*/true};
    copy_.effects.image = MakeFinal();
    return;
  }
  if (under_way_ || activity.receiving || state.version == 0) return;
  if (state.version == state.image_version && !in_memory()) return;
  under_way_ = UnderWay{state.version, state.log_bytes, config.keep};
  // A job that was cancelled in the middle of a step has partitions at two versions. It is exported at the lower one,
  // even after a restart.
  // exported at the lower one.
  const bool last = config.durability == v1::SNAPSHOT && config.keep && config.mode == UpdateMode::kSynchronous;
  copy_.effects.image = MakeImage(config, state, {.previous = last});
}

void StoredImages::OnApplied(const CopyActivity& activity) {
  if (copy_.config.durability == v1::SNAPSHOT && stride_.Due(copy_.state.version, writing())) Take(activity);
}

bool StoredImages::OnWritten(const ImageWrittenEvent& event) {
  if (!under_way_ || under_way_->version != event.version) return false;
  const UnderWay written = *std::exchange(under_way_, std::nullopt);
  failed_ = !event.ok;
  if (!event.ok) return false;
  copy_.state.image_version = event.version;
  copy_.state.log_bytes -= written.log_bytes;
  synced_ = written.synced;
  stride_.Written(event.version, copy_.state.version);
  to_note_ = event.version;
  if (written.final) final_ = event.version;
  return written.final;
}

void StoredImages::StateReplaced() {
  to_note_ = 0;
  final_.reset();
  synced_ = copy_.config.keep && !copy_.config.ended;
}

uint64_t StoredImages::TakeNote() { return std::exchange(to_note_, 0); }

Image StoredImages::MakeFinal() const {
  const bool with_previous = copy_.config.mode == UpdateMode::kSynchronous && !ends_even_;
  return MakeImage(copy_.config, copy_.state, {.training = false, .previous = with_previous});
}

}  // namespace cairn
