// Goal: ended jobs do not delay running ones. If a ps is lost, copies of running jobs are replaced first, and those of
// ended jobs a few at a time; every ended job gets its copies back in the end. A copy that a ps still holds of a job
// that went on without it is no fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/core/partition_copies.h"
#include "tests/unit/coordinator/copies.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

constexpr int kEndedJobs = 12;

class EndedCopiesTest : public testing::Test {
 protected:
  EndedCopiesTest() {
    for (int i = 0; i < kEndedJobs; ++i) {
      ended_.push_back(c_.SubmitOk(SpecWithCopies(1, 1)));
      EXPECT_TRUE(c_.RunToEnd(ended_.back()));
    }
    running_ = c_.SubmitOk(SpecWithCopies(40, 1, v1::REPLICATED, /*replicas=*/1));
    c_.Pass(absl::Milliseconds(300));
    c_.Train(2);
  }
  // The number of ended jobs whose copy on this ps is not in sync yet; "": on all ps.
  int Syncing(const std::string& ps) const {
    int count = 0;
    for (const uint64_t id : ended_) {
      const v1::JobStatus job = c_.Job(id);
      for (const auto& p : job.partitions()) {
        for (const auto& b : p.backups()) count += !Complete(b) && (ps.empty() || p.primary() == ps || b.node() == ps);
      }
    }
    return count;
  }
  bool Whole() const {
    return std::all_of(ended_.begin(), ended_.end(),
                       [&](uint64_t id) { return InSync(c_.Job(id)) == c_.Job(id).partitions_size(); });
  }
  size_t FirstLogged(const std::string& part) const {
    const auto& log = c_.log();
    return std::find_if(log.begin(), log.end(),
                        [&](const std::string& line) { return line.find(part) != std::string::npos; }) -
           log.begin();
  }

  Cluster c_{4, 1, /*slots=*/2};
  std::vector<uint64_t> ended_;
  uint64_t running_ = 0;
};

TEST_F(EndedCopiesTest, ARunningJobComesFirstAndANewOneStartsAtOnce) {
  ASSERT_TRUE(Whole());
  const std::string victim = c_.Job(running_).partitions(0).primary();
  c_.Kill(c_.node(victim));
  c_.replicate = false;
  c_.Pass(absl::Seconds(1));
  EXPECT_THAT(c_.log()[FirstLogged("served from now on")], HasSubstr(absl::StrFormat("job %d: ", running_)));
  for (const uint64_t id : ended_) EXPECT_EQ(PrimariesOn(c_.Job(id), victim), 0) << "it can be exported again";
  const uint64_t fresh = c_.SubmitOk(SpecWithCopies(1, 1));
  c_.Pass(absl::Milliseconds(300));
  c_.Train(2);
  EXPECT_EQ(c_.State(fresh), v1::RUNNING) << c_.Job(fresh).reason();
  EXPECT_GT(c_.TrueStep(fresh), 0);
}

TEST_F(EndedCopiesTest, CopiesOfEndedJobsAreMadeAFewAtATime) {
  ASSERT_TRUE(Whole());
  c_.Kill(c_.node("ps-0"));
  c_.replicate = false;
  for (int i = 0; i < 50; ++i) {
    c_.Pass(absl::Milliseconds(200));
    EXPECT_LE(Syncing(""), 32);
    for (const char* ps : {"ps-1", "ps-2", "ps-3"}) EXPECT_LE(Syncing(ps), 8) << ps;
  }
  EXPECT_GT(Syncing(""), 0);
  c_.replicate = true;
  c_.Pass(absl::Minutes(1));
  EXPECT_TRUE(Whole()) << "each gets its copies back";
}

// All ps are back, and there has been no Tick: the copies of the requested job are settled at once.
TEST_F(EndedCopiesTest, AnEvaluationDoesNotWaitForItsTurn) {
  for (const char* name : {"ps-0", "ps-1", "ps-2", "ps-3"}) c_.Kill(c_.node(name));
  for (const char* name : {"ps-0", "ps-1", "ps-2", "ps-3"}) c_.Restart(c_.node(name));
  for (const uint64_t id : ended_) {
    v1::EvaluateRequest request;
    request.mutable_job()->set_job_id(id);
    const ReplyToken call{1'000'000 + id};
    c_.Do(EvaluateJob{call, request, c_.clock().Now() + absl::Minutes(1)});
    c_.Settle();
    ASSERT_NE(c_.ReplyTo(call), nullptr);
    EXPECT_TRUE(c_.ReplyTo(call)->status.ok()) << c_.ReplyTo(call)->status;
  }
}

TEST_F(EndedCopiesTest, WhatAPsHasOfJobsThatWentOnIsNoFault) {
  c_.Kill(c_.node("ps-0"));
  c_.Pass(absl::Minutes(1));
  ASSERT_TRUE(Whole());
  c_.Restart(c_.node("ps-0"));
  c_.Pass(absl::Seconds(5));
  EXPECT_EQ(FirstLogged("has not given to it"), c_.log().size());
  EXPECT_LT(
      FirstLogged("ps \"ps-0\" drops its old partitions of jobs that continued without it, or were deleted: 1, 2"),
      c_.log().size());
}

TEST_F(EndedCopiesTest, WhatNobodyHasGivenToItIsAFault) {
  c_.Kill(c_.node("ps-0"));
  c_.Pass(absl::Seconds(1));
  c_.node("ps-0").hosted[999].generation = 3;
  c_.Restart(c_.node("ps-0"));
  c_.Pass(absl::Seconds(1));
  EXPECT_TRUE(
      c_.Logged("ps \"ps-0\" holds partitions of job 999 in generation 3, which this coordinator has not given to it"));
}

}  // namespace
}  // namespace cairn
