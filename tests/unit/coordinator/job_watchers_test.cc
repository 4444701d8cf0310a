// Goal: a watcher of a job receives each change of it, one write at a time and not too often, and is finished once:
// after the final state, when the job is deleted, or when the driver may not act any more.
#include "coordinator/node/job_watchers.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "coordinator/core/limits.h"
#include "tests/unit/base/held_executor.h"
#include "tests/unit/coordinator/fake_cluster.h"

namespace cairn {
namespace {

struct FakeSink : WatchSink {
  void Write(v1::JobStatus status) override { written.push_back(std::move(status)); }
  void Finish(const absl::Status& status) override {
    EXPECT_FALSE(finished.has_value()) << "it was finished before";
    finished = status;
  }
  std::vector<v1::JobStatus> written;
  std::optional<absl::Status> finished;
};

constexpr uint64_t kWatcher = 7;

class JobWatchersTest : public testing::Test {
 protected:
  JobWatchersTest() {
    cluster_.AddPs("ps-0");
    cluster_.AddWorker("worker-0", 4);
    const ReplyToken token = cluster_.Submit(FakeCluster::Spec());
    cluster_.Settle();
    job_ = JobId(cluster_.SubmittedId(token));
    watchers_.Add(kWatcher, job_, sink_, nullptr);
  }
  void Cancel() {
    v1::GetJobRequest request;
    request.set_job_id(job_.value);
    cluster_.Do(CancelJob{ReplyToken(901), request});
  }

