// Goal: what a coordinator stores passes the check at its next start; a state with one field wrong is refused, with its
// key and field.
#include "coordinator/core/stored_check.h"

#include <gtest/gtest.h>

#include <functional>

#include "absl/strings/match.h"
#include "common/base/version.h"
#include "tests/unit/coordinator/fake_cluster.h"

namespace cairn {
namespace {

StoredState StateOf(const FakeCluster& cluster) {
  const absl::StatusOr<StoredState> state = ReadStored(cluster.disk);
  EXPECT_TRUE(state.ok()) << state.status();
  return state.value_or(StoredState());
}

class StoredCheckTest : public testing::Test {
 protected:
  StoredCheckTest() {
    cluster_.AddPs("ps0");
    cluster_.AddPs("ps1");
    cluster_.AddWorker("worker0", 2);
    cluster_.AddWorker("evaluator0", 1, v1::EVALUATOR);
    const ReplyToken token = cluster_.Submit(FakeCluster::Spec());
    cluster_.Settle();
    id_ = cluster_.SubmittedId(token);
  }
  FakeCluster cluster_;
  uint64_t id_ = 0;
};

TEST_F(StoredCheckTest, EveryStateOfAJobsLifePasses) {
  for (int round = 0; round < 100 && cluster_.State(id_) != v1::SUCCEEDED; ++round) {
    EXPECT_TRUE(CheckStored(StateOf(cluster_)).ok()) << CheckStored(StateOf(cluster_)) << cluster_.State(id_);
    cluster_.Settle();
    cluster_.Pass(absl::Milliseconds(200));
    cluster_.TrainStep();
  }
  EXPECT_EQ(cluster_.State(id_), v1::SUCCEEDED);
  EXPECT_TRUE(CheckStored(StateOf(cluster_)).ok()) << CheckStored(StateOf(cluster_));
}

TEST_F(StoredCheckTest, OneWrongFieldIsNamed) {
  cluster_.Pass(absl::Seconds(1));
  cluster_.TrainStep();
  const StoredState right = StateOf(cluster_);
  ASSERT_EQ(right.jobs.size(), 1u);
  ASSERT_EQ(right.jobs[0].status().state(), v1::RUNNING);
  ASSERT_GT(right.jobs[0].status().partitions_size(), 1);
  const struct {
    const char* names;
    std::function<void(StoredState&)> alter;
  } kCases[] = {
      {"job_id", [](StoredState& s) { s.jobs[0].mutable_status()->set_job_id(0); }},
      {"two jobs", [](StoredState& s) { s.jobs.push_back(s.jobs[0]); }},
      {"state", [](StoredState& s) { s.jobs[0].mutable_status()->set_state(static_cast<v1::JobState>(77)); }},
      {"spec.replicas", [](StoredState& s) { s.jobs[0].mutable_status()->mutable_spec()->set_replicas(-1); }},
      {"spec.replicas", [](StoredState& s) { s.jobs[0].mutable_status()->mutable_spec()->set_replicas(1 << 30); }},
      {"spec.local_sync", [](StoredState& s) { s.jobs[0].mutable_status()->mutable_spec()->set_local_sync(1000); }},
      {"replicas", [](StoredState& s) { s.jobs[0].mutable_status()->mutable_replicas()->RemoveLast(); }},
      {"replica 9", [](StoredState& s) { s.jobs[0].mutable_status()->mutable_replicas(0)->set_replica(9); }},
      {"steps_per_epoch", [](StoredState& s) { s.jobs[0].mutable_status()->set_steps_per_epoch(0); }},
      {"steps_per_epoch", [](StoredState& s) { s.jobs[0].mutable_status()->set_steps_per_epoch(INT64_MAX); }},
      {"total_steps", [](StoredState& s) { s.jobs[0].mutable_status()->set_total_steps(1 << 20); }},
      {"epochs_open", [](StoredState& s) { s.jobs[0].mutable_status()->set_epochs_open(1 << 20); }},
      {"summaries_written", [](StoredState& s) { s.jobs[0].set_summaries_written(-1); }},
      {"replica_step", [](StoredState& s) { s.jobs[0].add_replica_step(0); }},
      {"replica_finished", [](StoredState& s) { s.jobs[0].add_replica_finished(false); }},
      {"partition 5", [](StoredState& s) { s.jobs[0].mutable_status()->mutable_partitions(1)->set_partition(5); }},
      {"numbers", [](StoredState& s) { s.jobs[0].mutable_status()->mutable_partitions(1)->set_end(0); }},
      {"role", [](StoredState& s) { s.cluster.mutable_nodes(0)->set_role(v1::ROLE_UNSPECIFIED); }},
      {"called", [](StoredState& s) { *s.cluster.add_nodes() = s.cluster.nodes(0); }},
  };
  for (const auto& c : kCases) {
    StoredState state = right;
    c.alter(state);
    const absl::Status status = CheckStored(state);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << c.names;
    EXPECT_TRUE(absl::StrContains(status.message(), "key \"")) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), c.names)) << c.names << ": " << status;
  }
}

// It is whole, but of a release that this one does not know.
TEST_F(StoredCheckTest, AStateOfAReleaseThatIsTooFarAwayIsLeftAlone) {
  StoredState state = StateOf(cluster_);
  EXPECT_EQ(state.cluster.interface(), ClusterInterface());
  state.cluster.set_version("9.9");
  state.cluster.set_interface(ClusterInterface() + 1);
  EXPECT_TRUE(CheckStored(state).ok()) << CheckStored(state);
  state.cluster.set_interface(ClusterInterface() + 2);
  EXPECT_EQ(CheckStored(state).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(CheckStored(state).message(), "key \"cluster\": stored by cairn 9.9 (interface"))
      << CheckStored(state);
}

// A text that is cut within a character cannot be parsed by protobuf: the coordinator could not start again on its own
// state.
TEST_F(StoredCheckTest, ALongErrorIsCutBetweenCharacters) {
  cluster_.Pass(absl::Seconds(1));
  for (const std::string& first : {std::string(), std::string("x")}) {
    v1::NodeMessage message;
    message.mutable_job_error()->set_job_id(id_);
    std::string text = first;
    for (int i = 0; i < 5000; ++i) text += "\u00e9";
    message.mutable_job_error()->set_message(text);
    cluster_.Say(cluster_.node("ps0"), message);
    cluster_.Say(cluster_.node("worker0"), message);
    EXPECT_TRUE(CheckStored(StateOf(cluster_)).ok()) << CheckStored(StateOf(cluster_));
  }
  EXPECT_GT(cluster_.Job(id_).reason().size(), 400u);
}

}  // namespace
}  // namespace cairn
