#include "server/storage/core_timer.h"

#include <variant>

namespace cairn {
namespace {

void SetPlace(const PartitionConfig& config, TraceSpan& span) {
  span.track = TraceTrack::kPartition;
  span.partition = static_cast<int32_t>(config.partition.value);
  span.track_number = span.partition;
}

}  // namespace

CoreTimer::CoreTimer(TraceRecorder* recorder, const PartitionCore& core, const PartitionEvent& event)
    : timer_(recorder, core.config().job), core_(core), version_(core.version()) {
  if (!timer_.on()) return;
  TraceSpan& span = timer_.span();
  SetPlace(core.config(), span);
  span.kind = TraceKind::kSum;
  updates_ = std::holds_alternative<PersistedEvent>(event) || std::holds_alternative<PeerFrameEvent>(event);
  if (const FrameEvent* request = std::get_if<FrameEvent>(&event)) {
    const Frame& frame = request->frame;
    updates_ = true;
    sums_ = frame.kind == v1::ExchangeFrame::PUSH && frame.sequence > 0;
    if (sums_) span.step = static_cast<int64_t>(frame.sequence) - 1;
    if (sums_) span.replica = frame.replica_first.value;
    span.bytes = frame.payload.size();
  }
}

CoreTimer::~CoreTimer() {
  if (!timer_.on()) return;
  TraceSpan& span = timer_.span();
  if (updates_ && core_.version() > version_) {
    span.kind = TraceKind::kApply;
    span.step = static_cast<int64_t>(core_.version()) - 1;
    span.replica = TraceSpan::kNone;
    span.bytes = static_cast<uint64_t>(core_.config().end - core_.config().begin) * sizeof(float);
    if (core_.config().backup) span.text = "backup";
  } else if (!sums_) {
    timer_.Cancel();
  }
}

LogTimer::LogTimer(TraceRecorder* recorder, const PartitionConfig& config, const Persist& persist)
    : timer_(recorder, config.job) {
  if (!timer_.on()) return;
  TraceSpan& span = timer_.span();
  SetPlace(config, span);
  span.kind = TraceKind::kLog;
  span.step = static_cast<int64_t>(persist.entry.version()) - 1;
  span.bytes = persist.gradient.size();
}

}  // namespace cairn