  FakeCluster cluster_;
  HeldExecutor executor_{cluster_.clock()};
  bool may_act_ = true;
  JobWatchers watchers_{&cluster_.clock(), &executor_,
                        [this]() -> const ClusterCore* { return may_act_ ? &cluster_.core() : nullptr; }};
  JobId job_;
  std::shared_ptr<FakeSink> sink_ = std::make_shared<FakeSink>();
};

TEST_F(JobWatchersTest, TheFirstStatusIsWrittenAtOnce) {
  watchers_.Notify(kWatcher);
  ASSERT_EQ(sink_->written.size(), 1u);
  EXPECT_EQ(sink_->written[0].job_id(), job_.value);
  watchers_.Written(kWatcher);
  EXPECT_EQ(sink_->written.size(), 1u) << "nothing changed";
  EXPECT_EQ(executor_.timers(), 0u);
}

TEST_F(JobWatchersTest, ChangesDuringAWriteAreWrittenTogetherAfterIt) {
  watchers_.Notify(kWatcher);
  watchers_.Changed({job_, job_});
  executor_.Pass(JobWatchers::kWatchInterval);
  watchers_.Changed({job_});
  EXPECT_EQ(sink_->written.size(), 1u);
  watchers_.Written(kWatcher);
  EXPECT_EQ(sink_->written.size(), 2u);
  watchers_.Written(kWatcher);
  EXPECT_EQ(sink_->written.size(), 2u);
}

TEST_F(JobWatchersTest, WritesAreAnIntervalApart) {
  watchers_.Notify(kWatcher);
  watchers_.Written(kWatcher);
  watchers_.Changed({job_});
  watchers_.Changed({job_});
  EXPECT_EQ(sink_->written.size(), 1u);
  EXPECT_EQ(executor_.timers(), 1u);
  executor_.Pass(JobWatchers::kWatchInterval);
  EXPECT_EQ(sink_->written.size(), 2u);
}

TEST_F(JobWatchersTest, AnotherStateIsWrittenAtOnce) {
  watchers_.Notify(kWatcher);
  watchers_.Written(kWatcher);
  watchers_.Changed({job_});
  EXPECT_EQ(executor_.timers(), 1u);
  Cancel();
  watchers_.Changed({job_});
  ASSERT_EQ(sink_->written.size(), 2u);
  EXPECT_EQ(sink_->written[1].state(), v1::CANCELLED);
  watchers_.Written(kWatcher);
  EXPECT_EQ(sink_->finished, absl::OkStatus());
  executor_.Pass(JobWatchers::kWatchInterval);
  EXPECT_EQ(sink_->written.size(), 2u);
}

TEST_F(JobWatchersTest, OtherJobsDoNotConcernIt) {
  watchers_.Notify(kWatcher);
  watchers_.Written(kWatcher);
  executor_.Pass(JobWatchers::kWatchInterval);
  watchers_.Changed({JobId(job_.value + 1)});
  EXPECT_EQ(sink_->written.size(), 1u);
}

TEST_F(JobWatchersTest, ItIsFinishedWhenTheFinalStateWasWritten) {
  Cancel();
  watchers_.Notify(kWatcher);
  ASSERT_EQ(sink_->written.size(), 1u);
  EXPECT_EQ(sink_->written[0].state(), v1::CANCELLED);
  EXPECT_FALSE(sink_->finished.has_value()) << "the write is not done";
  watchers_.Written(kWatcher);
  EXPECT_EQ(sink_->finished, absl::OkStatus());
  watchers_.Written(kWatcher);
  watchers_.End(absl::UnavailableError("stopping"));
}

TEST_F(JobWatchersTest, ADeletedJobEndsItsWatchers) {
  watchers_.Notify(kWatcher);
  watchers_.Written(kWatcher);
  executor_.Pass(JobWatchers::kWatchInterval);
  Cancel();
  v1::GetJobRequest request;
  request.set_job_id(job_.value);
  cluster_.Do(DeleteJob{ReplyToken(902), request});
  watchers_.Changed({job_});
  ASSERT_TRUE(sink_->finished.has_value());
  EXPECT_TRUE(absl::IsNotFound(*sink_->finished));
}

TEST_F(JobWatchersTest, NothingIsWrittenOnceTheDriverMayNotAct) {
  may_act_ = false;
  watchers_.Notify(kWatcher);
  EXPECT_TRUE(sink_->written.empty());
  watchers_.End(absl::UnavailableError("it no longer leads"));
  ASSERT_TRUE(sink_->finished.has_value());
  EXPECT_TRUE(absl::IsUnavailable(*sink_->finished));
  may_act_ = true;
  watchers_.Changed({job_});
  EXPECT_TRUE(sink_->written.empty());
}

TEST_F(JobWatchersTest, OneThatIsGoneIsNeitherWrittenNorFinished) {
  watchers_.Notify(kWatcher);
  watchers_.Written(kWatcher);
  watchers_.Changed({job_});
  watchers_.Gone(kWatcher);
  executor_.Pass(JobWatchers::kWatchInterval);
  watchers_.End(absl::UnavailableError("stopping"));
  EXPECT_EQ(sink_->written.size(), 1u);
  EXPECT_FALSE(sink_->finished.has_value());
}

TEST_F(JobWatchersTest, ThereIsALimitForAllAndForAMachine) {
  uint64_t id = kWatcher;
  for (const char* machine : {"ipv4:10.0.0.7", "ipv4:10.0.0.8"}) {
    for (size_t i = 0; i < kDriverWatchersOfMachineMax; ++i) {
      absl::StatusOr<MachinePlaces::Place> place = watchers_.TakePlace(machine);
      ASSERT_TRUE(place.ok()) << place.status();
      watchers_.Add(++id, job_, sink_, *std::move(place));
    }
    EXPECT_TRUE(absl::IsResourceExhausted(watchers_.TakePlace(machine).status()));
  }
  EXPECT_EQ(id - kWatcher, kDriverWatchersMax);
  EXPECT_EQ(watchers_.TakePlace("ipv4:10.0.0.9").status(),
            absl::ResourceExhaustedError("too many watches of jobs are open; try again later"));
  watchers_.Gone(id);
  EXPECT_TRUE(watchers_.TakePlace("ipv4:10.0.0.9").ok());
}

}  // namespace
}  // namespace cairn
