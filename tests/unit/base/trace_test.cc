// Goal: TraceRecorder keeps what its bounds allow and says what it did not keep, gives each span once, costs nothing
// while nothing is traced, and ends every trace by itself.
#include "common/base/trace.h"

#include <gtest/gtest.h>

#include <thread>

namespace cairn {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

int64_t g_now = 0;  // of the recorders below; tests of this file run one after the other
int64_t FakeNow() { return g_now; }

class TraceRecorderTest : public ::testing::Test {
 protected:
  TraceRecorderTest() { g_now = 1000; }

  static TraceRecorder::Request Ask(uint64_t trace, uint64_t job, uint64_t after = 0) {
    TraceRecorder::Request request;
    request.trace = trace;
    request.job = JobId(job);
    request.seconds = 60;
    request.after = after;
    return request;
  }
  TraceRecorder::Answer Read(const TraceRecorder::Request& request) {
    absl::StatusOr<TraceRecorder::Answer> answer = recorder_.Read(request);
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? *std::move(answer) : TraceRecorder::Answer();
  }
  void Add(uint64_t job, int64_t step, TraceKind kind = TraceKind::kCompute) {
    TraceSpan span;
    span.kind = kind;
    span.step = step;
    span.begin_ns = g_now;
    span.end_ns = g_now + 1;
    recorder_.Add(JobId(job), span);
  }

