// Goal: what one job does with files goes one after the other, in order; a job whose task does not end holds up no
// other, as long as there are threads; files of this machine have threads that no S3 takes, and a job whose S3 answers
// has its turn; what a job asks of S3 can be given up, of that job and those tasks alone; a stop runs what was posted.
#include "worker/train/file_queues.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "tests/unit/worker/fake_remote_files.h"

namespace cairn {
namespace {

constexpr JobId kSlow(1), kOther(2), kThird(3);
const std::vector<std::string> kHere = {"/runs"}, kOnS3 = {"out:/runs"};

// Remote files of which each job's count how often they were stopped.
class CountedRemote : public FakeRemoteFiles {
 public:
  struct OfJob : FakeRemoteFiles {
    absl::Notification stopped;
    void Stop() override { stopped.Notify(); }
  };
  std::shared_ptr<RemoteFiles> ForJob() override {
    made.push_back(std::make_shared<OfJob>());
    return made.back();
  }
  std::vector<std::shared_ptr<OfJob>> made;
};

TEST(FileQueues, TasksOfAJobFollowEachOther) {
  std::vector<int> done;  // without a lock: tasks of one job never overlap
  FileQueues queues(nullptr);
  for (int i = 0; i < 100; ++i) {
    queues.Post(kSlow, kHere, [&done, i](RemoteFiles* remote) {
      EXPECT_EQ(remote, nullptr);
      done.push_back(i);
    });
  }
  EXPECT_TRUE(queues.AwaitIdle(absl::InfiniteDuration()));
  EXPECT_EQ(done.size(), 100u);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
}

TEST(FileQueues, AJobThatWaitsHoldsUpNoOther) {
  FileQueues queues(nullptr);
  absl::Notification go, other;
  bool slow_done = false;
  queues.Post(kSlow, kHere, [&](RemoteFiles*) { go.WaitForNotification(); });
  queues.Post(kSlow, kHere, [&](RemoteFiles*) { slow_done = true; });
  queues.Post(kOther, kHere, [&](RemoteFiles*) { other.Notify(); });
  other.WaitForNotification();  // for ever, if it waited for the slow one
  EXPECT_FALSE(queues.AwaitIdle(absl::ZeroDuration()));
  go.Notify();
  EXPECT_TRUE(queues.AwaitIdle(absl::InfiniteDuration()));
  EXPECT_TRUE(slow_done);
}

TEST(FileQueues, ThreadsAreBoundedAndJobsTakeTurns) {
  FileQueues queues(nullptr, /*threads_max=*/1);
  absl::Notification go;
  std::vector<JobId> order;  // without a lock: there is one thread
  queues.Post(kSlow, kHere, [&](RemoteFiles*) { go.WaitForNotification(); });
  for (const JobId job : {kSlow, kSlow, kOther, kThird}) {
    queues.Post(job, kHere, [&order, job](RemoteFiles*) { order.push_back(job); });
  }
  go.Notify();
  EXPECT_TRUE(queues.AwaitIdle(absl::InfiniteDuration()));
  EXPECT_THAT(order, testing::ElementsAre(kOther, kThird, kSlow, kSlow));
}

// An S3 that is away, and as many jobs that write there as there are threads.
TEST(FileQueues, FilesOfThisMachineDoNotWaitForS3) {
  CountedRemote remote;
  FileQueues queues(&remote);
  absl::Notification go, begun[kFileThreadsMax], here;
  std::vector<int> order;  // without a lock: tasks of one job never overlap
  for (size_t i = 0; i < kFileThreadsMax; ++i) {
    queues.Post(JobId(10 + i), kOnS3, [&go, &one = begun[i]](RemoteFiles*) {
      one.Notify();
      go.WaitForNotification();
    });
  }
  for (absl::Notification& one : begun) one.WaitForNotification();
  queues.Post(kOther, {}, [&](RemoteFiles*) { order.push_back(1); });
  queues.Post(kOther, kHere, [&](RemoteFiles*) { order.push_back(2); });
  queues.Post(kOther, kHere, [&](RemoteFiles*) { here.Notify(); });
  here.WaitForNotification();  // for ever, if it waited for theirs
  const std::vector<std::string> both = {"/runs", "out:/models"};
  queues.Post(kOther, both, [&](RemoteFiles*) { order.push_back(3); });
  queues.Post(kOther, kHere, [&](RemoteFiles*) { order.push_back(4); });
  absl::Notification third;
  queues.Post(kThird, kHere, [&](RemoteFiles*) { third.Notify(); });
  third.WaitForNotification();
  EXPECT_FALSE(queues.AwaitIdle(absl::ZeroDuration()));
  go.Notify();
  EXPECT_TRUE(queues.AwaitIdle(absl::InfiniteDuration()));
  EXPECT_THAT(order, testing::ElementsAre(1, 2, 3, 4)) << "one job's tasks, though they run in two places";
}

TEST(FileQueues, InS3JobsTakeTurns) {
  CountedRemote remote;
  FileQueues queues(&remote, /*threads_max=*/1);
  absl::Notification begun, go;
  std::vector<JobId> order;  // without a lock: there is one thread for S3
  queues.Post(kSlow, kOnS3, [&](RemoteFiles*) {
    begun.Notify();
    go.WaitForNotification();
  });
  begun.WaitForNotification();
  for (const JobId job : {kSlow, kSlow, kOther, kThird}) {
    queues.Post(job, kOnS3, [&order, job](RemoteFiles*) { order.push_back(job); });
  }
  go.Notify();
  EXPECT_TRUE(queues.AwaitIdle(absl::InfiniteDuration()));
  EXPECT_THAT(order, testing::ElementsAre(kOther, kThird, kSlow, kSlow));
}

TEST(FileQueues, WhatAJobAsksOfS3IsGivenUp) {
  CountedRemote remote;
  FileQueues queues(&remote);
  absl::Notification begun;
  RemoteFiles *first = nullptr, *second = nullptr, *later = nullptr, *other = nullptr;
  const auto as = [](RemoteFiles*& to) { return [&to](RemoteFiles* own) { to = own; }; };
  queues.Post(kSlow, kOnS3, [&](RemoteFiles* own) {
    first = own;
    begun.Notify();
    static_cast<CountedRemote::OfJob*>(own)->stopped.WaitForNotification();  // as a request that does not end
  });
  queues.Post(kSlow, kOnS3, as(second));
  queues.Post(kOther, kOnS3, as(other));
  begun.WaitForNotification();
  queues.GiveUpRemote(kSlow);
  queues.GiveUpRemote(kThird);  // has none
  queues.Post(kSlow, kOnS3, as(later));
  EXPECT_TRUE(queues.AwaitIdle(absl::InfiniteDuration()));
  EXPECT_EQ(first, second) << "it waited when the job's files were given up";
  EXPECT_NE(first, later);
  EXPECT_NE(first, other);
  for (const auto& made : remote.made) EXPECT_EQ(made->stopped.HasBeenNotified(), made.get() == first);
}

// A job is dropped while it uploads, and comes back.
TEST(FileQueues, DetachedRemoteFilesAreStoppedApartFromLaterOnes) {
  CountedRemote remote;
  FileQueues queues(&remote);
  absl::Notification begun, go;
  queues.Post(kSlow, kOnS3, [&](RemoteFiles*) {
    begun.Notify();
    go.WaitForNotification();
  });
  begun.WaitForNotification();
  const std::weak_ptr<RemoteFiles> before = queues.DetachRemote(kSlow);
  ASSERT_EQ(before.lock(), remote.made.at(0));
  EXPECT_TRUE(queues.DetachRemote(kSlow).expired()) << "there is none any more";
  queues.Post(kSlow, kOnS3, [](RemoteFiles*) {});
  before.lock()->Stop();
  EXPECT_FALSE(remote.made.at(1)->stopped.HasBeenNotified());
  go.Notify();
  EXPECT_TRUE(queues.AwaitIdle(absl::InfiniteDuration()));
}

TEST(FileQueues, ACancelStopsDetachedRemoteFilesToo) {
  CountedRemote remote;
  FileQueues queues(&remote);
  queues.Post(kSlow, kOnS3, [&](RemoteFiles* own) {
    static_cast<CountedRemote::OfJob*>(own)->stopped.WaitForNotification();  // as a request that does not end
  });
  const std::weak_ptr<RemoteFiles> before = queues.DetachRemote(kSlow);
  queues.Post(kSlow, kOnS3, [](RemoteFiles*) {});
  queues.GiveUpRemote(kSlow);
  EXPECT_TRUE(queues.AwaitIdle(absl::InfiniteDuration()));  // never, if the first was not stopped
  EXPECT_TRUE(remote.made.at(1)->stopped.HasBeenNotified());
}

TEST(FileQueues, AStopRunsWhatWasPosted) {
  CountedRemote remote;
  FileQueues queues(&remote, /*threads_max=*/2);
  absl::Notification go;
  std::atomic<int> done = 0;
  for (const JobId job : {kSlow, kOther, kThird}) {
    for (int i = 0; i < 5; ++i) {  // now here, now on S3: no place's threads end before the other's
      queues.Post(job, i % 2 == 0 ? kHere : kOnS3, [&](RemoteFiles*) {
        go.WaitForNotification();
        ++done;
      });
    }
  }
  std::thread stopping([&] { queues.Stop(); });
  go.Notify();
  stopping.join();
  EXPECT_EQ(done, 15);
  queues.Post(kSlow, kHere, [&](RemoteFiles*) { ++done; });
  EXPECT_TRUE(queues.AwaitIdle(absl::ZeroDuration()));
  EXPECT_EQ(done, 15) << "later ones are dropped";
}

}  // namespace
}  // namespace cairn
