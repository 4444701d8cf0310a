// PartitionCore: requests that wait, and what they are answered with.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/tensor/dtype.h"
#include "server/partition_core.h"

namespace cairn {
namespace {

Buffer Convert(const Buffer& values, v1::DataType dtype) {
  if (dtype == v1::FLOAT32) return values;
  Buffer out = Buffer::Allocate(values.size() / sizeof(float) * SizeOf(dtype));
  FromFloat(values.floats(), dtype, {out.mutable_data(), out.size()});
  return out;
}

}  // namespace

uint64_t PartitionCore::SlowestClock() const {
  return *std::min_element(state_.sequences.begin(), state_.sequences.end());
}

uint64_t PartitionCore::ClockMinFor(uint64_t sequence) const {
  if (config_.mode != UpdateMode::kBoundedStaleness || sequence <= config_.staleness_bound) return 0;
  return sequence - config_.staleness_bound;
}

bool PartitionCore::Ready(const Waiter& w) {
  if (!Settled()) return false;
  if (GetsNorms(w)) return true;
  if (w.want_version && *w.want_version > state_.version) return false;
  if (w.is_push && state_.sequences[w.replica.value] < w.sequence) return false;
  return w.clock_min == 0 || SlowestClock() >= w.clock_min;
}

absl::Status PartitionCore::AnswerOrWait(Waiter w, PartitionEffects& effects) {
  if (Ready(w)) {
    Answer(w, effects);
    return absl::OkStatus();
  }
  if (config_.ended && WaitsForTraining(w)) return CheckTrains();
  if (waiters_.size() >= WaitersMax()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(config_.Name(), ": ", waiters_.size(), " requests wait already; retry"));
  }
  waiters_.push_back(std::move(w));
  return absl::OkStatus();
}

void PartitionCore::ReleaseWaiters(PartitionEffects& effects) {
  std::erase_if(waiters_, [&](const Waiter& w) {
    if (!Ready(w)) return false;
    Answer(w, effects);
    return true;
  });
}

Buffer PartitionCore::ConvertedValues(v1::DataType dtype) {
  if (dtype == v1::FLOAT32) return state_.values;
  Buffer& cached = converted_[dtype == v1::BFLOAT16 ? 0 : 1];
  if (cached.empty()) cached = Convert(state_.values, dtype);
  return cached;
}

PartitionReply PartitionCore::MakeValues(const Waiter& w) {
  PartitionReply reply{w.client, {}};
  Frame& f = reply.frame;
  f.kind = v1::ExchangeFrame::VALUES;
  f.request_id = w.request_id;
  f.job = config_.job;
  f.partition = config_.partition;
  f.generation = config_.generation;
  const bool wants_previous = w.want_version && *w.want_version + 1 == state_.version;
  f.version = wants_previous ? state_.version - 1 : state_.version;
  if (w.shows_sequence) {
    f.replica_first = w.replica;
    f.replica_count = 1;
    f.sequence = config_.mode == UpdateMode::kSynchronous ? f.version : state_.sequences[w.replica.value];
  }
  if (w.is_push) f.scalars = state_.norms;
  f.loss_scale = wants_previous ? state_.previous_loss_scale : state_.loss_scale.scale;
  if (!w.wants_values) return reply;
  f.dtype = w.reply_dtype;
  f.payload = wants_previous ? Convert(state_.previous, w.reply_dtype) : ConvertedValues(w.reply_dtype);
  f.payload_total = f.payload.size();
  return reply;
}

PartitionReply PartitionCore::MakeError(uint64_t client, uint64_t request_id, const absl::Status& status) const {
  PartitionReply reply{client, {}};
  Frame& f = reply.frame;
  f.kind = v1::ExchangeFrame::ERROR;
  f.request_id = request_id;
  f.job = config_.job;
  f.partition = config_.partition;
  f.generation = config_.generation;
  f.version = state_.version;
  f.status = status;
  return reply;
}

std::vector<PartitionReply> PartitionCore::End(const absl::Status& why) {
  std::vector<PartitionReply> replies;
  for (const Waiter& w : std::exchange(waiters_, {})) replies.push_back(MakeError(w.client, w.request_id, why));
  for (const PartitionEvent& event : std::exchange(deferred_, {})) {
    const auto* f = std::get_if<FrameEvent>(&event);
    if (f != nullptr) replies.push_back(MakeError(f->client, f->frame.request_id, why));
  }
  return replies;
}

}  // namespace cairn
