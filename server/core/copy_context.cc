#include "server/core/copy_context.h"

#include "common/tensor/dtype.h"

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
  return absl::FailedPreconditionError(
      absl::StrCat(config.Name(), ": the job has ended; of its state the values alone are kept"));
}

Buffer ConvertValues(const Buffer& values, v1::DataType dtype) {
  if (dtype == v1::FLOAT32) return values;
  Buffer out = Buffer::Allocate(values.size() / sizeof(float) * SizeOf(dtype));
  FromFloat(values.floats(), dtype, {out.mutable_data(), out.size()});
  return out;
}

Buffer CopyContext::ConvertedValues(v1::DataType dtype) {
  if (dtype == v1::FLOAT32) return state.values;
  Buffer& cached = converted_[dtype == v1::BFLOAT16 ? 0 : 1];
  if (cached.empty()) cached = ConvertValues(state.values, dtype);
  return cached;
}

void CopyContext::ForgetConverted() {
  for (Buffer& b : converted_) b = {};
}

void CopyContext::ForgetPrevious() {
  state.previous = {};
  ForgetConverted();
}

}  // namespace cairn
