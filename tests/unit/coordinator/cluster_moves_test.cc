// Goal: work moves while training goes on: drains of ps and workers, ps that join, stragglers, and workers that cannot
// compute a job. The fake cluster checks at every step that no partition lost or doubled an update.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/coordinator/cluster.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

v1::JobSpec LongSpec(int backups = 0) {
  v1::JobSpec spec = FakeCluster::Spec();
  spec.set_epochs(20);  // 100 steps
  spec.set_backups(backups);
  spec.set_durability(backups > 0 ? v1::REPLICATED : v1::LOGGED);
  return spec;
}

absl::Status Drain(Cluster& c, const std::string& name, bool undo = false) {
  static uint64_t token = 700'000;
  v1::DrainNodeRequest request;
  request.set_name(name);
  request.set_undo(undo);
  c.Do(DrainNode{ReplyToken{++token}, request});
  c.Settle();
  const Reply* reply = c.ReplyTo(ReplyToken{token});
  return reply == nullptr ? absl::UnknownError("no reply") : reply->status;
}

int PartitionsOn(const Cluster& c, uint64_t id, const std::string& ps) {
  int count = 0;
  const v1::JobStatus job = c.Job(id);
  for (const auto& p : job.partitions()) {
    count += p.primary() == ps;
    for (const auto& b : p.backups()) count += b.node() == ps;
  }
  return count;
}

// Trains for that long. Returns the number of steps done.
int64_t PassAndTrain(Cluster& c, uint64_t id, absl::Duration duration) {
  const int64_t before = c.TrueStep(id);
  for (absl::Duration t; t < duration; t += absl::Milliseconds(500)) {
    c.Pass(absl::Milliseconds(500));
    c.Train(1);
  }
  return c.TrueStep(id) - before;
}

// Its copy has lost its memory: that of the failed ps, which may come back, may have more on its disk.
TEST(ClusterMoves, NothingMovesToAPsThatIsNotSettled) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(LongSpec(1));
  c.Pass(absl::Seconds(1));
  c.Train(3);
  ASSERT_GT(PartitionsOn(c, id, "ps-0"), 0);
  v1::NodeMessage message;
  message.mutable_heartbeat()->set_fault("no space left on device");
  c.Say(c.node("ps-0"), message);
  c.Kill(c.node("ps-1"));
  c.Kill(c.node("ps-0"));
  c.Restart(c.node("ps-1"));
  c.Pass(absl::Milliseconds(300));
  EXPECT_FALSE(c.Logged("moves from ps \"ps-0\""));
  c.Restart(c.node("ps-0"));
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED) << c.Job(id).reason();
}

TEST(ClusterMoves, ADrainedPsEndsEmptyWhileTrainingGoesOn) {
  for (int backups : {0, 1}) {
    SCOPED_TRACE(backups);
    Cluster c(3, 1);
    const uint64_t id = c.SubmitOk(LongSpec(backups));
    c.Pass(absl::Seconds(1));
    ASSERT_GT(PartitionsOn(c, id, "ps-1"), 0);
    ASSERT_TRUE(Drain(c, "ps-1").ok());
    EXPECT_GE(PassAndTrain(c, id, absl::Seconds(5)), 9) << "no step was delayed";
    EXPECT_EQ(PartitionsOn(c, id, "ps-1"), 0);
    EXPECT_FALSE(c.node("ps-1").hosted.contains(id));
    const v1::JobStatus job = c.Job(id);
    for (const auto& p : job.partitions()) EXPECT_EQ(p.backups_size(), backups);
    c.Kill(c.node("ps-1"));
    const uint64_t generation = job.generation();
    PassAndTrain(c, id, absl::Seconds(2));
    EXPECT_EQ(c.Job(id).generation(), generation) << "nobody misses it";
    EXPECT_TRUE(c.RunToEnd(id));
    EXPECT_EQ(c.State(id), v1::SUCCEEDED) << c.Job(id).reason();
  }
}

TEST(ClusterMoves, ADrainIsRefusedWhereNobodyCouldTakeOver) {
  Cluster c(1, 1);
  EXPECT_TRUE(Drain(c, "ps-0").ok()) << "it holds nothing";
  EXPECT_TRUE(Drain(c, "ps-0", true).ok());
  c.SubmitOk(LongSpec());
  EXPECT_EQ(Drain(c, "ps-0").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Drain(c, "ps-7").code(), absl::StatusCode::kNotFound);
}

