// PartitionCore and the images that it has stored: when one is due, and what it stands for.
#include <algorithm>

#include "server/partition_core.h"

namespace cairn {

bool PartitionCore::image_due() const {
  if (config_.ended) return !at_rest() && final_image_ != state_.version && Quiet() && !image_failed_;
  if (config_.durability == v1::SNAPSHOT) {
    return config_.keep && in_memory() && !image_under_way_ && !follower_.receiving() && !image_failed_;
  }
  const uint64_t image_bytes = state_.values.size() * (1 + state_.slots.size());
  return !image_under_way_ && !follower_.receiving() && state_.version > 0 &&
         state_.log_bytes >= std::max(config_.image.log_bytes_min, config_.image.log_to_image_ratio * image_bytes);
}

void PartitionCore::OnTakeImage(PartitionEffects& effects) {
  if (config_.ended) {
    if (!image_due()) return;
    image_under_way_ = ImageUnderWay{state_.version, state_.log_bytes, /*synced=*/true, /*final=*/true};
    effects.image = FinalImage();
    return;
  }
  if (image_under_way_ || follower_.receiving() || state_.version == 0) return;
  if (state_.version == state_.image_version && !in_memory()) return;
  image_under_way_ = ImageUnderWay{state_.version, state_.log_bytes, config_.keep};
  // A job that was cancelled in the middle of a step has partitions at two versions: after a restart, too, it is
  // exported at the lower one.
  const bool last = config_.durability == v1::SNAPSHOT && config_.keep && config_.mode == UpdateMode::kSynchronous;
  effects.image = MakeImage(config_, state_, /*with_previous=*/last);
}

void PartitionCore::OnImageWritten(const ImageWrittenEvent& event, PartitionEffects& effects) {
  if (!image_under_way_ || image_under_way_->version != event.version) return;
  image_failed_ = !event.ok;
  if (event.ok) {
    state_.image_version = event.version;
    image_synced_ = image_under_way_->synced;
    snapshots_.Written(event.version, state_.version);
    state_.log_bytes -= image_under_way_->log_bytes;
    image_to_note_ = event.version;
    if (image_under_way_->final) {
      final_image_ = event.version;
      for (const Follower::Ack& ack : follower_.TakeUpTo(event.version)) effects.replies.push_back(MakeAck(ack));
    }
  }
  image_under_way_.reset();
}

}  // namespace cairn
