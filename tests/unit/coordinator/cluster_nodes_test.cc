// Goal: nodes that are lost, return or join disturb no more than necessary.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/unit/coordinator/cluster.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ClusterCore, ALostWorkersReplicasMoveAndNothingElse) {
  Cluster c(2, 2);
  const uint64_t id = c.SubmitOk(c.Spec());
  c.Train(3);
  c.ClearCommands();
  c.Kill(c.node("worker-1"));
  c.Pass(absl::Milliseconds(400));
  EXPECT_THAT(c.Assigned("worker-0", id), ElementsAre(0, 1)) << "it has half a second to come back";
  c.Pass(absl::Milliseconds(300));
  EXPECT_THAT(c.Assigned("worker-0", id), ElementsAre(0, 1, 2, 3));
  EXPECT_TRUE(c.Logged("job 1: worker \"worker-1\" is gone; replicas 2,3 go to worker \"worker-0\""));
  EXPECT_EQ(c.Job(id).generation(), 1u) << "the routes are the same";
  EXPECT_EQ(c.node("ps-0").commands + c.node("ps-1").commands, 0);
  EXPECT_EQ(c.node("worker-0").commands, 1);
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED);
  EXPECT_EQ(c.TrueStep(id), 10);
}

TEST(ClusterCore, AfterARestartANodeIsNeitherAliveNorDeadBeforeItWasHeardOf) {
  Cluster c(1, 2);
  c.Pass(absl::Seconds(20));
  const auto of = [&](const char* name) {
    const v1::ListNodesResponse all = c.core().ListNodes();
    return *std::find_if(all.nodes().begin(), all.nodes().end(), [&](auto& n) { return n.name() == name; });
  };
  EXPECT_TRUE(of("ps-0").alive());
  EXPECT_EQ(of("ps-0").memory_bytes(), 1u);
  c.RestartCoordinator();
  for (const char* name : {"ps-0", "worker-0", "worker-1"}) {
    EXPECT_TRUE(of(name).expected());
    EXPECT_FALSE(of(name).alive());
    EXPECT_FALSE(of(name).has_memory_bytes());
    EXPECT_EQ(of(name).last_heartbeat_unix_ms(), 0);
  }
  c.Connect(c.node("ps-0"));
  c.Connect(c.node("worker-0"));
  EXPECT_TRUE(of("ps-0").alive());
  EXPECT_FALSE(of("ps-0").expected());
  EXPECT_FALSE(of("ps-0").has_memory_bytes()) << "it has not said yet";
  c.Pass(absl::Seconds(1));
  EXPECT_EQ(of("ps-0").memory_bytes(), 1u);
  EXPECT_TRUE(of("worker-1").expected());
  c.Pass(absl::Seconds(5));
  EXPECT_FALSE(of("worker-1").expected());
  EXPECT_FALSE(of("worker-1").alive());
  const absl::Time heard = absl::FromUnixMillis(of("worker-1").last_heartbeat_unix_ms());
  EXPECT_NEAR(absl::ToDoubleSeconds(c.clock().Now() - heard), 6, 0.5) << "not before our start";
}

TEST(ClusterCore, ASilentWorkerIsLostWithItsLease) {
  Cluster c(1, 2);
  const uint64_t id = c.SubmitOk(c.Spec());
  // Its session stays open, but no message arrives.
  const SessionToken session = c.node("worker-1").session;
  c.node("worker-1").session = {};
  c.Pass(absl::Seconds(2.5));
  EXPECT_THAT(c.Assigned("worker-0", id), ElementsAre(0, 1));
  c.Pass(absl::Seconds(1));
  EXPECT_THAT(c.Assigned("worker-0", id), ElementsAre(0, 1, 2, 3));
  // Messages on the old session are ignored.
  v1::NodeMessage message;
  message.mutable_job_error()->set_job_id(id);
  c.Do(NodeSays{session, message});
  EXPECT_EQ(c.State(id), v1::RUNNING);
}

TEST(ClusterCore, AQuickReconnectDisturbsNothing) {
  Cluster c(2, 2);
  const uint64_t id = c.SubmitOk(c.Spec());
  c.Train(2);
  c.ClearCommands();
  for (const char* name : {"worker-0", "worker-1", "ps-0", "ps-1"}) {
    c.BreakSession(c.node(name));
    c.Pass(absl::Milliseconds(200));
    c.Connect(c.node(name));
    c.Settle();
    EXPECT_LE(c.node(name).commands, name == c.Job(id).chief() ? 1 : 0) << name;
  }
  EXPECT_EQ(c.Job(id).generation(), 1u);
  EXPECT_TRUE(c.RunToEnd(id));
}

