// Goal: SerialExecutor's invariants: order, no overlap, timers after what was posted before them, a Stop that runs what
// is queued.
#include "common/base/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"

namespace cairn {
namespace {

TEST(SerialExecutor, RunsInTheOrderOfPostAndNeverTwoAtOnce) {
  SerialExecutor executor("test");
  constexpr int kThreads = 4, kEach = 5000;
  std::vector<std::vector<int>> seen(kThreads);
  std::atomic<int> inside{0}, overlaps{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        executor.Post([&, t, i] {
          if (inside.fetch_add(1) != 0) ++overlaps;
          seen[t].push_back(i);
          inside.fetch_sub(1);
        });
      }
    });
  }
  for (auto& t : threads) t.join();
  executor.RunAndWait([] {});
  EXPECT_EQ(overlaps, 0);
  for (int t = 0; t < kThreads; ++t) {
    ASSERT_EQ(seen[t].size(), static_cast<size_t>(kEach));
    for (int i = 0; i < kEach; ++i) ASSERT_EQ(seen[t][i], i);
  }
}

TEST(SerialExecutor, AClosureMayPostAndSeesItsThread) {
  SerialExecutor executor("test");
  absl::Notification done;
  bool on_thread = false;
  executor.Post([&] {
    on_thread = executor.OnThread();
    executor.Post([&] { done.Notify(); });
  });
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(30)));
  EXPECT_TRUE(on_thread);
  EXPECT_FALSE(executor.OnThread());
}

// Posts a timer of 40 ms, one that is due at once and a closure, and checks what becomes of them. False where this
// thread was held up meanwhile for so long that the first timer was due before the second one was posted: then nothing
// is known of their order.
bool TimersRunInOrder() {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kDelay(40);
  SerialExecutor executor("test");
  absl::Notification posted, done;
  std::vector<int> order;
  Clock::time_point ran;
  executor.Post([&] { posted.WaitForNotification(); });  // nothing of it runs before all is posted
  const Clock::time_point begun = Clock::now();
  executor.PostAfter(absl::FromChrono(kDelay), [&] {
    order.push_back(2);
    ran = Clock::now();
    done.Notify();
  });
  executor.PostAfter(absl::ZeroDuration(), [&] { order.push_back(1); });
  const bool in_time = Clock::now() - begun < kDelay;
  executor.Post([&] { order.push_back(0); });
  posted.Notify();
  done.WaitForNotification();
  executor.RunAndWait([&] {
    EXPECT_GE(ran - begun, kDelay);
    if (in_time) {
      EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
    }
  });
  return in_time;
}

TEST(SerialExecutor, TimersRunInOrderOfTheirTimeNotBefore) {
  while (!TimersRunInOrder()) {
  }
}

TEST(SerialExecutor, StopRunsWhatWasPostedAndDropsTheRest) {
  int ran = 0;
  bool timer = false;
  {
    SerialExecutor executor("a name longer than fifteen characters");
    absl::Notification go;
    executor.Post([&] { go.WaitForNotification(); });
    for (int i = 0; i < 100; ++i) executor.Post([&] { ++ran; });
    executor.PostAfter(absl::Hours(1), [&] { timer = true; });
    go.Notify();
    executor.Stop();
    executor.Post([&] { ran = -1; });
    executor.PostAfter(absl::ZeroDuration(), [&] { ran = -1; });
    executor.Stop();  // again is fine
  }
  EXPECT_EQ(ran, 100);
  EXPECT_FALSE(timer);
}

TEST(SerialExecutor, CapturesAreReleasedBeforeTheNextClosure) {
  SerialExecutor executor("test");
  auto token = std::make_shared<int>(1);
  std::weak_ptr<int> watch = token;
  executor.Post([token = std::move(token)] {});
  bool expired = false;
  executor.RunAndWait([&] { expired = watch.expired(); });
  EXPECT_TRUE(expired);
}

}  // namespace
}  // namespace cairn
