#include "common/rpc/trace_answer.h"

#include <algorithm>
#include <string>
#include <utility>

namespace cairn {
namespace {

static_assert(static_cast<int>(TraceKind::kDecode) == v1::TRACE_DECODE &&
              static_cast<int>(TraceKind::kCompute) == v1::TRACE_COMPUTE &&
              static_cast<int>(TraceKind::kPush) == v1::TRACE_PUSH &&
              static_cast<int>(TraceKind::kSum) == v1::TRACE_SUM &&
              static_cast<int>(TraceKind::kSend) == v1::TRACE_SEND);
static_assert(static_cast<int>(TraceTrack::kSlot) == v1::TRACE_SLOT &&
              static_cast<int>(TraceTrack::kPartition) == v1::TRACE_PARTITION);

void Fill(TraceSpan& from, v1::TraceSpan& to) {
  to.set_kind(static_cast<v1::TraceKind>(from.kind));
  to.set_track(static_cast<v1::TraceTrack>(from.track));
  to.set_track_number(from.track_number);
  to.set_begin_ns(from.begin_ns);
  to.set_duration_ns(from.end_ns - from.begin_ns);
  to.set_step(from.step);
  if (from.partition != TraceSpan::kNone) to.set_partition(from.partition);
  if (from.replica != TraceSpan::kNone) to.set_replica(from.replica);
  to.set_bytes(from.bytes);
  to.set_text(std::move(from.text));
}

}  // namespace

v1::TraceRead AnswerTrace(TraceRecorder& recorder, const v1::FetchTrace& fetch) {
  v1::TraceRead read;
  read.set_request_id(fetch.request_id());
  if (fetch.forget()) {
    recorder.Forget(fetch.request().trace_id());
    return read;
  }
  TraceRecorder::Request request;
  request.trace = fetch.request().trace_id();
  request.job = JobId(fetch.job_id());
  request.steps = std::clamp<int64_t>(fetch.steps(), 0, kTraceStepsMax);
  request.seconds = fetch.seconds();
  request.after = fetch.request().after();
  request.stop = fetch.request().stop();
  absl::StatusOr<TraceRecorder::Answer> answer = recorder.Read(request);
  if (!answer.ok()) {
    read.set_error(std::string(answer.status().message()));
    return read;
  }
  v1::ReadTraceResponse& to = *read.mutable_trace();
  for (TraceSpan& span : answer->spans) Fill(span, *to.add_spans());
  to.set_first(answer->first);
  to.set_last(answer->last);
  to.set_dropped(answer->dropped);
  to.set_ended(answer->ended);
  to.set_began_ns(answer->began_ns);
  to.set_node_ns(answer->now_ns);
  return read;
}

}  // namespace cairn
