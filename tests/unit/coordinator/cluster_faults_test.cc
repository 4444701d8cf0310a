// Goal: every job ends well when the coordinator restarts at any point of a run, and under random faults of all nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "tests/unit/coordinator/copies.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;

TEST(ClusterCore, ARestartThatNobodyNotices) {
  Cluster c(2, 2);
  const uint64_t id = c.SubmitOk(c.Spec());
  c.Train(3);
  c.RestartCoordinator();
  c.Train(1);  // training continues without it
  c.ClearCommands();
  c.ReconnectAll();
  c.Settle();
  c.Pass(absl::Seconds(1));
  for (const char* name : {"worker-1", "ps-0", "ps-1"}) EXPECT_EQ(c.node(name).commands, 0) << name;
  EXPECT_LE(c.node("worker-0").commands, 1) << "the chief is told that it is";
  EXPECT_EQ(c.Job(id).generation(), 1u);
  EXPECT_EQ(c.State(id), v1::RUNNING);
  EXPECT_EQ(c.Job(id).reason(), "");
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED);
  EXPECT_EQ(c.TrueStep(id), 10);
}

TEST(ClusterCore, EverythingRestartsAtTheSameAddresses) {
  Cluster c(2, 2);
  const uint64_t id = c.SubmitOk(c.Spec());
  c.Train(3);
  const std::vector<std::string> names{"ps-0", "ps-1", "worker-0", "worker-1"};
  for (const std::string& name : names) c.Kill(c.node(name));
  c.RestartCoordinator();
  for (const std::string& name : names) c.Restart(c.node(name));
  EXPECT_TRUE(c.RunToEnd(id)) << c.Job(id).reason();
  EXPECT_EQ(c.State(id), v1::SUCCEEDED);
}

TEST(ClusterCore, NodesThatDoNotComeBackAfterARestartAreLost) {
  Cluster c(1, 2);
  const uint64_t id = c.SubmitOk(c.Spec());
  c.node("worker-1").running = false;
  c.node("worker-1").assigned.clear();
  c.RestartCoordinator();
  c.ReconnectAll();
  c.Settle();
  c.Pass(absl::Seconds(4));
  EXPECT_THAT(c.Assigned("worker-0", id), ElementsAre(0, 1)) << "it is waited for";
  c.Pass(absl::Seconds(2));
  EXPECT_THAT(c.Assigned("worker-0", id), ElementsAre(0, 1, 2, 3));
}

TEST(ClusterCore, AQueuedJobWaitsForTheClusterAfterARestart) {
  Cluster c(2, 2);
  c.answer_inspections = false;
  v1::JobSpec spec = c.Spec();
  const ReplyToken token = c.Submit(spec);
  c.Kill(c.node("worker-0"));
  c.Kill(c.node("worker-1"));
  c.Settle();
  const uint64_t id = c.SubmittedId(token);
  ASSERT_NE(id, 0u) << "accepted without a look at the data";
  c.answer_inspections = true;
  c.RestartCoordinator();
  for (const char* name : {"ps-0", "ps-1"}) c.Connect(c.node(name));
  for (const char* name : {"worker-0", "worker-1"}) c.Restart(c.node(name));
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED);
}

// Runs a job with a loss, a join and a restart of a ps; the coordinator dies before effect number `at`. Returns whether
// the run reached that effect.
bool RunWithCrash(int at) {
  FakeCluster c;
  c.CrashAt(at);
  for (const char* name : {"ps-0", "ps-1"}) c.AddPs(name);
  for (const char* name : {"worker-0", "worker-1"}) c.AddWorker(name);
  uint64_t id = 0;
  bool killed = false, joined = false, restarted = false;
  for (int round = 0; round < 1000; ++round) {
    c.ReconnectAll();
    c.Settle();
    if (id == 0) id = c.SubmittedId(c.Submit(c.Spec(), "key"));  // a client tries again with the same key
    if (id != 0 && c.State(id) == v1::SUCCEEDED) break;
    c.Pass(absl::Milliseconds(300));
    c.TrainStep();
    if (!killed && c.TrueStep(id) >= 3) {
      killed = true;
      c.Kill(c.node("worker-1"));
    }
    if (!joined && c.TrueStep(id) >= 5) {
      joined = true;
      c.AddWorker("worker-2");
    }
    if (!restarted && c.TrueStep(id) >= 7) {
      restarted = true;
      c.Kill(c.node("ps-0"));
      c.Restart(c.node("ps-0"), "ps-0:2000");
    }
  }
  EXPECT_NE(id, 0u);
  EXPECT_EQ(c.State(id), v1::SUCCEEDED) << StateText(c.State(id)) << ": " << c.Job(id).reason();
  EXPECT_EQ(c.TrueStep(id), 10);
  EXPECT_EQ(c.Job(id).epochs_size(), 2);
  EXPECT_EQ(c.core().ListJobs(absl::InfinitePast()).jobs_size(), 1);
  c.ReconnectAll();
  c.Settle();
  for (const char* name : {"worker-0", "worker-2"}) EXPECT_TRUE(c.node(name).assigned.empty()) << name;
  return c.crashed();
}

TEST(ClusterCore, ACrashAtAnyPointOfARun) {
  ASSERT_FALSE(RunWithCrash(-1));
  int at = 0;
  for (;; ++at) {
    SCOPED_TRACE(at);
    if (!RunWithCrash(at) || HasFailure()) break;
  }
  EXPECT_GT(at, 50) << "the run has that many effects";
}