// The command that made it the chief may have been lost with its session. Nobody else writes checkpoints.
TEST(ClusterCore, AChiefThatComesBackIsToldThatItIs) {
  Cluster c(1, 2);
  const uint64_t id = c.SubmitOk(c.Spec());
  ASSERT_EQ(c.Job(id).chief(), "worker-0");
  FakeNode& chief = c.node("worker-0");
  c.BreakSession(chief);
  chief.assigned.at(id).set_chief(false);
  c.Connect(chief);
  c.Settle();
  EXPECT_TRUE(chief.assigned.at(id).chief());
}

TEST(ClusterCore, AWorkerThatJoinsTakesItsShare) {
  Cluster c(1, 1);
  v1::JobSpec spec = c.Spec();
  const uint64_t id = c.SubmitOk(spec);
  EXPECT_THAT(c.Assigned("worker-0", id), ElementsAre(0, 1, 2, 3));
  c.Train(2);
  c.AddWorker("worker-1");
  EXPECT_THAT(c.Assigned("worker-0", id), ElementsAre(0, 1));
  EXPECT_THAT(c.Assigned("worker-1", id), ElementsAre(2, 3));
  EXPECT_TRUE(c.RunToEnd(id));

  spec.set_max_workers(1);
  Cluster d(1, 1);
  const uint64_t limited = d.SubmitOk(spec);
  d.AddWorker("worker-1");
  EXPECT_THAT(d.Assigned("worker-0", limited), ElementsAre(0, 1, 2, 3));
  EXPECT_TRUE(d.node("worker-1").assigned.empty());
  d.Kill(d.node("worker-0"));
  d.Pass(absl::Seconds(1));
  EXPECT_THAT(d.Assigned("worker-1", limited), ElementsAre(0, 1, 2, 3)) << "in its place";
}

TEST(ClusterCore, WithoutAnyWorkerAJobWaitsAndGoesOn) {
  Cluster c(1, 1);
  const uint64_t id = c.SubmitOk(c.Spec());
  c.Train(2);
  c.Kill(c.node("worker-0"));
  c.Pass(absl::Seconds(2));
  EXPECT_EQ(c.State(id), v1::RUNNING);
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("waits for a worker"));
  c.AddWorker("worker-9");
  EXPECT_EQ(c.Job(id).reason(), "");
  EXPECT_EQ(c.Job(id).chief(), "worker-9");
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED);
}

TEST(ClusterCore, APsThatReturnRaisesTheGeneration) {
  Cluster c(2, 2);
  const uint64_t id = c.SubmitOk(c.Spec());
  c.Train(3);
  c.Kill(c.node("ps-1"));
  c.Pass(absl::Seconds(1));
  EXPECT_EQ(c.State(id), v1::RUNNING);
  EXPECT_EQ(c.Job(id).reason(),
            "waits for ps \"ps-1\" to come back (its data directory holds 2 partitions); restart it");
  c.ClearCommands();
  c.Restart(c.node("ps-1"), "ps-1:2000");
  EXPECT_EQ(c.Job(id).generation(), 2u);
  EXPECT_EQ(c.Job(id).reason(), "");
  EXPECT_EQ(c.node("ps-0").hosted.at(id).generation, 2u) << "all ps learn the generation";
  for (const char* worker : {"worker-0", "worker-1"}) {
    const v1::AssignReplicas& assign = c.node(worker).assigned.at(id);
    EXPECT_EQ(assign.generation(), 2u);
    EXPECT_EQ(assign.routes(1).address(), "ps-1:2000");
    EXPECT_EQ(c.node(worker).commands, 1);
  }
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED);
}

