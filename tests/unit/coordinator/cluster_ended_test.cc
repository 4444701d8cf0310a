// Goal: ended jobs. Weights are removed only by a user or by the retention; a name stands for one job or is refused; a
// job that lacks something it asked for, or whose numbers are not finite, does not end as a plain success.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "coordinator/core/limits.h"
#include "tests/unit/coordinator/callback_jobs.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

v1::GetJobRequest ById(uint64_t id) {
  v1::GetJobRequest request;
  request.set_job_id(id);
  return request;
}

v1::GetJobRequest ByName(const std::string& name, bool with_weights = false) {
  v1::GetJobRequest request;
  request.set_name(name);
  request.set_with_weights(with_weights);
  return request;
}

struct EndedCluster : Cluster {
  using Cluster::Cluster;

  const Reply& Cancel(const v1::GetJobRequest& which) {
    const ReplyToken token{next_token_++};
    Do(CancelJob{token, which});
    Settle();
    return *ReplyTo(token);
  }
  const Reply& Delete(const v1::GetJobRequest& which) {
    const ReplyToken token{next_token_++};
    Do(DeleteJob{token, which});
    Settle();
    return *ReplyTo(token);
  }
  uint64_t RunNamed(const std::string& name) {
    const uint64_t id = SubmitNamed(name);
    EXPECT_TRUE(RunToEnd(id));
    return id;
  }
  uint64_t SubmitNamed(const std::string& name) {
    v1::JobSpec spec = Spec(1);
    spec.set_name(name);
    return SubmitOk(spec);
  }
  bool Knows(uint64_t id) { return core().GetJob(JobId(id), clock().Now()).ok(); }

 private:
  uint64_t next_token_ = 1'000'000;
};

std::string Text(const Reply& reply) { return std::string(reply.status.message()); }

// ---- retention ----

TEST(ClusterEnded, ASucceededJobOutlivesAThousandThatNeverRan) {
  EndedCluster c(1, 1);
  const uint64_t kept = c.RunNamed("kept");
  ASSERT_EQ(c.State(kept), v1::SUCCEEDED);
  c.Kill(c.node("worker-0"));
  c.Pass(absl::Seconds(5));
  uint64_t first = 0;
  for (int i = 0; i < kEndedJobsMax + 5; ++i) {
    const uint64_t id = c.SubmitOk(c.Spec());
    if (first == 0) first = id;
    ASSERT_TRUE(c.Cancel(ById(id)).status.ok());
    c.clock().Advance(absl::Seconds(1));
  }
  c.Pass(absl::Seconds(2));
  EXPECT_EQ(c.State(kept), v1::SUCCEEDED);
  EXPECT_TRUE(c.node("ps-0").hosted.contains(kept)) << "and its weights";
  EXPECT_EQ(c.core().ListJobs(absl::InfinitePast()).jobs_size(), 1 + 100);
  EXPECT_FALSE(c.disk.contains(absl::StrCat("job/", first)));
  EXPECT_TRUE(
      c.Logged(absl::StrFormat("job %d: \"test\" is forgotten (--keep-ended-jobs): cancelled, without weights, and 100 "
                               "such jobs have ended later",
                               first)));
  EXPECT_THAT(c.core().ListJobs(absl::InfinitePast()).retention(), HasSubstr("cancelled ones for 7d"));
}

TEST(ClusterEnded, TheRetentionIsByStateAndAge) {
  EndedCluster c(1, 1);
  const uint64_t succeeded = c.RunNamed("good");
  const uint64_t cancelled = c.SubmitNamed("stopped");
  c.Train(2);
  ASSERT_TRUE(c.Cancel(ById(cancelled)).status.ok());
  c.Pass(absl::Seconds(1));
  c.clock().Advance(absl::Hours(7 * 24) - absl::Seconds(10));
  c.Pass(absl::Seconds(2));
  EXPECT_TRUE(c.Knows(cancelled)) << "its week is not over";
  c.RestartCoordinator();
  c.ReconnectAll();
  c.Pass(absl::Seconds(12));
  EXPECT_FALSE(c.Knows(cancelled));
  EXPECT_TRUE(c.Logged("\"stopped\" is forgotten (--keep-ended-jobs): cancelled more than 168h ago"));
  EXPECT_FALSE(c.node("ps-0").hosted.contains(cancelled));
  c.clock().Advance(absl::Hours(10000 * 24));
  c.Pass(absl::Seconds(2));
  EXPECT_TRUE(c.Knows(succeeded));
}

