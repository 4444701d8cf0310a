// TraceRecorder: what a process does for a job, and when: spans of steps, in memory, until somebody has fetched them
// (`cairn trace`). TraceTimer: measures one.
//
// Thread-safe. Invariants:
//   1. While nothing is traced, Wants and a TraceTimer cost one relaxed load, and nothing is kept.
//   2. At most kTracesOfProcessMax jobs are traced at a time; of each at most kTraceSpansKept spans are kept. Those
//      beyond are counted.
//   3. Spans of a trace are numbered from 1, in the order in which they ended, without a gap. One is kept until a
//      request names its number, or a higher one, as received.
//   4. A trace ends by itself: with its steps, with its time, or when nobody has asked for kTraceIdleSeconds.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/limits.h"
#include "common/base/status.h"

namespace cairn {

// As in proto/cairn/v1/observe.proto, which says what each one is.
enum class TraceKind {
  kDecode = 1,
  kData,
  kCompute,
  kForward,
  kBackward,
  kPush,
  kWait,
  kPull,
  kSum,
  kApply,
  kLog,
  kReplicate,
  kSend,
};
enum class TraceTrack { kSlot = 1, kDecoder, kReplica, kPartition };

struct TraceSpan {
  static constexpr int32_t kNone = -1;

  TraceKind kind = TraceKind::kCompute;
  TraceTrack track = TraceTrack::kSlot;
  int32_t track_number = 0;
  int64_t begin_ns = 0, end_ns = 0;  // TraceNow
  int64_t step = 0;
  int32_t partition = kNone, replica = kNone;
  uint64_t bytes = 0;
  std::string text;  // at most kTraceTextBytesMax bytes are kept
};

// Nanoseconds of a clock that never goes back; its zero means nothing.
int64_t TraceNow();

class TraceRecorder {
 public:
  using Now = int64_t (*)();
  explicit TraceRecorder(Now now = TraceNow) : now_(now) {}

  bool on() const { return recording_.load(std::memory_order_relaxed) > 0; }
  bool Wants(JobId job) const { return on() && Records(job); }
  int64_t now() const { return now_(); }
  // Of a job that is not traced: ignored.
  void Add(JobId job, TraceSpan span);

  struct Request {
    uint64_t trace = 0;
    JobId job;
    int64_t steps = 0;  // kTraceStepsSpare more are recorded; 0: until it is told to stop
    int seconds = 0;
    uint64_t after = 0;
    bool stop = false;
  };
  struct Answer {
    std::vector<TraceSpan> spans;  // at most kTraceAnswerSpansMax
    uint64_t first = 1, last = 0;  // the numbers of the first of them, and of the newest that there is
    uint64_t dropped = 0;
    bool ended = false;
    int64_t began_ns = 0, now_ns = 0;
  };
  // The first request of a trace begins it, and ends another one of the job. Errors: RESOURCE_EXHAUSTED;
  // INVALID_ARGUMENT: job 0.
  absl::StatusOr<Answer> Read(const Request& request);
  void Forget(uint64_t trace);
  // Ends what is over. To be called every second or so.
  void Tick();
  void Clear();

 private:
  struct Trace {
    uint64_t id = 0;
    JobId job;
    int64_t steps = 0;
    int64_t began_ns = 0, ends_ns = 0, read_ns = 0;
    std::optional<int64_t> first_step;
    std::deque<TraceSpan> spans;
    uint64_t received = 0;  // the number of the span before the first one
    uint64_t dropped = 0;
  };
  struct Place {
    std::atomic<uint64_t> job{0};  // that is recorded; 0: none
    std::optional<Trace> trace;    // guarded by mutex_; recorded or ended
  };

  bool Records(JobId job) const;
  absl::StatusOr<Place*> Find(const Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Begin(Place& place, const Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(Place& place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Drop(Place& place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Now now_;
  std::atomic<int> recording_{0};  // places with a job
  absl::Mutex mutex_;
  std::array<Place, kTracesOfProcessMax> places_;
};

// What a daemon measures time with.
struct Timing {
  RealClock clock;
  TraceRecorder trace;
};

// The step that somebody computes, while it is traced: what its spans have in common.
struct StepTrace {
  TraceRecorder* recorder = nullptr;
  JobId job;
  TraceSpan like;  // its kind, times and text are not used
};

// Measures a span from its construction to its end. One thread.
class TraceTimer {
 public:
  // recorder: null: measures nothing. The caller fills in `span()` where the timer is on.
  TraceTimer(TraceRecorder* recorder, JobId job) {
    if (recorder != nullptr && recorder->Wants(job)) Begin(recorder, job);
  }
  // step: null: measures nothing.
  TraceTimer(const StepTrace* step, TraceKind kind, std::string_view text = {}) {
    if (step != nullptr) Begin(*step, kind, text);
  }
  ~TraceTimer() {
    if (recorder_ != nullptr) End();
  }
  TraceTimer(const TraceTimer&) = delete;
  TraceTimer& operator=(const TraceTimer&) = delete;

  bool on() const { return recorder_ != nullptr; }
  TraceSpan& span() { return *span_; }    // where it is on
  void Cancel() { recorder_ = nullptr; }  // there is nothing to tell

 private:
  void Begin(TraceRecorder* recorder, JobId job);
  void Begin(const StepTrace& step, TraceKind kind, std::string_view text);
  void End();

  TraceRecorder* recorder_ = nullptr;
  JobId job_;
  std::optional<TraceSpan> span_;  // nullopt: it was never on
};

}  // namespace cairn
