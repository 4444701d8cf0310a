// Goal: what a dropped job uploads ends five minutes after the drop, whether it was under way or began later; of a
// cancelled one at once. What the job begins when it is here again, or is asked for anew, goes on, until five minutes
// after its next drop.
#include "worker/node/worker_files.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "absl/synchronization/notification.h"
#include "tests/unit/base/held_executor.h"
#include "tests/unit/worker/fake_remote_files.h"
#include "worker/limits.h"

namespace cairn {
namespace {

constexpr JobId kJob(1), kAnother(2);

// Remote files that know how often those of jobs were stopped.
class StoppedRemote : public FakeRemoteFiles {
 public:
  struct OfJob : FakeRemoteFiles {
    absl::Notification stopped;
    void Stop() override { stopped.Notify(); }  // a second one would abort: each ends once
  };
  std::shared_ptr<RemoteFiles> ForJob() override { return std::make_shared<OfJob>(); }
};

// A task that uploads until its remote files are stopped, or the test ends it.
class Upload {
 public:
  Upload(WorkerFiles& files, JobId job) {
    files.queues().Post(job, {"out:/runs"}, [state = state_](RemoteFiles* own) {
      state->stopped_of = &static_cast<StoppedRemote::OfJob*>(own)->stopped;
      state->begun.Notify();
      state->end.WaitForNotification();
    });
  }
  ~Upload() { End(); }
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;
  void AwaitBegin() { state_->begun.WaitForNotification(); }
  void End() {
    if (!state_->end.HasBeenNotified()) state_->end.Notify();
  }
  // Once it has begun.
  bool stopped() const { return state_->stopped_of->HasBeenNotified(); }

 private:
  struct State {
    absl::Notification begun, end;
    absl::Notification* stopped_of = nullptr;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

class WorkerFilesTest : public testing::Test {
 protected:
  // An upload that is under way.
  std::unique_ptr<Upload> Begin(JobId job) {
    auto upload = std::make_unique<Upload>(files_, job);
    upload->AwaitBegin();
    return upload;
  }

  ManualClock clock_;
  HeldExecutor timers_{clock_};
  StoppedRemote remote_;
  WorkerFiles files_{&timers_, &remote_};
};

constexpr absl::Duration kShort = absl::Seconds(1);

TEST_F(WorkerFilesTest, UploadsEndFiveMinutesAfterTheDrop) {
  EXPECT_EQ(kUploadsAfterDropMax, absl::Minutes(5));
  const auto other = Begin(kAnother), under_way = Begin(kJob);
  files_.OnRequest(kJob);  // as every job
  files_.OnDrop(kJob, /*cancelled=*/false);
  EXPECT_FALSE(under_way->stopped()) << "what was begun has its time";
  Upload late(files_, kJob);  // waits for the one before
  timers_.Pass(kUploadsAfterDropMax - kShort);
  EXPECT_FALSE(under_way->stopped());
  timers_.Pass(kShort);
  EXPECT_TRUE(under_way->stopped());
  under_way->End();
  late.AwaitBegin();
  EXPECT_TRUE(late.stopped()) << "it began after the drop";
  EXPECT_FALSE(other->stopped());
  EXPECT_EQ(timers_.timers(), 0u);
}

TEST_F(WorkerFilesTest, OfACancelledJobAtOnce) {
  const auto under_way = Begin(kJob);
  files_.OnDrop(kJob, /*cancelled=*/true);
  EXPECT_TRUE(under_way->stopped());
  Upload late(files_, kJob);
  under_way->End();
  late.AwaitBegin();
  EXPECT_FALSE(late.stopped()) << "its checkpoints may be removed";
  timers_.Pass(kUploadsAfterDropMax);
  EXPECT_TRUE(late.stopped());
}

TEST_F(WorkerFilesTest, WhatAJobBeginsWhenItIsBackGoesOn) {
  const auto before = Begin(kJob);
  files_.OnDrop(kJob, false);
  Upload between(files_, kJob);
  files_.OnRequest(kJob);
  Upload later(files_, kJob);
  timers_.Pass(kUploadsAfterDropMax);
  EXPECT_TRUE(before->stopped());
  before->End();
  between.AwaitBegin();
  EXPECT_TRUE(between.stopped()) << "it began before the job was back";
  between.End();
  later.AwaitBegin();
  EXPECT_FALSE(later.stopped());
}

// A model file may be asked of any worker, also of one that the job has just left.
TEST_F(WorkerFilesTest, WhatIsAskedOfADroppedJobGoesOn) {
  files_.OnRequest(kJob);
  const auto before = Begin(kJob);
  files_.OnDrop(kJob, false);
  timers_.Pass(kUploadsAfterDropMax - kShort);
  files_.OnRequest(kJob);  // without an assignment
  Upload asked(files_, kJob);
  timers_.Pass(kShort);
  EXPECT_TRUE(before->stopped());
  before->End();
  asked.AwaitBegin();
  EXPECT_FALSE(asked.stopped()) << "it was asked for after the drop";
  timers_.Pass(kUploadsAfterDropMax);
  EXPECT_FALSE(asked.stopped());
  files_.OnDrop(kJob, false);
  timers_.Pass(kUploadsAfterDropMax - kShort);
  EXPECT_FALSE(asked.stopped());
  timers_.Pass(kShort);
  EXPECT_TRUE(asked.stopped()) << "a drop that came later";
}

TEST_F(WorkerFilesTest, EachDropHasItsOwnTime) {
  const auto first = Begin(kJob);
  files_.OnDrop(kJob, false);
  timers_.Pass(kUploadsAfterDropMax - kShort);
  files_.OnRequest(kJob);
  Upload second(files_, kJob);
  files_.OnDrop(kJob, false);  // while the first drop's time is not over
  timers_.Pass(kShort);
  EXPECT_TRUE(first->stopped());
  first->End();
  second.AwaitBegin();
  EXPECT_FALSE(second.stopped()) << "its job was dropped a second ago";
  timers_.Pass(kUploadsAfterDropMax - kShort);
  EXPECT_TRUE(second.stopped());
}

// The end of a job, and then the removal of its checkpoints.
TEST_F(WorkerFilesTest, AnotherDropDoesNotProlongTheFirst) {
  const auto first = Begin(kJob);
  files_.OnDrop(kJob, false);
  Upload second(files_, kJob);
  timers_.Pass(kUploadsAfterDropMax - kShort);
  files_.OnDrop(kJob, false);
  Upload third(files_, kJob);
  timers_.Pass(kShort);
  EXPECT_TRUE(first->stopped());
  first->End();
  second.AwaitBegin();
  EXPECT_TRUE(second.stopped());
  second.End();
  third.AwaitBegin();
  EXPECT_FALSE(third.stopped());
  timers_.Pass(kUploadsAfterDropMax - kShort);
  EXPECT_TRUE(third.stopped());
}

}  // namespace
}  // namespace cairn
