#include "server/core/restored_checkpoint.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace cairn {

absl::StatusOr<std::optional<Image>> RestoredCheckpoint::TakeTensor(uint64_t client, Frame frame) {
  CAIRN_RETURN_IF_ERROR(copy_.CheckGeneration(frame.generation));
  CAIRN_RETURN_IF_ERROR(replication_.CheckServes());
  CAIRN_RETURN_IF_ERROR(copy_.CheckTrains());
  if (images_.writing() || !updates_.empty()) {
    return absl::UnavailableError(absl::StrCat(copy_.config.Name(), ": its state is being stored; retry"));
  }
  const uint64_t request_id = frame.request_id;
  CAIRN_ASSIGN_OR_RETURN(std::optional<Image> image, receiver_.Add(copy_.config, client, std::move(frame)));
  if (image) owed_ = {client, request_id, image->header.version()};
  return image;
}

void RestoredCheckpoint::OnReset() {
  if (owed_) GiveAck(copy_, *std::exchange(owed_, std::nullopt));
}

void RestoredCheckpoint::OnClientGone(uint64_t client) {
  if (receiver_.receiving() && receiver_.client() == client) receiver_.Forget();
}

}  // namespace cairn
