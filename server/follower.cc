#include "server/follower.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cairn {

absl::Status Follower::CheckSource(const PartitionConfig& config, uint64_t client) const {
  if (source_ == client) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(config.Name(), ": this backup has no image from this stream; begin with one"));
}

absl::StatusOr<std::optional<Image>> Follower::AddTensor(const PartitionConfig& config, uint64_t client, Frame frame) {
  if (client < newest_) {
    return absl::FailedPreconditionError(
        absl::StrCat(config.Name(), ": an image from an older stream than the last one"));
  }
  newest_ = client;
  return receiver_.Add(config, client, std::move(frame));
}

std::vector<Follower::Ack> Follower::TakeUpTo(uint64_t version) {
  std::vector<Ack> out;
  while (!owed_.empty() && owed_.front().version <= version) {
    out.push_back(owed_.front());
    owed_.pop_front();
  }
  return out;
}

void Follower::ClientGone(uint64_t client) {
  if (receiver_.receiving() && receiver_.client() == client) receiver_.Forget();
  std::erase_if(owed_, [&](const Ack& a) { return a.client == client; });
}

void Follower::Reset() {
  source_ = 0;
  receiver_.Forget();
  owed_.clear();
}

}  // namespace cairn
