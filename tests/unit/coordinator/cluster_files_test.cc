// Goal: a job whose files cannot be written says so while it waits for them, and ends without them.
#include <gmock/gmock.h>

#include "tests/unit/coordinator/cluster.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

TEST(ClusterFiles, AJobThatWaitsForItsFilesSaysSo) {
  Cluster c(1, 1);
  c.file_failures = 1000;
  v1::JobSpec spec = FakeCluster::Spec();
  spec.add_callbacks()->mutable_tensorboard()->set_log_dir("/proc/logs");
  const uint64_t id = c.SubmitOk(spec);
  c.Train(10);
  c.Pass(absl::Seconds(2));
  EXPECT_EQ(c.State(id), v1::RUNNING);
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("all steps are done; 0 model files and the summaries of 2 epochs are not written yet"));
  c.Pass(absl::Seconds(40));
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("all steps are done")) << "no replica is behind";
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED);
  ASSERT_GE(c.Job(id).notes_size(), 1);
  EXPECT_THAT(c.Job(id).notes(0).text(), HasSubstr("not written: "));
}

}  // namespace
}  // namespace cairn
