#include "client/request_trace.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace cairn {
namespace {

// The step that the request belongs to; nullopt: none.
std::optional<int64_t> StepOf(const Frame& request) {
  switch (request.kind) {
    case v1::ExchangeFrame::PUSH:
    case v1::ExchangeFrame::CLIP:
      if (request.sequence > 0) return static_cast<int64_t>(request.sequence) - 1;
      return std::nullopt;
    case v1::ExchangeFrame::PULL:
      if (request.want_version) return static_cast<int64_t>(*request.want_version);
      return std::nullopt;
    case v1::ExchangeFrame::REPLICATE:
      if (request.version > 0) return static_cast<int64_t>(request.version) - 1;
      return std::nullopt;
    default: return std::nullopt;
  }
}

}  // namespace

std::unique_ptr<RequestTrace> RequestTrace::Of(TraceRecorder* recorder, const Frame& request) {
  if (recorder == nullptr || !recorder->Wants(request.job)) return nullptr;
  const std::optional<int64_t> step = StepOf(request);
  if (!step) return nullptr;
  return std::unique_ptr<RequestTrace>(new RequestTrace(*recorder, request, *step));
}

RequestTrace::RequestTrace(TraceRecorder& recorder, const Frame& request, int64_t step)
    : recorder_(recorder),
      kind_(request.kind),
      job_(request.job),
      bytes_(request.payload.size()),
      begin_ns_(recorder.now()) {
  like_.track = TraceTrack::kPartition;
  like_.partition = static_cast<int32_t>(request.partition.value);
  like_.track_number = like_.partition;
  like_.step = step;
  if (kind_ == v1::ExchangeFrame::PUSH) like_.replica = request.replica_first.value;
}

void RequestTrace::Answered(const Frame& answer, int64_t began_ns) {
  answered_ns_ = began_ns;
  if (kind_ == v1::ExchangeFrame::REPLICATE) {
    return Tell(TraceKind::kReplicate, begin_ns_, recorder_.now(), bytes_);
  }
  const bool sends = kind_ != v1::ExchangeFrame::PULL;
  const int64_t sent_ns = std::clamp(sends && sent_ns_ > 0 ? sent_ns_ : begin_ns_, begin_ns_, began_ns);
  if (sends) Tell(TraceKind::kPush, begin_ns_, sent_ns, bytes_);
  Tell(TraceKind::kWait, sent_ns, began_ns, 0);
  if (answer.kind == v1::ExchangeFrame::VALUES) values_bytes_ = answer.payload.size();
}

void RequestTrace::TakenIn() {
  if (values_bytes_ > 0) Tell(TraceKind::kPull, answered_ns_, recorder_.now(), values_bytes_);
}

void RequestTrace::Tell(TraceKind kind, int64_t begin_ns, int64_t end_ns, uint64_t bytes) {
  TraceSpan span = like_;
  span.kind = kind;
  span.begin_ns = begin_ns;
  span.end_ns = end_ns;
  span.bytes = bytes;
  recorder_.Add(job_, std::move(span));
}

}  // namespace cairn