TEST(ClusterMoves, ADrainOutlivesRestartsAndCanBeTakenBack) {
  Cluster c(3, 1);
  const uint64_t id = c.SubmitOk(LongSpec(1));
  c.Pass(absl::Seconds(1));
  ASSERT_TRUE(Drain(c, "ps-0").ok());
  c.RestartCoordinator();
  c.ReconnectAll();
  c.Settle();
  PassAndTrain(c, id, absl::Seconds(6));
  EXPECT_EQ(PartitionsOn(c, id, "ps-0"), 0);
  c.Kill(c.node("ps-0"));
  c.Pass(absl::Seconds(1));
  c.Restart(c.node("ps-0"));
  PassAndTrain(c, id, absl::Seconds(5));
  EXPECT_EQ(PartitionsOn(c, id, "ps-0"), 0) << "a restart is not an undo";
  ASSERT_TRUE(Drain(c, "ps-0", true).ok());
  PassAndTrain(c, id, absl::Seconds(20));
  EXPECT_GT(PartitionsOn(c, id, "ps-0"), 0);
}

TEST(ClusterMoves, AFinishedJobsWeightsMoveToo) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(c.Spec());
  ASSERT_TRUE(c.RunToEnd(id));
  ASSERT_TRUE(Drain(c, "ps-0").ok());
  c.Pass(absl::Seconds(3));
  EXPECT_EQ(PartitionsOn(c, id, "ps-0"), 0);
  EXPECT_EQ(PartitionsOn(c, id, "ps-1"), 4);
}

TEST(ClusterMoves, APsThatJoinsTakesItsShareWithFewMoves) {
  for (int backups : {0, 1}) {
    SCOPED_TRACE(backups);
    Cluster c(2, 1);
    const uint64_t id = c.SubmitOk(LongSpec(backups));
    c.Pass(absl::Seconds(1));
    const v1::JobStatus before = c.Job(id);
    c.AddPs("ps-2");
    EXPECT_GE(PassAndTrain(c, id, absl::Seconds(12)), 22) << "no step was delayed";
    const v1::JobStatus after = c.Job(id);
    int moved = 0;
    for (int i = 0; i < before.partitions_size(); ++i) {
      moved += before.partitions(i).primary() != after.partitions(i).primary();
      EXPECT_EQ(after.partitions(i).backups_size(), backups);
      for (const auto& b : after.partitions(i).backups()) EXPECT_TRUE(b.in_sync());
    }
    EXPECT_EQ(moved, 1) << "4 partitions on 3 ps";
    std::map<std::string, int> backups_on;
    for (const auto& p : after.partitions()) {
      for (const auto& b : p.backups()) ++backups_on[b.node()];
    }
    EXPECT_EQ(backups_on.size(), backups == 0 ? 0u : 3u) << "backups, too";
    const uint64_t generation = after.generation();
    PassAndTrain(c, id, absl::Seconds(10));
    EXPECT_EQ(c.Job(id).generation(), generation) << "then it is quiet";
    EXPECT_TRUE(c.RunToEnd(id));
    EXPECT_EQ(c.State(id), v1::SUCCEEDED) << c.Job(id).reason();
  }
}

TEST(ClusterMoves, ADrainedWorkerGivesItsReplicasAway) {
  Cluster c(1, 2);
  const uint64_t id = c.SubmitOk(LongSpec());
  c.Train(2);
  ASSERT_TRUE(Drain(c, "worker-0").ok());
  EXPECT_THAT(c.Assigned("worker-1", id), ElementsAre(0, 1, 2, 3));
  EXPECT_TRUE(c.node("worker-0").assigned.empty());
  const v1::ListNodesResponse list = c.core().ListNodes();
  for (const auto& node : list.nodes()) EXPECT_EQ(node.draining(), node.name() == "worker-0");
  ASSERT_TRUE(Drain(c, "worker-0", true).ok());
  EXPECT_EQ(c.Assigned("worker-0", id).size(), 2u);
}

TEST(ClusterMoves, DrainedSilentAndSlowWorkersAreNotAskedWhileThereAreOthers) {
  Cluster c(1, 2);
  c.node("worker-0").hello.set_slots(1);
  ASSERT_TRUE(Drain(c, "worker-0").ok());
  c.answer_inspections = false;
  c.Submit(LongSpec());
  c.Settle();
  EXPECT_TRUE(c.node("worker-0").inspections.empty());
  EXPECT_EQ(c.node("worker-1").inspections.size(), 1u);
  c.answer_inspections = true;
  ASSERT_TRUE(Drain(c, "worker-1").ok());
  EXPECT_NE(c.SubmitOk(LongSpec()), 0u) << "rather one that is drained than none";
}

// ---- a ps whose store failed ----