TEST(ClusterCore, APsThatLostItsDataFailsTheJob) {
  Cluster c(2, 1);
  const uint64_t id = c.SubmitOk(c.Spec());
  c.Train(3);
  c.Kill(c.node("ps-0"));
  c.node("ps-0").hosted.clear();
  c.Restart(c.node("ps-0"));
  EXPECT_EQ(c.State(id), v1::FAILED);
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("ps \"ps-0\" came back without partition"));
  EXPECT_TRUE(c.node("worker-0").assigned.empty());

  Cluster d(2, 1);
  const uint64_t old = d.SubmitOk(d.Spec());
  d.Train(2);
  const FakeNode::Hosted copy = d.node("ps-0").hosted.at(old);
  d.Train(4);
  d.Kill(d.node("ps-0"));
  d.node("ps-0").hosted[old] = copy;
  d.Restart(d.node("ps-0"));
  EXPECT_EQ(d.State(old), v1::FAILED);
  EXPECT_THAT(d.Job(old).reason(), HasSubstr("old copy"));
}

TEST(ClusterCore, BeforeTheFirstStepPartitionsArePlacedElsewhere) {
  Cluster c(2, 1);
  // ps-1 receives its command and dies before it answers.
  c.Do(Tick{});
  c.answer_inspections = false;
  const ReplyToken token = c.Submit(c.Spec());
  c.Kill(c.node("ps-1"));  // the session is broken, the node not yet dead
  c.Pass(absl::Milliseconds(100));
  c.answer_inspections = true;
  c.Settle();
  c.Pass(absl::Seconds(1));
  const uint64_t id = c.SubmittedId(token);
  EXPECT_EQ(c.State(id), v1::RUNNING) << c.Job(id).reason();
  const v1::JobStatus job = c.Job(id);
  for (const auto& p : job.partitions()) EXPECT_EQ(p.primary(), "ps-0");
}

TEST(ClusterCore, AJobErrorNamesTheNode) {
  Cluster c(1, 2);
  const uint64_t id = c.SubmitOk(c.Spec());
  v1::NodeMessage message;
  message.mutable_job_error()->set_job_id(id);
  message.mutable_job_error()->set_generation(77);
  message.mutable_job_error()->set_message("layer \"dense\": not a number");
  c.Say(c.node("worker-1"), message);
  EXPECT_EQ(c.State(id), v1::RUNNING) << "of another generation";
  message.mutable_job_error()->set_generation(1);
  c.Say(c.node("worker-1"), message);
  c.Settle();
  EXPECT_EQ(c.State(id), v1::FAILED);
  EXPECT_EQ(c.Job(id).reason(), "worker \"worker-1\": layer \"dense\": not a number");
  EXPECT_TRUE(c.node("worker-0").assigned.empty());
}

// The command to serve is lost with the session; the next Hello of the ps describes its disk.
TEST(ClusterCore, ARestartedPsThatWasNotToldToServeIsTold) {
  bool crashed = true;
  for (int effects = 0; crashed; ++effects) {
    for (const bool coordinator_too : {false, true}) {
      SCOPED_TRACE(absl::StrCat("a crash after ", effects, " effects", coordinator_too ? ", and another" : ""));
      Cluster c(1, 1);
      c.CrashSoon(effects);
      v1::JobSpec spec = FakeCluster::Spec();
      spec.set_backups(0);
      c.Submit(spec, "key");
      c.Settle();
      crashed = c.crashed();
      FakeNode& ps = c.node("ps-0");
      c.Kill(ps);  // before the next coordinator hears of it
      if (crashed) c.RestartCoordinator();
      c.ReconnectAll();
      const v1::ListJobsResponse jobs = c.core().ListJobs(c.clock().Now());
      if (jobs.jobs_size() == 0) continue;  // it was not stored
      const uint64_t id = jobs.jobs(0).job_id();
      ps.running = true;
      ps.hello.set_incarnation(4711);
      c.Connect(ps);
      c.BreakSession(ps);  // nothing was delivered
      if (coordinator_too) {
        c.RestartCoordinator();
        c.ReconnectAll();
      } else {
        c.Connect(ps);
      }
      c.Settle();
      EXPECT_TRUE(ps.hosted[id].serving);
      EXPECT_TRUE(c.RunToEnd(id));
      EXPECT_EQ(c.State(id), v1::SUCCEEDED) << c.Job(id).reason();
    }
    ASSERT_LT(effects, 200);
  }
}

