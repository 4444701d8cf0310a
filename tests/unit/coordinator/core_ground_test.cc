// Goal: each part of the core's ground keeps its invariants by itself: time and effects, the table of jobs, nodes,
// candidates, generations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/core_parts.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(StepContext, TimeNeverGoesBackAndEventsComeInOrder) {
  StepContext step(1, absl::FromUnixSeconds(100));
  step.Begin(absl::FromUnixSeconds(90));
  EXPECT_EQ(step.now(), absl::FromUnixSeconds(100));
  EXPECT_EQ(step.NextRequestId(), 2u);
  step.Raise(ReasonDue{3});
  step.Raise(SlotsChanged{});
  EXPECT_TRUE(std::holds_alternative<ReasonDue>(*step.TakeRaised()));
  EXPECT_TRUE(std::holds_alternative<SlotsChanged>(*step.TakeRaised()));
  EXPECT_FALSE(step.TakeRaised().has_value());
}

TEST(StepContext, NothingIsSentToANodeWithoutASession) {
  StepContext step(1, absl::FromUnixSeconds(100));
  ClusterNode node;
  step.Send(node, MakeDropJob(1));
  EXPECT_TRUE(step.TakeEffects().empty());
  node.lease.Open(SessionToken(4), absl::FromUnixSeconds(100));
  step.Send(node, MakeDropJob(1));
  EXPECT_EQ(Only<SendCommand>(step.TakeEffects()).size(), 1u);
}

TEST(JobTable, RefusesAStateThatMayNotFollow) {
  CoreParts parts(1, 1);
  Job& job = parts.AddRunning(1, 0);
  parts.jobs.Transition(job, v1::QUEUED);
  EXPECT_EQ(job.state(), v1::RUNNING);
  const std::vector<LogLine> log = Only<LogLine>(parts.TakeEffects());
  ASSERT_EQ(log.size(), 1u);
  EXPECT_THAT(log[0].text, HasSubstr("from RUNNING to QUEUED is refused"));
}

TEST(JobTable, WhatWasToldIsStoredByTheEndOfTheStep) {
  CoreParts parts(1, 1);
  Job& job = parts.AddRunning(1, 0);
  parts.jobs.Tell(job, "something happened to %d", 7);
  EXPECT_TRUE(Only<Store>(parts.TakeEffects()).empty());
  parts.jobs.SaveTold();
  const std::vector<Store> stored = Only<Store>(parts.TakeEffects());
  ASSERT_EQ(stored.size(), 1u);
  EXPECT_THAT(*stored[0].value, HasSubstr("something happened to 7"));
  parts.jobs.SaveTold();
  EXPECT_TRUE(Only<Store>(parts.TakeEffects()).empty());
}

TEST(JobTable, ANumberIsNeverUsedAgain) {
  CoreParts parts(1, 1);
  const uint64_t first = parts.AddRunning(1, 0).id();
  parts.jobs.Forget(first);
  EXPECT_EQ(parts.jobs.Find(first), nullptr);
  EXPECT_EQ(parts.AddRunning(1, 0).id(), first + 1);
}