// Restarts and reconnects some of the nodes that are away, lets time pass, and trains in half of the rounds.
void LiveOn(const std::vector<std::string>& names, std::mt19937_64& random, FakeCluster* c) {
  for (const std::string& name : names) {
    FakeNode& node = c->node(name);
    if (!node.running && random() % 8 == 0) c->Restart(node);
    if (node.running && node.session.value == 0 && random() % 2 == 0) c->Connect(node);
  }
  c->Settle();
  c->Pass(absl::Milliseconds(100 * (1 + random() % 8)));
  if (random() % 2 == 0) c->TrainStep();
  c->Settle();
}

// Kills, restarts, broken sessions, joins and crashes of the coordinator in random order: every job still ends well,
// and in the end the nodes hold and run what the coordinator believes.
TEST(ClusterCore, RandomFaults) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(absl::StrFormat("seed %d", seed));
    std::mt19937_64 random(seed);
    FakeCluster c;
    std::vector<std::string> names;
    for (int i = 0; i < 2; ++i) c.AddPs(names.emplace_back(absl::StrCat("ps-", i)));
    for (int i = 0; i < 3; ++i)
      c.AddWorker(names.emplace_back(absl::StrCat("worker-", i)), 1 + static_cast<int>(random() % 3));
    std::vector<std::string> keys{"a", "b", "c"};
    std::map<std::string, uint64_t> ids;
    int faults = 12;
    bool done = false;
    for (int round = 0; round < 3000 && !done; ++round) {
      for (const std::string& key : keys) {
        if (ids[key] != 0) continue;
        v1::JobSpec spec = c.Spec(1 + static_cast<int>(random() % 8));
        spec.set_priority(static_cast<int>(random() % 3));
        if (random() % 4 == 0) spec.set_strategy(v1::MIRRORED);
        ids[key] = c.SubmittedId(c.Submit(spec, key));
      }
      if (faults > 0 && random() % 3 == 0) {
        --faults;
        FakeNode& node = c.node(names[random() % names.size()]);
        switch (random() % 5) {
          case 0: c.Kill(node); break;
          case 1: c.BreakSession(node); break;
          case 2: c.RestartCoordinator(); break;
          case 3: c.CrashSoon(static_cast<int>(random() % 30)); break;
          case 4:
            c.Kill(node);
            c.Restart(node, random() % 2 == 0 ? "" : absl::StrCat(node.hello.name(), ":", 2000 + round));
            break;
        }
      }
      LiveOn(names, random, &c);
      done = true;
      for (const std::string& key : keys) done = done && ids[key] != 0 && c.State(ids[key]) == v1::SUCCEEDED;
    }
    for (const std::string& key : keys) {
      const v1::JobStatus job = c.Job(ids[key]);
      ASSERT_EQ(job.state(), v1::SUCCEEDED) << StateText(job.state()) << ": " << job.reason();
      EXPECT_EQ(job.epochs_size(), 2);
      EXPECT_EQ(c.TrueStep(ids[key]), 10);
    }
    for (const std::string& name : names) {
      if (!c.node(name).running) c.Restart(c.node(name));
    }
    c.ReconnectAll();
    c.Settle();
    for (const std::string& name : names) EXPECT_TRUE(c.node(name).assigned.empty()) << name;
    EXPECT_EQ(c.core().ListJobs(absl::InfinitePast()).jobs_size(), 3);
  }
}

// Kills, restarts, cuts, drains and crashes of the coordinator, one ps at a time so that an acknowledged update always
// has a living copy or a log: every job ends, and no update is lost.
TEST(ClusterCopies, RandomFaults) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrFormat("seed %d", seed));
    std::mt19937_64 random(seed);
    Cluster c(3, 2);
    const bool logged = random() % 2 == 0;
    const uint64_t id = c.SubmitOk(SpecWithCopies(8, 1 + static_cast<int>(random() % 2),  // 40 steps
                                                  logged ? v1::LOGGED_AND_REPLICATED : v1::REPLICATED, 4));
    const std::vector<std::string> names{"ps-0", "ps-1", "ps-2", "worker-0", "worker-1"};
    int faults = 15;
    for (int round = 0; round < 2000 && c.State(id) != v1::SUCCEEDED && c.State(id) != v1::FAILED; ++round) {
      const v1::JobStatus job = c.Job(id);
      const bool whole = InSync(job) == job.partitions_size() * job.spec().backups();
      if (faults > 0 && random() % 3 == 0 && (whole || logged)) {
        --faults;
        FakeNode& node = c.node(names[random() % names.size()]);
        switch (random() % 6) {
          case 0: c.Kill(node); break;
          case 1: c.BreakSession(node); break;
          case 2: c.RestartCoordinator(); break;
          case 3: c.CrashSoon(static_cast<int>(random() % 20)); break;
          case 4: {
            v1::DrainNodeRequest request;
            request.set_name(names[random() % 3]);
            request.set_undo(random() % 2 == 0);
            c.Do(DrainNode{ReplyToken{500000 + static_cast<uint64_t>(round)}, request});
            break;
          }
          case 5:
            c.Kill(node);
            c.Restart(node, random() % 2 == 0 ? "" : absl::StrCat(node.hello.name(), ":", 2000 + round));
            break;
        }
      }
      LiveOn(names, random, &c);
    }
    ASSERT_EQ(c.State(id), v1::SUCCEEDED) << c.Job(id).reason();
    EXPECT_EQ(c.TrueStep(id), 40);
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace cairn
