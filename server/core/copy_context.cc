#include "server/core/copy_context.h"

namespace cairn {

Frame CopyContext::MakeFrame(v1::ExchangeFrame::Kind kind, uint64_t request_id) const {
  Frame frame;
  frame.kind = kind;
  frame.request_id = request_id;
  frame.job = config.job;
  frame.partition = config.partition;
  frame.generation = config.generation;
  return frame;
}

PartitionReply CopyContext::MakeError(uint64_t client, uint64_t request_id, const absl::Status& status) const {
  PartitionReply reply{client, MakeFrame(v1::ExchangeFrame::ERROR, request_id)};
  reply.frame.version = state.version;
  reply.frame.status = status;
  return reply;
}

absl::Status CopyContext::CheckGeneration(Generation generation) const {
  if (generation < config.generation) {
    return absl::FailedPreconditionError(absl::StrCat("generation ", generation.value,
                                                      " is fenced: the partition is in ", config.generation.value,
                                                      "; wait for a new assignment"));
  }
  if (generation > config.generation) {
    return absl::UnavailableError(absl::StrCat(
        "generation ", generation.value, " has not reached this ps, which is in ", config.generation.value, "; retry"));
  }
  return absl::OkStatus();
}

absl::Status CopyContext::CheckTrains() const {
  if (!config.ended) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(config.Name(), ": the job has ended; only its values are kept"));
}

}  // namespace cairn