TEST(ClusterEnded, WhereThereIsNoRoomAJobIsRefusedAndNoneForgotten) {
  EndedCluster c(1, 0);
  c.options.retention.without_weights = kEndedJobsMax;
  c.RestartCoordinator();
  c.ReconnectAll();
  for (int i = 0; i < kEndedJobsMax; ++i) ASSERT_TRUE(c.Cancel(ById(c.SubmitNamed("many"))).status.ok());
  const Reply refused = *c.ReplyTo(c.Submit(c.Spec()));
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Text(refused), AllOf(HasSubstr("1000 jobs that have ended are kept, the most there can be; delete some "
                                             "with `cairn delete ID` (the oldest: 1 \"many\""),
                                   HasSubstr("--keep-ended-jobs")));
  ASSERT_TRUE(c.Delete(ById(1)).status.ok());
  c.SubmitOk(c.Spec());
}

// ---- by name ----

TEST(ClusterEnded, ANameIsDeletedOnlyWhereOneJobOfItHasEnded) {
  EndedCluster c(1, 1);
  const uint64_t a = c.RunNamed("x"), b = c.RunNamed("x");
  const Reply several = c.Delete(ByName("x"));
  EXPECT_EQ(several.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Text(several),
            absl::StrFormat("2 jobs named \"x\" can be deleted: %d (succeeded), %d (succeeded); name one by its number",
                            a, b));
  EXPECT_TRUE(c.Knows(a) && c.Knows(b));
  EXPECT_EQ(std::get<v1::DeleteJobResponse>(c.Delete(ById(a)).body).job_id(), a);
  const uint64_t running = c.SubmitNamed("x");
  EXPECT_EQ(std::get<v1::DeleteJobResponse>(c.Delete(ByName("x")).body).job_id(), b)
      << "the running one is none to be deleted";
  const Reply none = c.Delete(ByName("x"));
  EXPECT_EQ(none.status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Text(none), absl::StrFormat("no job named \"x\" can be deleted; there is %d (running)", running));
  EXPECT_EQ(Text(c.Delete(ByName("y"))), "there is no job named \"y\"");
  EXPECT_EQ(std::get<v1::DeleteJobResponse>(c.Delete(ById(a)).body).job_id(), 0u) << "idempotent by number";
}

TEST(ClusterEnded, ANameIsCancelledOnlyWhereOneJobOfItHasNotEnded) {
  EndedCluster c(1, 1);
  const uint64_t ended = c.RunNamed("x");
  EXPECT_EQ(Text(c.Cancel(ByName("x"))),
            absl::StrFormat("no job named \"x\" can be cancelled; there is %d (succeeded)", ended));
  const uint64_t running = c.SubmitNamed("x"), queued = c.SubmitNamed("x");
  const Reply several = c.Cancel(ByName("x"));
  EXPECT_EQ(several.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Text(several), HasSubstr(absl::StrFormat("%d (running), %d (queued)", running, queued)));
  ASSERT_TRUE(c.Cancel(ById(running)).status.ok());
  EXPECT_EQ(std::get<v1::JobStatus>(c.Cancel(ByName("x")).body).job_id(), queued);
}

TEST(ClusterEnded, WithWeightsANameIsItsNewestJobThatHasSome) {
  EndedCluster c(1, 1);
  const uint64_t ran = c.RunNamed("x");
  const uint64_t running = c.SubmitNamed("x"), queued = c.SubmitNamed("x");
  EXPECT_EQ(c.core().GetJob(ByName("x"), c.clock().Now())->job_id(), queued);
  EXPECT_EQ(c.core().GetJob(ByName("x", true), c.clock().Now())->job_id(), running);
  ASSERT_TRUE(c.Delete(ById(ran)).status.ok());
  c.SubmitNamed("y");
  EXPECT_EQ(c.core().GetJob(ByName("y", true), c.clock().Now()).status().message(),
            "no job named \"y\" has weights; see `cairn jobs`");
}

// ---- how a job ends ----

TEST(ClusterEnded, ALossThatIsNotFiniteIsSaidInItsEpochAndAtTheEnd) {
  EndedCluster c(1, 1);
  c.train_loss = {{1, kNan}};
  const uint64_t id = c.SubmitOk(c.Spec());
  c.Train(5);
  EXPECT_FALSE(c.Job(id).has_not_finite_step());
  c.Train(1);
  c.Pass(absl::Milliseconds(100));
  EXPECT_EQ(c.Job(id).not_finite_step(), 5);
  EXPECT_THAT(
      c.Job(id).reason(),
      HasSubstr(
          "the loss is not finite since step 5 (epoch 2): the weights cannot be used; lower optimizer.learning_rate"));
  EXPECT_TRUE(c.Logged("the loss is not finite since step 5"));
  c.RestartCoordinator();
  EXPECT_EQ(c.Job(id).not_finite_step(), 5) << "the running epoch's figures are not here yet";
  c.ReconnectAll();
  c.Pass(absl::Milliseconds(100));
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::ENDED_WITH_ERRORS);
  EXPECT_THAT(c.Job(id).reason(), StartsWith("warning: the loss is not finite since step 5"));
  EXPECT_EQ(c.Job(id).digest(), "d1e5") << "the weights are kept, and can be looked at";
  EXPECT_TRUE(c.core().GetJob(ByName("test", true), c.clock().Now()).ok());
}

