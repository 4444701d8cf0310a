#include "common/base/trace.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"

namespace cairn {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

}  // namespace

int64_t TraceNow() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool TraceRecorder::Records(JobId job) const {
  return std::any_of(places_.begin(), places_.end(), [job](const Place& place) {
    return place.job.load(std::memory_order_relaxed) == job.value && job.value != 0;
  });
}

void TraceRecorder::Add(JobId job, TraceSpan span) {
  if (span.text.size() > kTraceTextBytesMax) span.text = std::string(CutUtf8(span.text, kTraceTextBytesMax));
  absl::MutexLock lock(&mutex_);
  for (Place& place : places_) {
    if (place.job.load(std::memory_order_relaxed) != job.value || !place.trace) continue;
    Trace& trace = *place.trace;
    if (span.end_ns > trace.ends_ns) return End(place);
    // A batch is decoded long before its step.
    if (span.kind != TraceKind::kDecode && trace.steps > 0) {
      if (!trace.first_step) trace.first_step = span.step;
      if (span.step >= *trace.first_step + trace.steps + kTraceStepsSpare) return End(place);
    }
    if (trace.spans.size() >= kTraceSpansKept) {
      ++trace.dropped;
    } else {
      trace.spans.push_back(std::move(span));
    }
    return;
  }
}

absl::StatusOr<TraceRecorder::Answer> TraceRecorder::Read(const Request& request) {
  if (request.job.value == 0) return absl::InvalidArgumentError("job_id: 0 is no job");
  absl::MutexLock lock(&mutex_);
  CAIRN_ASSIGN_OR_RETURN(Place * place, Find(request));
  Trace& trace = *place->trace;
  trace.read_ns = now_();
  if (request.stop || trace.read_ns > trace.ends_ns) End(*place);
  const uint64_t last = trace.received + trace.spans.size();
  if (request.after <= last) {  // else it is about what was forgotten
    while (trace.received < request.after) {
      trace.spans.pop_front();
      ++trace.received;
    }
  }
  Answer answer;
  const size_t count = std::min(trace.spans.size(), kTraceAnswerSpansMax);
  answer.spans.assign(trace.spans.begin(), trace.spans.begin() + static_cast<ptrdiff_t>(count));
  answer.first = trace.received + 1;
  answer.last = last;
  answer.dropped = trace.dropped;
  answer.ended = place->job.load(std::memory_order_relaxed) == 0;
  answer.began_ns = trace.began_ns;
  answer.now_ns = trace.read_ns;
  return answer;
}

absl::StatusOr<TraceRecorder::Place*> TraceRecorder::Find(const Request& request) {
  Place* free = nullptr;
  for (Place& place : places_) {
    if (place.trace && place.trace->id == request.trace) return &place;
    if (place.trace && place.trace->job == request.job) Drop(place);
    if (!place.trace && free == nullptr) free = &place;
  }
  if (free == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("it is recording ", kTracesOfProcessMax, " other jobs; try again when one of them is done"));
  }
  Begin(*free, request);
  return free;
}

void TraceRecorder::Begin(Place& place, const Request& request) {
  const int64_t now = now_();
  place.trace = Trace();  // not emplace(): clang 14 does not compile it for a nested struct with initializers
  place.trace->id = request.trace;
  place.trace->job = request.job;
  place.trace->steps = request.steps;
  place.trace->began_ns = now;
  place.trace->ends_ns = now + std::clamp(request.seconds, 1, kTraceSecondsMax) * kSecond;
  place.job.store(request.job.value, std::memory_order_relaxed);
  recording_.fetch_add(1, std::memory_order_relaxed);
}

void TraceRecorder::End(Place& place) {
  if (place.job.exchange(0, std::memory_order_relaxed) != 0) recording_.fetch_sub(1, std::memory_order_relaxed);
}

void TraceRecorder::Drop(Place& place) {
  End(place);
  place.trace.reset();
}

void TraceRecorder::Forget(uint64_t trace) {
  absl::MutexLock lock(&mutex_);
  for (Place& place : places_) {
    if (place.trace && place.trace->id == trace) Drop(place);
  }
}

void TraceRecorder::Tick() {
  absl::MutexLock lock(&mutex_);
  const int64_t now = now_();
  for (Place& place : places_) {
    if (!place.trace) continue;
    if (now > place.trace->ends_ns) End(place);
    if (now > place.trace->read_ns + kTraceIdleSeconds * kSecond) Drop(place);
  }
}

void TraceRecorder::Clear() {
  absl::MutexLock lock(&mutex_);
  for (Place& place : places_) {
    if (place.trace) Drop(place);
  }
}

void TraceTimer::Begin(TraceRecorder* recorder, JobId job) {
  recorder_ = recorder;
  job_ = job;
  span_.emplace();
  span_->begin_ns = recorder->now();
}

void TraceTimer::Begin(const StepTrace& step, TraceKind kind, std::string_view text) {
  recorder_ = step.recorder;
  job_ = step.job;
  span_ = step.like;
  span_->kind = kind;
  span_->text = std::string(text);
  span_->begin_ns = recorder_->now();
}

void TraceTimer::End() {
  span_->end_ns = recorder_->now();
  recorder_->Add(job_, *std::move(span_));
}

}  // namespace cairn
