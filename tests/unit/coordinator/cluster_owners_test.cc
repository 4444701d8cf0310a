// Goal: a user sees and changes own jobs, those of a group and those without an owner; an admin all. Owners survive the
// coordinator's restart.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/core/requester.h"
#include "tests/unit/coordinator/callback_jobs.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

Requester User(const std::string& name, std::set<std::string> groups = {}) {
  return {.everything = false, .user = name, .groups = std::move(groups)};
}

struct OwnedCluster : Cluster {
  OwnedCluster() : Cluster(1, 1) {}

  uint64_t SubmitAs(const Requester& who, const std::string& name, const std::string& key = "") {
    v1::JobSpec spec = Spec(1);
    spec.set_name(name);
    return SubmittedId(Submit(spec, key, who));
  }
  absl::Status See(uint64_t id, const Requester& who) {
    v1::GetJobRequest request;
    request.set_job_id(id);
    return core().GetJob(request, clock().Now(), who).status();
  }
  // The ids that the list has for `who`.
  std::vector<uint64_t> Listed(const Requester& who) {
    std::vector<uint64_t> ids;
    const v1::ListJobsResponse jobs = core().ListJobs(clock().Now(), who);
    for (const v1::JobStatus& job : jobs.jobs()) ids.push_back(job.job_id());
    return ids;
  }
  template <typename Event>
  absl::Status Ask(Event event) {
    event.reply = ReplyToken{next_++};
    Do(event);
    Settle();
    return ReplyTo(event.reply)->status;
  }
  uint64_t next_ = 9000;
};

v1::GetJobRequest Named(const std::string& name) {
  v1::GetJobRequest request;
  request.set_name(name);
  return request;
}
v1::GetJobRequest Numbered(uint64_t id) {
  v1::GetJobRequest request;
  request.set_job_id(id);
  return request;
}

TEST(Owners, HaveEachNameOnceAmongJobsThatHaveNotEnded) {
  OwnedCluster c;
  const Requester alice = User("alice"), bob = User("bob");
  const auto submit = [&](const Requester& who, const std::string& name, const std::string& key = "") {
    v1::JobSpec spec = c.Spec(1);
    spec.set_name(name);
    const ReplyToken reply = c.Submit(spec, key, who);
    c.Settle();
    return c.ReplyTo(reply)->status;
  };
  EXPECT_TRUE(submit(alice, "a", "key").ok());
  const absl::Status second = submit(alice, "a");
  EXPECT_EQ(second.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.message()), HasSubstr("your job 1, which has not ended, is called \"a\" too"));
  EXPECT_TRUE(submit(alice, "a", "key").ok()) << "the same submission";
  EXPECT_TRUE(submit(alice, "b").ok());
  EXPECT_TRUE(submit(bob, "a").ok()) << "another owner";
  EXPECT_TRUE(submit({}, "a").ok() && submit({}, "a").ok()) << "jobs without an owner";
  ASSERT_TRUE(c.Ask(CancelJob{{}, Numbered(1), alice}).ok());
  EXPECT_TRUE(submit(alice, "a").ok()) << "the first one has ended";
  EXPECT_EQ(submit(alice, "a").code(), absl::StatusCode::kAlreadyExists);
}

TEST(Owners, SeeTheirOwn) {
  OwnedCluster c;
  const Requester alice = User("alice", {"vision"}), bob = User("bob", {"speech"}), carol = User("carol", {"vision"});
  const uint64_t hers = c.SubmitAs(alice, "a"), his = c.SubmitAs(bob, "b"), open = c.SubmitAs({}, "c");
  EXPECT_EQ(c.Job(hers).owner(), "alice");
  EXPECT_THAT(c.Job(hers).groups(), testing::ElementsAre("vision"));
  EXPECT_EQ(c.Job(open).owner(), "");
  EXPECT_THAT(c.Listed(alice), testing::ElementsAre(open, hers));
  EXPECT_THAT(c.Listed(bob), testing::ElementsAre(open, his));
  EXPECT_THAT(c.Listed(carol), testing::ElementsAre(open, hers)) << "of her group";
  EXPECT_THAT(c.Listed(User("")), testing::ElementsAre(open)) << "a node is no user";
  EXPECT_EQ(c.Listed({.everything = true, .user = "root"}).size(), 3u);
  EXPECT_TRUE(c.See(hers, alice).ok() && c.See(hers, carol).ok() && c.See(open, bob).ok());
  EXPECT_EQ(c.See(hers, bob).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(c.See(hers, bob).message()), HasSubstr("is alice's"));
}

TEST(Owners, ChangeTheirOwn) {
  OwnedCluster c;
  const Requester alice = User("alice"), bob = User("bob");
  const uint64_t hers = c.SubmitAs(alice, "same"), his = c.SubmitAs(bob, "same");
  EXPECT_EQ(c.Ask(CancelJob{{}, Numbered(hers), bob}).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(c.Ask(DeleteJob{{}, Numbered(hers), bob}).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(c.Ask(CancelJob{{}, Named("same"), User("carol")}).code(), absl::StatusCode::kNotFound);
  v1::EvaluateRequest evaluate;
  *evaluate.mutable_job() = Numbered(hers);
  EXPECT_EQ(c.Ask(EvaluateJob{{}, evaluate, absl::InfiniteFuture(), bob}).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(c.Ask(PredictJob{{}, evaluate, absl::InfiniteFuture(), bob}).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(c.State(hers), v1::RUNNING);
  EXPECT_TRUE(c.Ask(CancelJob{{}, Named("same"), bob}).ok()) << "of two jobs with the name one is his";
  EXPECT_EQ(c.State(his), v1::CANCELLED);
  EXPECT_EQ(c.Job(his).reason(), "cancelled by bob");
  EXPECT_TRUE(c.Ask(CancelJob{{}, Numbered(hers), {.everything = true, .user = "root"}}).ok());
  EXPECT_TRUE(c.Ask(DeleteJob{{}, Named("same"), alice}).ok());
  EXPECT_EQ(c.See(hers, alice).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(c.See(his, bob).ok());
}

TEST(Owners, AKeyIsTheUsersOwn) {
  OwnedCluster c;
  const uint64_t hers = c.SubmitAs(User("alice"), "a", "key");
  EXPECT_EQ(c.SubmitAs(User("alice"), "a", "key"), hers);
  EXPECT_NE(c.SubmitAs(User("bob"), "b", "key"), hers);
}

TEST(Owners, SurviveARestart) {
  OwnedCluster c;
  const uint64_t hers = c.SubmitAs(User("alice", {"vision"}), "a");
  c.RestartCoordinator();
  EXPECT_EQ(c.Job(hers).owner(), "alice");
  EXPECT_EQ(c.See(hers, User("bob")).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(c.See(hers, User("carol", {"vision"})).ok());
}

}  // namespace
}  // namespace cairn