// The figures of both epochs come in one report.
TEST(ClusterEnded, ALossThatIsNotFiniteIsSaidOfTheFirstEpochThatHasIt) {
  EndedCluster c(1, 1);
  c.train_loss = {{0, kNan}, {1, kNan}};
  const uint64_t id = c.SubmitOk(c.Spec());
  c.tells_figures = false;
  c.Train(5);
  c.tells_figures = true;
  c.Train(1);
  c.Pass(absl::Milliseconds(100));
  const v1::JobStatus job = c.Job(id);
  EXPECT_EQ(job.not_finite_step(), 4);
  EXPECT_THAT(job.reason(), HasSubstr("the loss is not finite since step 4 (epoch 1)"));
  ASSERT_FALSE(job.events().empty());
  const v1::JobEvent& event = *job.events().rbegin();
  EXPECT_TRUE(event.warning());
  EXPECT_THAT(event.text(), StartsWith("the loss is not finite since step 4")) << "it is shown as a warning anyway";
}

TEST(ClusterEnded, ALossThatIsFiniteAgainIsNoError) {
  EndedCluster c(1, 1);
  c.train_loss = {{0, std::numeric_limits<double>::infinity()}};
  const uint64_t id = c.SubmitOk(c.Spec());
  c.Train(2);
  EXPECT_TRUE(c.Job(id).has_not_finite_step());
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED) << c.Job(id).reason();
}

TEST(ClusterEnded, NumbersThatAreNotFiniteAtTheEndAreErrors) {
  EndedCluster weights(1, 1);
  weights.not_finite = "dense/kernel";
  const uint64_t id = weights.SubmitOk(weights.Spec());
  EXPECT_TRUE(weights.RunToEnd(id));
  EXPECT_EQ(weights.State(id), v1::ENDED_WITH_ERRORS);
  EXPECT_THAT(weights.Job(id).reason(),
              HasSubstr("its weights are not finite (\"dense/kernel\" is the first variable)"));

  EndedCluster validation(1, 1);
  validation.validation_loss = {{1, kNan}};
  const uint64_t other = validation.SubmitOk(validation.Spec());
  EXPECT_TRUE(validation.RunToEnd(other));
  EXPECT_EQ(validation.State(other), v1::ENDED_WITH_ERRORS);
  EXPECT_THAT(validation.Job(other).reason(), HasSubstr("the last validation's loss is not finite"));
}

TEST(ClusterEnded, ACheckpointThatIsNotWrittenIsAnError) {
  EndedCluster c(1, 1);
  c.write_checkpoints = true;
  c.checkpoint_error = "/ro/step-10: Read-only file system";
  const uint64_t id = c.SubmitOk(SpecWith("callbacks { backup_and_restore { backup_dir: '/ro' } }", 2));
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::ENDED_WITH_ERRORS);
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("the last checkpoint was not written: /ro/step-10: Read-only file system"));
  EXPECT_TRUE(c.node("worker-0").drops.empty()) << "what there is of its checkpoints is kept";
  EXPECT_TRUE(c.node("ps-0").hosted.contains(id));
}

TEST(ClusterEnded, AModelFileThatIsNotWrittenIsAnErrorAfterARestartToo) {
  EndedCluster c(1, 1);
  c.write_checkpoints = true;
  c.file_failures = 4;  // the first file's tries
  const uint64_t id = c.SubmitOk(SpecWith("callbacks { model_checkpoint { filepath: '/m-{epoch}.keras' } }", 2));
  c.Train(kSteps);
  c.Pass(absl::Seconds(20));
  ASSERT_EQ(NotesOf(c.Job(id)).at(0), "1 model_checkpoint: not saved: no space left on device");
  c.RestartCoordinator();
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::ENDED_WITH_ERRORS);
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("epoch 1: model_checkpoint: not saved: no space left on device"));
  EXPECT_THAT(c.Job(id).reason(), Not(HasSubstr("more, see its notes")));
}

}  // namespace
}  // namespace cairn