  TraceRecorder recorder_{FakeNow};
};

TEST_F(TraceRecorderTest, OffItKeepsNothing) {
  EXPECT_FALSE(recorder_.on());
  EXPECT_FALSE(recorder_.Wants(JobId(1)));
  Add(1, 5);
  {
    const TraceTimer timer(&recorder_, JobId(1));
    EXPECT_FALSE(timer.on());
    const TraceTimer of_nobody(static_cast<TraceRecorder*>(nullptr), JobId(1));
    EXPECT_FALSE(of_nobody.on());
    const TraceTimer of_no_step(static_cast<const StepTrace*>(nullptr), TraceKind::kForward, "conv");
    EXPECT_FALSE(of_no_step.on());
  }
  EXPECT_TRUE(Read(Ask(1, 1)).spans.empty());
  EXPECT_TRUE(recorder_.Wants(JobId(1)));
  EXPECT_FALSE(recorder_.Wants(JobId(2))) << "another job";
  EXPECT_FALSE(recorder_.Wants(JobId(0)));
  EXPECT_EQ(recorder_.Read(Ask(2, 0)).status().message(), "job_id: 0 is no job");
  recorder_.Clear();
  EXPECT_FALSE(recorder_.on());
}

TEST_F(TraceRecorderTest, GivesEachSpanUntilItIsReceived) {
  Read(Ask(1, 7));
  Add(7, 1);
  Add(8, 1);  // not traced
  Add(7, 2);
  TraceRecorder::Answer answer = Read(Ask(1, 7));
  ASSERT_EQ(answer.spans.size(), 2u);
  EXPECT_EQ(answer.first, 1u);
  EXPECT_EQ(answer.last, 2u);
  EXPECT_EQ(answer.began_ns, 1000);
  answer = Read(Ask(1, 7));
  EXPECT_EQ(answer.spans.size(), 2u) << "the answer before may be lost";
  answer = Read(Ask(1, 7, 1));
  ASSERT_EQ(answer.spans.size(), 1u);
  EXPECT_EQ(answer.first, 2u);
  EXPECT_EQ(answer.spans[0].step, 2);
  answer = Read(Ask(1, 7, 2));
  EXPECT_TRUE(answer.spans.empty());
  EXPECT_EQ(answer.first, 3u);
  Add(7, 3);
  answer = Read(Ask(1, 7, 99));
  ASSERT_EQ(answer.spans.size(), 1u) << "a number that it never gave is about something else";
  EXPECT_EQ(answer.first, 3u);
}

TEST_F(TraceRecorderTest, IsBoundedAndCountsWhatItDoesNotKeep) {
  Read(Ask(1, 7));
  for (size_t i = 0; i < kTraceSpansKept + 3; ++i) Add(7, 1);
  TraceRecorder::Answer answer = Read(Ask(1, 7));
  EXPECT_EQ(answer.spans.size(), kTraceAnswerSpansMax);
  EXPECT_EQ(answer.last, kTraceSpansKept);
  EXPECT_EQ(answer.dropped, 3u);
  uint64_t taken = answer.spans.size();
  while (taken < answer.last) {
    answer = Read(Ask(1, 7, taken));
    EXPECT_EQ(answer.first, taken + 1);
    ASSERT_FALSE(answer.spans.empty());
    taken += answer.spans.size();
  }
  EXPECT_EQ(taken, kTraceSpansKept);
  Read(Ask(1, 7, taken));
  Add(7, 2);
  EXPECT_EQ(Read(Ask(1, 7, taken)).spans.size(), 1u) << "there is room again";

  TraceSpan named;
  named.text = std::string(kTraceTextBytesMax - 1, 'x') + "\u00e9";
  recorder_.Add(JobId(7), named);
  EXPECT_EQ(Read(Ask(1, 7, taken + 1)).spans.at(0).text, std::string(kTraceTextBytesMax - 1, 'x'));
}

TEST_F(TraceRecorderTest, EndsWithItsStepsItsTimeOrItsReader) {
  TraceRecorder::Request request = Ask(1, 7);
  request.steps = 2;
  Read(request);
  Add(7, 1'000'000, TraceKind::kDecode);  // ahead of its step
  Add(7, 100);
  Add(7, 100 + 1 + kTraceStepsSpare);
  EXPECT_TRUE(recorder_.Wants(JobId(7)));
  Add(7, 100 + 2 + kTraceStepsSpare);
  EXPECT_FALSE(recorder_.Wants(JobId(7)));
  TraceRecorder::Answer answer = Read(request);
  EXPECT_TRUE(answer.ended);
  EXPECT_EQ(answer.spans.size(), 3u);

  Read(Ask(2, 8));
  g_now += 59 * kSecond;
  EXPECT_FALSE(Read(Ask(2, 8)).ended);
  g_now += 2 * kSecond;
  Add(8, 1);
  EXPECT_FALSE(recorder_.Wants(JobId(8))) << "a minute is over";
  EXPECT_TRUE(Read(Ask(2, 8)).ended);

  Read(Ask(3, 9));
  Add(9, 1);
  g_now += (kTraceIdleSeconds - 1) * kSecond;
  recorder_.Tick();
  EXPECT_TRUE(recorder_.Wants(JobId(9)));
  g_now += 2 * kSecond;
  recorder_.Tick();
  EXPECT_FALSE(recorder_.on()) << "nobody asks for it any more";
  answer = Read(Ask(3, 9, 1));
  EXPECT_TRUE(answer.spans.empty());
  EXPECT_EQ(answer.began_ns, g_now) << "it began anew, and says so";
}

TEST_F(TraceRecorderTest, EndsWhenItIsTold) {
  Read(Ask(1, 7));
  Add(7, 1);
  TraceRecorder::Request request = Ask(1, 7);
  request.stop = true;
  EXPECT_TRUE(Read(request).ended);
  Add(7, 2);
  EXPECT_EQ(Read(request).spans.size(), 1u);
  recorder_.Forget(2);
  EXPECT_EQ(Read(request).spans.size(), 1u);
  recorder_.Forget(1);
  Read(Ask(1, 7));
  EXPECT_TRUE(recorder_.on());
  recorder_.Clear();
  EXPECT_FALSE(recorder_.on());
  EXPECT_TRUE(Read(Ask(1, 7)).spans.empty());
}

TEST_F(TraceRecorderTest, RecordsFewJobsAtATime) {
  for (uint64_t job = 1; job <= kTracesOfProcessMax; ++job) Read(Ask(job, job));
  const absl::Status full = recorder_.Read(Ask(100, 100)).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(full.message(), "it is recording 4 other jobs; try again when one of them is done");
  Add(2, 1);
  EXPECT_TRUE(Read(Ask(101, 2)).spans.empty()) << "another trace of the job takes the place of the first";
  recorder_.Forget(1);
  Read(Ask(100, 100));
}

TEST_F(TraceRecorderTest, ATimerMeasuresItsLife) {
  Read(Ask(1, 7));
  {
    TraceTimer timer(&recorder_, JobId(7));
    ASSERT_TRUE(timer.on());
    timer.span().step = 4;
    timer.span().track_number = 2;
    const StepTrace step{&recorder_, JobId(7), timer.span()};
    g_now += 10;
    {
      const TraceTimer layer(&step, TraceKind::kForward, "conv");
      g_now += 5;
    }
    TraceTimer nothing(&recorder_, JobId(7));
    nothing.Cancel();
    g_now += 10;
  }
  const TraceRecorder::Answer answer = Read(Ask(1, 7));
  ASSERT_EQ(answer.spans.size(), 2u);
  const TraceSpan &layer = answer.spans[0], &step = answer.spans[1];
  EXPECT_EQ(layer.kind, TraceKind::kForward);
  EXPECT_EQ(layer.text, "conv");
  EXPECT_EQ(layer.step, 4);
  EXPECT_EQ(layer.track_number, 2);
  EXPECT_EQ(layer.begin_ns, 1010);
  EXPECT_EQ(layer.end_ns, 1015);
  EXPECT_EQ(step.kind, TraceKind::kCompute);
  EXPECT_EQ(step.begin_ns, 1000);
  EXPECT_EQ(step.end_ns, 1025);
}

// With ThreadSanitizer this also finds a race.
TEST(TraceRecorder, ManyThreadsWriteWhileOneReads) {
  constexpr int kThreads = 4, kSpans = 5000;
  TraceRecorder recorder;
  TraceRecorder::Request request;
  request.trace = 1;
  request.job = JobId(7);
  request.seconds = 60;
  ASSERT_TRUE(recorder.Read(request).ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&recorder, t] {
      for (int i = 0; i < kSpans; ++i) {
        TraceTimer timer(&recorder, JobId(7));
        timer.span().track_number = t;
        timer.span().step = i;
      }
    });
  }
  std::vector<int64_t> next(kThreads, 0);
  uint64_t seen = 0;
  const auto read = [&] {
    const absl::StatusOr<TraceRecorder::Answer> answer = recorder.Read(request);
    ASSERT_TRUE(answer.ok());
    EXPECT_EQ(answer->first, seen + 1);
    EXPECT_EQ(answer->dropped, 0u);
    for (const TraceSpan& span : answer->spans) {
      EXPECT_EQ(span.step, next[static_cast<size_t>(span.track_number)]++) << "in the order of each thread";
      EXPECT_LE(span.begin_ns, span.end_ns);
    }
    seen += answer->spans.size();
    request.after = seen;
  };
  while (seen < kThreads * kSpans) read();
  for (std::thread& thread : threads) thread.join();
  read();
  EXPECT_EQ(seen, static_cast<uint64_t>(kThreads * kSpans));
}

}  // namespace
}  // namespace cairn
