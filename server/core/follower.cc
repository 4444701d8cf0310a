#include "server/core/follower.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/limits.h"
#include "common/tensor/dtype.h"

namespace cairn {
namespace {

v1::LogEntry EntryOf(const Frame& f) {
  v1::LogEntry entry;
  entry.set_generation(f.generation.value);
  entry.set_version(f.version);
  entry.set_replica_first(static_cast<uint32_t>(f.replica_first.value));
  entry.set_replica_count(f.replica_count);
  entry.set_sequence(f.sequence);
  entry.set_examples(f.examples);
  entry.set_learning_rate(f.learning_rate);
  entry.set_ema_overwrite(f.ema_overwrite);
  entry.set_norms(f.scalars);
  entry.set_loss_scale(f.loss_scale);
  entry.set_not_finite(f.not_finite);
  if (f.examples > 0 && f.dtype != v1::FLOAT32) entry.set_dtype(f.dtype);
  if (!f.figures.empty() && !entry.mutable_figures()->ParseFromString(f.figures))
    entry.mutable_figures()->set_epoch(-1);
  return entry;
}

}  // namespace

// ---- updates ----

absl::Status Follower::CheckSource(uint64_t client) const {
  if (source_ == client) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(copy_.config.Name(), ": this backup has no image from this stream; begin with one"));
}

// A backup of an ended job accepts updates that its primary had accepted before the end, as long as it has the slots
// for them.
absl::Status Follower::CheckCanApply() const {
  const PartitionConfig& config = copy_.config;
  const PartitionState& state = copy_.state;
  if (!config.ended) return absl::OkStatus();
  if (images_.writing())
    return absl::UnavailableError(absl::StrCat(config.Name(), ": its last image is being stored; retry"));
  if (state.contents->trainable(config)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(config.Name(), ": the job has ended and its slots are gone; begin again with an image"));
}

absl::Status Follower::CheckUpdate(const Frame& frame, const v1::LogEntry& entry) const {
  if (frame.replica_first.value < 0 || !std::isfinite(frame.learning_rate) ||
      (frame.examples > 0 && BytesOf(frame.dtype, kSpaceAlignment) == 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        copy_.config.Name(), ": update ", frame.version,
        ": replica_first, learning_rate or dtype is not that of an update; all cairn-ps must have the same version"));
  }
  const absl::Status fits =
      CheckEntry(copy_.config, updates_.accepted_version(), updates_.sequences(), entry, frame.payload.size());
  return fits.ok() ? fits : absl::InvalidArgumentError(fits.message());
}

// REPLICATED: as soon as it has arrived.
void Follower::Acknowledge(const BackupAck& ack) {
  if (ack.version <= copy_.state.version || copy_.config.durability == v1::REPLICATED) {
    GiveAck(copy_, ack);
  } else {
    owed_.push_back(ack);
  }
}

absl::Status Follower::TakeUpdate(uint64_t client, Frame& frame) {
  CAIRN_RETURN_IF_ERROR(CheckSource(client));
  const uint64_t accepted = updates_.accepted_version();
  const BackupAck ack{client, frame.request_id, frame.version};
  if (frame.version > accepted + 1) {
    return absl::FailedPreconditionError(absl::StrCat(copy_.config.Name(), ": update ", frame.version,
                                                      " does not follow version ", accepted,
                                                      "; begin again with an image"));
  }
  if (frame.version <= accepted) {
    Acknowledge(ack);
    return absl::OkStatus();
  }
  CAIRN_RETURN_IF_ERROR(CheckCanApply());
  v1::LogEntry entry = EntryOf(frame);
  CAIRN_RETURN_IF_ERROR(CheckUpdate(frame, entry));
  Acknowledge(ack);
  Buffer packed = std::move(frame.payload), gradient = copy_.config.kind->Unpack(copy_.config, entry, packed);
  updates_.Persist(updates_.AcceptReplicated(std::move(entry), std::move(gradient), std::move(packed)));
  return absl::OkStatus();
}

// ---- images ----

absl::StatusOr<std::optional<Image>> Follower::TakeImageTensor(uint64_t client, Frame frame) {
  const PartitionConfig& config = copy_.config;
  if (images_.writing()) {
    return absl::UnavailableError(absl::StrCat(config.Name(), ": an image is being stored; retry"));
  }
  if (client < newest_) {
    return absl::FailedPreconditionError(
        absl::StrCat(config.Name(), ": an image from an older stream than the last one"));
  }
  newest_ = client;
  const uint64_t request_id = frame.request_id;
  CAIRN_ASSIGN_OR_RETURN(std::optional<Image> image, receiver_.Add(config, client, std::move(frame)));
  if (!image) return image;
  Reset();
  source_ = client;
  owed_.push_back({client, request_id, image->header.version()});
  return image;
}

void Follower::GiveAcks(uint64_t version) {
  while (!owed_.empty() && owed_.front().version <= version) {
    GiveAck(copy_, owed_.front());
    owed_.pop_front();
  }
}

void Follower::OnClientGone(uint64_t client) {
  if (receiver_.receiving() && receiver_.client() == client) receiver_.Forget();
  std::erase_if(owed_, [&](const BackupAck& a) { return a.client == client; });
}

void Follower::Reset() {
  source_ = 0;
  receiver_.Forget();
  owed_.clear();
}

}  // namespace cairn