TEST(ClusterMoves, APsWhoseStoreFailedIsEmptiedAndGivenNothing) {
  for (int backups : {0, 1}) {
    SCOPED_TRACE(backups);
    Cluster c(3, 1);
    const uint64_t id = c.SubmitOk(LongSpec(backups));
    c.Pass(absl::Seconds(1));
    ASSERT_GT(PartitionsOn(c, id, "ps-1"), 0);
    v1::NodeMessage message;
    message.mutable_heartbeat()->set_fault("its data directory /d failed: no space left");
    c.node("ps-1").fault = message.heartbeat().fault();
    c.Say(c.node("ps-1"), message);
    EXPECT_TRUE(c.Logged("ps \"ps-1\" has failed and is given no partitions: its data directory /d failed"));
    EXPECT_GE(PassAndTrain(c, id, absl::Seconds(12)), 20) << "training goes on";
    EXPECT_EQ(PartitionsOn(c, id, "ps-1"), 0);
    const uint64_t second = c.SubmitOk(LongSpec(backups));
    EXPECT_EQ(PartitionsOn(c, second, "ps-1"), 0);
    for (const v1::ListNodesResponse list = c.core().ListNodes(); const auto& node : list.nodes()) {
      EXPECT_EQ(node.fault().empty(), node.name() != "ps-1");
    }
    const ReplyToken third = c.Submit([] {
      v1::JobSpec spec = LongSpec(2);
      return spec;
    }());
    c.Pass(absl::Milliseconds(200));
    EXPECT_THAT(c.Job(c.SubmittedId(third)).reason(), HasSubstr("ps \"ps-1\": its data directory /d failed"));
    c.Kill(c.node("ps-1"));
    c.node("ps-1").fault.clear();
    c.Restart(c.node("ps-1"));
    c.Pass(absl::Seconds(1));
    EXPECT_THAT(c.Job(c.SubmittedId(third)).reason(), HasSubstr("waits for free slots")) << "a restart mends it";
  }
}

TEST(ClusterMoves, AJobThatHasNotBegunBeginsElsewhere) {
  Cluster c(0, 1);
  c.AddPs("ps-0");
  FakeNode& full = c.AddPs("ps-1");
  full.silent = true;  // it does not answer
  const uint64_t id = c.SubmitOk(LongSpec(0));
  ASSERT_EQ(c.State(id), v1::STARTING);
  full.silent = false;
  v1::NodeMessage message;
  message.mutable_job_error()->set_job_id(id);
  message.mutable_job_error()->set_message("/d: no space left");
  c.Say(full, message);
  c.Settle();
  EXPECT_EQ(c.State(id), v1::RUNNING);
  EXPECT_EQ(PartitionsOn(c, id, "ps-1"), 0);
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("continues without ps \"ps-1\": /d: no space left"));
}

// ---- workers that cannot ----

v1::NodeMessage DataTrouble(uint64_t id, bool worker_only) {
  v1::NodeMessage message;
  message.mutable_job_error()->set_job_id(id);
  message.mutable_job_error()->set_message("data.path: \"/data/test.csv\" does not exist");
  message.mutable_job_error()->set_worker_only(worker_only);
  return message;
}

TEST(ClusterMoves, AWorkerWithoutTheDataIsLeftOut) {
  Cluster c(1, 1);
  const uint64_t id = c.SubmitOk(LongSpec());
  c.Train(2);
  c.AddWorker("worker-1");
  ASSERT_EQ(c.Assigned("worker-1", id).size(), 2u);
  c.Say(c.node("worker-1"), DataTrouble(id, true));
  c.Settle();
  EXPECT_EQ(c.State(id), v1::RUNNING);
  EXPECT_THAT(c.Assigned("worker-0", id), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("continues without worker \"worker-1\": data.path"));
  c.Pass(absl::Seconds(5));
  EXPECT_TRUE(c.node("worker-1").assigned.empty()) << "not given any again";
  c.Kill(c.node("worker-1"));
  c.Restart(c.node("worker-1"));
  EXPECT_EQ(c.Assigned("worker-1", id).size(), 2u) << "a restart may have mended it";
  c.Say(c.node("worker-1"), DataTrouble(id, true));
  c.Settle();
  c.Say(c.node("worker-0"), DataTrouble(id, true));
  EXPECT_EQ(c.State(id), v1::FAILED) << "no worker can";
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("does not exist"));

  Cluster d(1, 2);
  const uint64_t broken = d.SubmitOk(LongSpec());
  d.Say(d.node("worker-1"), DataTrouble(broken, false));
  EXPECT_EQ(d.State(broken), v1::FAILED) << "not the worker's own trouble";
}

// ---- stragglers ----

