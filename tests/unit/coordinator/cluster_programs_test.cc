// Goal: a job whose model is computed by a program runs on workers that have the program in its version; other jobs do
// not run on workers that have only programs. If no worker can compute it, the job says who has what. The programs of a
// worker are known again after a restart of the coordinator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/cluster.h"
#include "tests/unit/model/external_job.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

FakeNode& AddProgram(Cluster& c, const std::string& name, const std::string& version) {
  v1::ExternalProgram program;
  program.set_name("lenet");
  program.set_version(version);
  return c.AddPrograms(name, {program});
}

v1::JobSpec External() { return FromText<v1::JobSpec>(kExternalJob); }

TEST(ClusterPrograms, AJobWaitsForItsProgramAndSaysWhoHasWhat) {
  Cluster c(1, 1);
  AddProgram(c, "python-0", "2");
  const uint64_t id = c.SubmitOk(External());
  EXPECT_EQ(c.State(id), v1::QUEUED);
  EXPECT_EQ(c.Job(id).reason(),
            "no worker has program \"lenet\" version \"1\"; they have: \"python-0\" (lenet 2), \"worker-0\" (none)");
  const uint64_t other = c.SubmitOk(c.Spec());
  EXPECT_EQ(c.State(other), v1::RUNNING) << "others need not wait for it";
  EXPECT_THAT(c.Assigned("python-0", other), IsEmpty()) << "it has no layers";
  AddProgram(c, "python-1", "1");
  EXPECT_EQ(c.State(id), v1::RUNNING);
  EXPECT_THAT(c.Assigned("python-1", id), ElementsAre(0, 1, 2, 3));
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED);
}

TEST(ClusterPrograms, LosingTheLastIsSaid) {
  Cluster c(1, 1);
  AddProgram(c, "python-0", "1");
  const uint64_t id = c.SubmitOk(External());
  c.Train(3);
  c.Kill(c.node("python-0"));
  c.Pass(absl::Seconds(5));
  EXPECT_EQ(c.State(id), v1::RUNNING);
  EXPECT_THAT(c.Assigned("worker-0", id), IsEmpty());
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("no worker has program \"lenet\" version \"1\""));
  c.Restart(c.node("python-0"));
  EXPECT_TRUE(c.RunToEnd(id));
}

TEST(ClusterPrograms, LayersNeedAWorkerThatComputesThem) {
  Cluster c(1, 0);
  AddProgram(c, "python-0", "1");
  const uint64_t id = c.SubmitOk(c.Spec());
  EXPECT_EQ(c.State(id), v1::QUEUED);
  EXPECT_EQ(c.Job(id).reason(),
            "no worker computes layers, only programs of their own: \"python-0\" (lenet 1); start a cairn-worker");
  c.AddWorker("worker-0", 1);
  EXPECT_EQ(c.State(id), v1::RUNNING);
}

}  // namespace
}  // namespace cairn
