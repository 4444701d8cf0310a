// Goal: SerialExecutor's invariants: order, no overlap, timers after what was posted before them, a Stop that runs what
// is queued.
#include "common/base/executor.h"

#include <gtest/gtest.h>

#include <atomic>
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

TEST(SerialExecutor, TimersRunInOrderOfTheirTimeNotBefore) {
  SerialExecutor executor("test");
  absl::Notification done;
  std::vector<int> order;
  const absl::Time start = absl::Now();
  absl::Time second;
  executor.PostAfter(absl::Milliseconds(40), [&] {
    order.push_back(2);
    second = absl::Now();
    done.Notify();
  });
  executor.PostAfter(absl::Milliseconds(10), [&] { order.push_back(1); });
  executor.Post([&] { order.push_back(0); });
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(30)));
  executor.RunAndWait([&] { EXPECT_EQ(order, (std::vector<int>{0, 1, 2})); });
  EXPECT_GE(second - start, absl::Milliseconds(40));
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