TEST(ClusterCore, TheClusterIsStoredBeforeANodeHearsOfIt) {
  bool crashed = true;
  for (int effect = 0; crashed; ++effect) {
    FakeCluster c;
    c.CrashAt(effect);
    c.AddPs("ps-0");
    c.Settle();
    crashed = c.crashed();
    c.RestartCoordinator();
    c.ReconnectAll();
    c.Settle();
    EXPECT_FALSE(c.node("ps-0").closed.has_value())
        << "refused after a crash before effect " << effect << ": " << *c.node("ps-0").closed;
    EXPECT_NE(c.node("ps-0").hello.cluster_id(), 0u);
    ASSERT_LT(effect, 100);
  }
}

TEST(ClusterCore, PartitionsOfEndedJobsAreCountedApart) {
  Cluster c(1, 1);
  const uint64_t first = c.SubmitOk(c.Spec());
  const int partitions = c.Job(first).partitions_size();
  EXPECT_EQ(c.core().ListNodes().nodes(0).partitions(), partitions);
  EXPECT_EQ(c.core().ListNodes().nodes(0).ended_partitions(), 0);
  ASSERT_TRUE(c.RunToEnd(first));
  c.SubmitOk(c.Spec());
  const v1::NodeStatus ps = c.core().ListNodes().nodes(0);
  ASSERT_EQ(ps.name(), "ps-0");
  EXPECT_EQ(ps.partitions(), 2 * partitions);
  EXPECT_EQ(ps.primaries(), 2 * partitions);
  EXPECT_EQ(ps.ended_partitions(), partitions);
  EXPECT_EQ(ps.ended_primaries(), partitions);
}

TEST(NodeLoad, ProcessorsAreThoseBetweenTwoHeartbeats) {
  NodeLoad load;
  absl::Time now = absl::UnixEpoch() + absl::Seconds(1);
  const auto after = [&](absl::Duration time, double cpu_seconds) {
    v1::Heartbeat heartbeat;
    heartbeat.set_memory_bytes(7);
    heartbeat.set_cpu_seconds(cpu_seconds);
    load.Note(heartbeat, now += time);
    v1::NodeStatus status;
    load.Fill(status);
    EXPECT_EQ(status.memory_bytes(), 7u);
    return status.has_processors() ? status.processors() : -1;
  };
  EXPECT_EQ(after(absl::ZeroDuration(), 3), -1) << "nothing to compare it with";
  EXPECT_DOUBLE_EQ(after(absl::Milliseconds(500), 3.25), 0.5);
  EXPECT_DOUBLE_EQ(after(absl::Milliseconds(1), 3.75), 0.5) << "two that came together say nothing of a rate";
  EXPECT_DOUBLE_EQ(after(absl::Milliseconds(499), 4.25), 2);
  EXPECT_EQ(after(absl::Milliseconds(500), 1), -1) << "it has gone back";
  EXPECT_EQ(after(absl::Milliseconds(500), std::numeric_limits<double>::infinity()), -1);
  EXPECT_EQ(after(absl::Milliseconds(500), std::nan("")), -1);
  EXPECT_EQ(after(absl::Milliseconds(500), 0), -1) << "an earlier release does not say it";
  EXPECT_EQ(after(absl::Milliseconds(500), 2), -1);
  EXPECT_DOUBLE_EQ(after(absl::Milliseconds(500), 2), 0);
}

TEST(ClusterCore, DeadNodesAreListedForAWhile) {
  Cluster c(0, 1);
  c.Kill(c.node("worker-0"));
  c.Pass(absl::Seconds(1));
  ASSERT_EQ(c.core().ListNodes().nodes_size(), 1);
  EXPECT_FALSE(c.core().ListNodes().nodes(0).alive());
  c.clock().Advance(absl::Hours(2));
  c.Do(Tick{});
  EXPECT_EQ(c.core().ListNodes().nodes_size(), 0);
}

TEST(ClusterCore, HasAReplicaForEachSlotOfTheWorkersThatItWaitedFor) {
  Cluster c(1, 1);
  v1::JobSpec spec = c.Spec(0);
  spec.set_min_workers(2);
  const uint64_t id = c.SubmitOk(spec);
  EXPECT_EQ(c.Job(id).reason(), "waits for workers: 1 alive, min_workers is 2");
  EXPECT_EQ(c.Job(id).spec().replicas(), 0) << "not known yet";
  c.AddWorker("worker-1");
  c.Settle();
  EXPECT_EQ(c.State(id), v1::RUNNING);
  EXPECT_EQ(c.Job(id).spec().replicas(), 2);
}

}  // namespace
}  // namespace cairn