TEST(JobTable, ByNameOnlyWhereItIsClear) {
  CoreParts parts(1, 1);
  const uint64_t first = parts.AddRunning(1, 0).id();
  EXPECT_EQ((*parts.jobs.FindOnly("a", "be cancelled", &Job::unfinished))->id(), first);
  parts.AddRunning(1, 0);
  EXPECT_EQ(parts.jobs.FindOnly("a", "be cancelled", &Job::unfinished).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(parts.jobs.FindOnly("b", "be cancelled", &Job::unfinished).status().code(), absl::StatusCode::kNotFound);
}

TEST(Nodes, APsOfAnotherClusterIsRefusedAndLoggedOnce) {
  CoreParts parts;
  v1::Hello hello;
  hello.set_name("ps-0");
  hello.set_role(v1::PS);
  hello.set_address("ps-0:1");
  hello.set_incarnation(1);
  hello.set_cluster_id(99);
  EXPECT_FALSE(parts.nodes.Admit(SessionToken(1), hello).ok());
  const Effects first = parts.TakeEffects();
  EXPECT_EQ(Only<CloseSession>(first).size(), 1u);
  EXPECT_EQ(Only<LogLine>(first).size(), 1u);
  EXPECT_FALSE(parts.nodes.Admit(SessionToken(2), hello).ok());
  EXPECT_TRUE(Only<LogLine>(parts.TakeEffects()).empty());
}

TEST(Nodes, AnIncarnationIsNotStoredWhileItsCopiesWait) {
  CoreParts parts(1, 1);
  Job& job = parts.AddRunning(1, 0);
  const auto stored_incarnation = [&] {
    parts.nodes.Save();
    v1::StoredCluster stored;
    EXPECT_TRUE(stored.ParseFromString(*Only<Store>(parts.TakeEffects()).at(0).value));
    for (int i = 0; i < stored.nodes_size(); ++i) {
      if (stored.nodes(i).name() == "ps-0") return stored.incarnation(i);
    }
    return uint64_t{12345};
  };
  EXPECT_EQ(stored_incarnation(), 7u);
  job.partitions.copies.returned[{0, "ps-0"}] = {};
  EXPECT_EQ(stored_incarnation(), 0u);
  job.partitions.copies.returned.clear();
  parts.nodes.SaveIfSettled();
  EXPECT_EQ(Only<Store>(parts.TakeEffects()).size(), 1u);
  parts.nodes.SaveIfSettled();
  EXPECT_TRUE(Only<Store>(parts.TakeEffects()).empty());
}

TEST(Candidates, APsThatIsLeftOutIsUsableAgainAsAnotherProcess) {
  CoreParts parts(2, 1);
  Job& job = parts.AddRunning(2, 0);
  EXPECT_EQ(parts.candidates.PsThere(job), 2u);
  EXPECT_EQ(parts.candidates.MissingPs(job), "");
  job.workers.left_out.nodes["ps-1"] = {7, "its store failed"};
  EXPECT_EQ(parts.candidates.UsablePs(job, "ps-1"), nullptr);
  EXPECT_EQ(parts.candidates.PsThere(job), 1u);
  EXPECT_EQ(parts.candidates.MissingPs(job), "ps-1");
  job.workers.left_out.nodes["ps-1"].incarnation = 6;
  EXPECT_NE(parts.candidates.UsablePs(job, "ps-1"), nullptr);
}

TEST(Candidates, DrainedNodesAreAskedOnlyWhereThereIsNoOther) {
  CoreParts parts(1, 2);
  parts.nodes.Find("worker-0")->draining = true;
  std::vector<ClusterNode*> askable = parts.candidates.Askable(v1::WORKER, nullptr);
  ASSERT_EQ(askable.size(), 1u);
  EXPECT_EQ(askable[0]->name, "worker-1");
  parts.nodes.Find("worker-1")->draining = true;
  EXPECT_EQ(parts.candidates.Askable(v1::WORKER, nullptr).size(), 2u);
}

TEST(Hosting, AGenerationIsStoredBeforeAnyPsIsToldOfIt) {
  CoreParts parts(2, 1);
  Job& job = parts.AddRunning(2, 0);
  parts.hosting.NewGeneration(job);
  EXPECT_EQ(job.status.generation(), 2u);
  EXPECT_TRUE(job.partitions.hosting.awaiting_ready);
  EXPECT_EQ(parts.CountRaised<ReasonDue>(), 1);
  std::vector<std::string> order;
  for (const Effect& effect : parts.step.TakeEffects()) {
    if (std::holds_alternative<Store>(effect)) order.push_back("store");
    if (std::holds_alternative<SendCommand>(effect)) order.push_back("send");
  }
  EXPECT_THAT(order, ElementsAre("store", "send", "send"));
}

TEST(Hosting, APsHearsOnlyWhatIsNews) {
  CoreParts parts(2, 1);
  Job& job = parts.AddRunning(2, 0);
  parts.hosting.HostAll(job, false);
  EXPECT_EQ(Only<SendCommand>(parts.TakeEffects()).size(), 2u);
  parts.hosting.HostAll(job, false);
  EXPECT_TRUE(Only<SendCommand>(parts.TakeEffects()).empty());
}

TEST(Hosting, APsThatCameBackServesNothingBeforeItIsSettled) {
  CoreParts parts(2, 1);
  Job& job = parts.AddRunning(2, 0);
  job.partitions.copies.returned[{0, "ps-0"}] = {};
  parts.hosting.HostAll(job, true);
  EXPECT_EQ(Only<SendCommand>(parts.TakeEffects()).size(), 1u);
}

}  // namespace
}  // namespace cairn