void SaySpeed(Cluster& c, const std::string& worker, uint64_t id, double replica_ms) {
  v1::NodeMessage message;
  v1::JobProgress& progress = *message.mutable_heartbeat()->add_progress();
  progress.set_job_id(id);
  progress.set_generation(c.Job(id).generation());
  progress.set_step(c.TrueStep(id));
  progress.set_replica_ms(replica_ms);
  c.Say(c.node(worker), message);
}

TEST(ClusterMoves, AStragglerGivesReplicasAwayOneByOne) {
  Cluster c(1, 3, 4);
  v1::JobSpec spec = LongSpec();
  spec.set_replicas(8);
  const uint64_t id = c.SubmitOk(spec);
  ASSERT_EQ(c.Assigned("worker-2", id).size(), 2u);
  auto say = [&](double slow, absl::Duration duration) {
    for (absl::Duration t; t < duration; t += absl::Milliseconds(500)) {
      for (const char* name : {"worker-0", "worker-1"}) SaySpeed(c, name, id, 10);
      SaySpeed(c, "worker-2", id, slow);
      c.Pass(absl::Milliseconds(500));
    }
  };
  say(14, absl::Seconds(10));
  EXPECT_EQ(c.Assigned("worker-2", id).size(), 2u) << "within what is usual";
  for (double nonsense : {-5.0, 0.0, std::nan(""), HUGE_VAL}) say(nonsense, absl::Seconds(1));
  EXPECT_EQ(c.Assigned("worker-2", id).size(), 2u);
  say(30, absl::Seconds(4));
  EXPECT_EQ(c.Assigned("worker-2", id).size(), 1u);
  const int events = c.Job(id).events_size();
  const v1::JobEvent event = c.Job(id).events(events - 1);
  EXPECT_THAT(event.text(),
              MatchesRegex("worker \"worker-2\" is [23]\\.[0-9] times slower than the others; its replicas 7 go to "
                           "worker \"worker-[01]\""));
  EXPECT_TRUE(c.Logged(event.text()));
  say(30, absl::Seconds(10));
  EXPECT_EQ(c.Assigned("worker-2", id).size(), 1u) << "another would have more to do than it has";
  EXPECT_EQ(c.Job(id).generation(), 1u);
  c.AddWorker("worker-3", 4);
  EXPECT_GE(c.Assigned("worker-3", id).size(), 2u) << "a straggler is no reason to leave others without work";
  EXPECT_LE(c.Assigned("worker-2", id).size(), 1u);
  EXPECT_LE(c.Job(id).events_size(), events + 3) << "no replica goes back and forth";
  say(10, absl::Seconds(45));
  EXPECT_EQ(c.Assigned("worker-2", id).size(), 2u) << "it is as fast as the others again";
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED);
}

// ---- figures ----

TEST(ClusterMoves, ALossThatIsNotFiniteIsNoPlainSuccess) {
  Cluster c(1, 1);
  v1::JobSpec spec = c.Spec(1);
  const uint64_t id = c.SubmitOk(spec);
  for (int epoch = 0; epoch < 2; ++epoch) {
    v1::NodeMessage message;
    v1::ReplicaReport& r = *message.mutable_replica_report();
    r.set_job_id(id);
    r.set_generation(1);
    r.set_last_step(5 * epoch + 4);
    c.SayFigures(id, static_cast<uint64_t>(5 * epoch + 5), epoch, 40, epoch == 0 ? 3 : std::nan(""));
    r.set_validation_epoch(epoch);
    r.mutable_validation()->set_examples(8);
    r.set_finished(epoch == 1);
    c.Say(c.node("worker-0"), message);
  }
  c.Pass(absl::Seconds(5));
  EXPECT_EQ(c.State(id), v1::ENDED_WITH_ERRORS);
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("the loss is not finite since step 5 (epoch 2)"));
}

// The worker keeps the job's model, data and decoding threads for replicas that may come back, and must learn when to
// drop them.
TEST(ClusterMoves, AWorkerThatGaveItsReplicasAwayIsToldOfTheJobsEnd) {
  Cluster c(1, 2);
  const uint64_t id = c.SubmitOk(FakeCluster::Spec());
  c.Train(1);
  ASSERT_FALSE(c.Assigned("worker-1", id).empty());
  ASSERT_TRUE(Drain(c, "worker-1").ok());
  c.Train(1);
  ASSERT_TRUE(c.Assigned("worker-1", id).empty());
  const int commands = c.node("worker-1").commands;
  c.Train(1);
  EXPECT_EQ(c.node("worker-1").commands, commands) << "it is told once that it has none";
  ASSERT_TRUE(c.RunToEnd(id));
  EXPECT_TRUE(c.node("worker-1").dropped.contains(id));
}

}  // namespace
}  // namespace cairn
