// Goal: what a former chief reports of checkpoints counts where it is still valid.
#include <gtest/gtest.h>

#include "tests/unit/coordinator/cluster.h"

namespace cairn {
namespace {

v1::JobSpec SpecWithCheckpoints() {
  v1::JobSpec spec = FakeCluster::Spec();
  spec.set_epochs(1);
  spec.set_backups(0);
  spec.mutable_checkpoints()->set_dir("/shared/run");
  return spec;
}

v1::NodeMessage Written(uint64_t id, int64_t step) {
  v1::NodeMessage message;
  message.mutable_checkpoint()->set_job_id(id);
  message.mutable_checkpoint()->mutable_checkpoint()->set_step(step);
  return message;
}

// It does not try that step again, so nobody may wait for it. (Simulator, seed 7026682.)
TEST(ClusterFormerChiefs, WhatAFormerChiefCannotWriteIsNotAwaitedWhenItIsTheChiefAgain) {
  Cluster c(1, 3);
  const uint64_t id = c.SubmitOk(SpecWithCheckpoints());
  ASSERT_EQ(c.Job(id).chief(), "worker-0");
  c.BreakSession(c.node("worker-0"));
  c.Pass(absl::Seconds(1));
  c.ReconnectAll();
  c.Settle();
  ASSERT_EQ(c.Job(id).chief(), "worker-1");
  v1::NodeMessage failed = Written(id, c.Job(id).total_steps());
  failed.mutable_checkpoint()->set_error("no space left on device");
  c.Say(c.node("worker-0"), failed);
  EXPECT_EQ(c.Job(id).checkpoint_error(), "") << "another one is the chief";
  c.BreakSession(c.node("worker-1"));
  c.Pass(absl::Seconds(1));
  ASSERT_EQ(c.Job(id).chief(), "worker-0");
  EXPECT_EQ(c.Job(id).checkpoint_error(), "no space left on device");
}

}  // namespace
}  // namespace cairn
