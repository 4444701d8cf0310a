// Goal: a job that is only checked (cairn submit --dry-run) has a few steps measured by a worker, with as many replicas
// as it would have; the answer says on which worker, or why not. A job that is submitted has none measured.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "common/model/job_check.h"
#include "coordinator/core/limits.h"
#include "tests/unit/coordinator/cluster.h"

namespace cairn {
namespace {

struct CheckedCluster : Cluster {
  CheckedCluster() : Cluster(1, 2, 3) { answer_inspections = false; }

  ReplyToken Send(const v1::JobSpec& spec, bool check_only) {
    const ReplyToken token{++last_};
    Do(SubmitJob{token, std::make_shared<const CheckedJob>(*CheckJob(spec)), "", {}, check_only, nullptr});
    Settle();
    return token;
  }
  // Of the worker that was asked.
  FakeNode& Asked() { return node("worker-0").inspections.empty() ? node("worker-1") : node("worker-0"); }
  void Answer(const v1::StepProbe& probe, const v1::CheckpointFacts& facts = {}) {
    FakeNode& worker = Asked();
    v1::NodeMessage message;
    message.mutable_data_info()->set_request_id(worker.inspections.back().request_id());
    *message.mutable_data_info()->mutable_info() = data;
    *message.mutable_data_info()->mutable_probe() = probe;
    *message.mutable_data_info()->mutable_checkpoint() = facts;
    worker.inspections.clear();
    Say(worker, message);
    Settle();
  }
  v1::StepProbe Told(ReplyToken token) {
    const Reply* const reply = ReplyTo(token);
    EXPECT_NE(reply, nullptr);
    return reply == nullptr ? v1::StepProbe() : std::get<v1::SubmitResponse>(reply->body).job().probe();
  }

 private:
  uint64_t last_ = 900;
};

TEST(ClusterCheck, AsksForAProbeWithTheReplicasThatTheJobWouldHave) {
  CheckedCluster c;
  v1::JobSpec spec = Cluster::Spec();
  spec.clear_replicas();
  const ReplyToken token = c.Send(spec, true);
  ASSERT_EQ(c.Asked().inspections.size(), 1u);
  const v1::InspectData asked = c.Asked().inspections[0];
  EXPECT_TRUE(asked.probe());
  EXPECT_EQ(asked.spec().replicas(), 6) << "all slots";
  const std::string name = c.Asked().hello.name();
  v1::StepProbe probe;
  probe.set_steps(5);
  probe.set_step_ms(12.5);
  probe.set_worker("another");
  probe.set_slots(77);
  c.Answer(probe);
  EXPECT_EQ(c.Told(token).step_ms(), 12.5);
  EXPECT_EQ(c.Told(token).worker(), name) << "who was asked, whatever it says";
  EXPECT_EQ(c.Told(token).slots(), 6);
}

// Else it would be accepted, and refused when the coordinator restarts.
TEST(ClusterCheck, AJobThatItsCheckpointContradictsIsRefused) {
  CheckedCluster c;
  v1::JobSpec spec = Cluster::Spec();
  spec.clear_replicas();
  spec.set_min_workers(2);
  spec.set_resume_from("/checkpoints");
  const ReplyToken token = c.Send(spec, false);
  v1::CheckpointFacts facts;
  facts.set_replicas(1);
  c.Answer({}, facts);
  ASSERT_NE(c.ReplyTo(token), nullptr);
  EXPECT_EQ(c.ReplyTo(token)->status.message(),
            "min_workers: 2 is more than the 1 replicas, so that some would have no work; use fewer, or more replicas");
}

TEST(ClusterCheck, TheReasonWhyNothingWasMeasuredIsBounded) {
  CheckedCluster c;
  const ReplyToken token = c.Send(Cluster::Spec(), true);
  v1::StepProbe probe;
  probe.set_not_measured(std::string(1 << 16, 'x'));
  c.Answer(probe);
  EXPECT_LE(c.Told(token).not_measured().size(), kErrorTextMax);
  EXPECT_EQ(c.Told(token).not_measured().substr(0, 3), "xxx");
}

TEST(ClusterCheck, AJobThatIsSubmittedIsNotProbed) {
  CheckedCluster c;
  const ReplyToken token = c.Send(Cluster::Spec(), false);
  ASSERT_EQ(c.Asked().inspections.size(), 1u);
  EXPECT_FALSE(c.Asked().inspections[0].probe());
  v1::StepProbe probe;
  probe.set_steps(5);
  c.Answer(probe);
  const Reply* const reply = c.ReplyTo(token);
  ASSERT_NE(reply, nullptr);
  EXPECT_FALSE(std::get<v1::SubmitResponse>(reply->body).job().has_probe());
}

}  // namespace
}  // namespace cairn
