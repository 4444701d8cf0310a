// Goal: a job whose files cannot be written says so while it waits for them, and ends without them.
#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/unit/coordinator/copies.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ClusterFiles, AJobThatWaitsForItsFilesSaysSo) {
  Cluster c(1, 1);
  c.file_failures = 1000;
  v1::JobSpec spec = FakeCluster::Spec();
  spec.add_callbacks()->mutable_tensorboard()->set_log_dir("/proc/logs");
  const uint64_t id = c.SubmitOk(spec);
  c.Train(10);
  c.Pass(absl::Seconds(2));
  EXPECT_EQ(c.State(id), v1::RUNNING);
  EXPECT_THAT(c.Job(id).reason(),
              HasSubstr("all steps are done; 0 model files and the summaries of 2 epochs are not written yet"));
  c.Pass(absl::Seconds(5));
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("all steps are done")) << "no replica is behind";
  c.Pass(absl::Seconds(10));
  EXPECT_EQ(c.State(id), v1::ENDED_WITH_ERRORS)
      << "a worker has said why it cannot: other jobs do not wait a minute for the slots";
  EXPECT_THAT(c.Job(id).reason(),
              HasSubstr("summaries: the figures from this epoch on are not written: no space left on device"));
  ASSERT_GE(c.Job(id).notes_size(), 1);
  EXPECT_THAT(c.Job(id).notes(0).text(), HasSubstr("not written: "));
}

// The last steps are lost while the job waits for its files: it waits for them again when these steps have been done
// again, however late.
TEST(ClusterFiles, AJobThatFallsBackWaitsForItsFilesAnew) {
  for (const bool synchronous : {true, false}) {
    SCOPED_TRACE(synchronous);
    Cluster c(2, 1);
    c.file_failures = 1000;
    v1::JobSpec spec = SpecWithCopies(2, 0, v1::SNAPSHOT);
    if (!synchronous) spec.set_strategy(v1::PARAMETER_SERVER);
    spec.add_callbacks()->mutable_tensorboard()->set_log_dir("/proc/logs");
    const uint64_t id = c.SubmitOk(spec);
    c.Train(10);
    c.Pass(absl::Seconds(2));
    ASSERT_EQ(c.State(id), v1::RUNNING);
    ASSERT_THAT(c.Job(id).reason(), HasSubstr("all steps are done"));
    for (const char* name : {"ps-0", "ps-1"}) c.node(name).kept_versions = {9};
    c.Kill(c.node("ps-1"));
    for (auto& [p, version] : c.node("ps-1").hosted.at(id).version) version = 9;
    c.Restart(c.node("ps-1"));
    c.Settle();
    ASSERT_TRUE(c.Logged(synchronous ? "falls back from step 10 to 9" : "continues from what its ps have kept"));
    EXPECT_THAT(c.Job(id).reason(), Not(HasSubstr("all steps are done")));
    if (!synchronous) continue;
    c.Pass(absl::Seconds(70));
    ASSERT_EQ(c.Job(id).step(), 9);
    c.Train(1);
    c.Pass(absl::Seconds(2));
    EXPECT_EQ(c.State(id), v1::RUNNING) << "it does not wait for its files";
    EXPECT_THAT(c.Job(id).reason(), HasSubstr("all steps are done"));
    c.file_failures = 0;
    EXPECT_TRUE(c.RunToEnd(id));
    EXPECT_FALSE(c.Logged("ends without some of its files"));
  }
}

// The checkpoint is removed while a file made of it is being retried. Somebody else removed it, for Cairn would have
// waited before the next epoch. The user is told what had prevented the file.
TEST(ClusterFiles, AFileWhoseCheckpointIsGoneSaysWhyItWasNotWrittenBefore) {
  Cluster c(1, 1);
  c.write_checkpoints = true;
  c.file_failures = 2;
  v1::JobSpec spec = FakeCluster::Spec();
  spec.set_epochs(4);
  spec.mutable_checkpoints()->set_dir("/run");
  spec.mutable_checkpoints()->set_every_epochs(1);
  spec.mutable_checkpoints()->set_keep_max(2);
  spec.add_callbacks()->mutable_model_checkpoint()->set_filepath("/full/{epoch}.keras");
  const uint64_t id = c.SubmitOk(spec);
  c.Train(5);
  ASSERT_EQ(c.node("worker-0").saves.size(), 1u);
  c.Train(5);
  v1::NodeMessage removed;
  removed.mutable_checkpoint()->set_job_id(id);
  removed.mutable_checkpoint()->add_deleted_steps(5);
  c.Say(c.node("worker-0"), removed);
  EXPECT_TRUE(c.RunToEnd(id));
  const v1::JobStatus job = c.Job(id);
  const auto first = std::find_if(job.notes().begin(), job.notes().end(), [](const auto& n) { return n.epoch() == 0; });
  ASSERT_NE(first, job.notes().end());
  EXPECT_THAT(first->text(), HasSubstr("not saved: no space left on device"));
  EXPECT_THAT(first->text(), HasSubstr("checkpoint of step 5 is removed"));
  EXPECT_EQ(c.node("worker-0").saves.size(), 1u + 4u) << "the others have their own tries";
}

// The disk of the checkpoints is full.
TEST(ClusterFiles, AFileWithoutACheckpointSaysWhyThereIsNone) {
  Cluster c(1, 1);
  c.write_checkpoints = true;
  c.checkpoint_error = "/run/step-5: no space left on device";
  v1::JobSpec spec = FakeCluster::Spec();
  spec.mutable_checkpoints()->set_dir("/run");
  spec.mutable_checkpoints()->set_every_epochs(1);
  spec.add_callbacks()->mutable_model_checkpoint()->set_filepath("/models/{epoch}.keras");
  const uint64_t id = c.SubmitOk(spec);
  EXPECT_TRUE(c.RunToEnd(id));
  const v1::JobStatus job = c.Job(id);
  EXPECT_TRUE(std::any_of(job.notes().begin(), job.notes().end(), [](const auto& n) {
    return n.text() ==
           "not saved: /models/1.keras: there is no checkpoint of this epoch's end: /run/step-5: no space left on "
           "device";
  })) << job.ShortDebugString();
}

// Five checkpoints an epoch, of which three are kept: the one that an epoch's file is made of is not removed before the
// file is written.
TEST(ClusterFiles, TheNextEpochWaitsForTheFileOfThisOne) {
  Cluster c(1, 1);
  c.write_checkpoints = true;
  c.answer_files = false;
  v1::JobSpec spec = FakeCluster::Spec();
  spec.set_epochs(4);
  spec.mutable_checkpoints()->set_dir("/run");
  spec.mutable_checkpoints()->set_every_epochs(1);
  spec.mutable_checkpoints()->set_every_steps(1);
  spec.mutable_checkpoints()->set_keep_max(3);
  spec.add_callbacks()->mutable_model_checkpoint()->set_filepath("/full/{epoch}.keras");
  const uint64_t id = c.SubmitOk(spec);
  c.Train(5);
  c.Pass(absl::Seconds(1));
  ASSERT_EQ(c.node("worker-0").saves.size(), 1u);
  EXPECT_EQ(c.Job(id).epochs_open(), 1);
  c.RestartCoordinator();
  c.ReconnectAll();
  c.Pass(absl::Seconds(1));
  EXPECT_EQ(c.Job(id).epochs_open(), 1) << "it is still asked for";
  c.answer_files = true;
  v1::NodeMessage late;
  late.mutable_model_saved()->set_job_id(id);
  late.mutable_model_saved()->set_step(5);
  late.mutable_model_saved()->set_path("/full/1.keras");
  c.Say(c.node("worker-0"), late);
  c.Settle();
  EXPECT_EQ(c.Job(id).epochs_open(), 2);
  EXPECT_TRUE(c.RunToEnd(id));
  std::vector<std::string> notes;
  const v1::JobStatus status = c.Job(id);
  for (const v1::CallbackNote& note : status.notes()) notes.push_back(note.text());
  EXPECT_THAT(notes, testing::ElementsAre("saved /full/1.keras", "saved /full/2.keras", "saved /full/3.keras",
                                          "saved /full/4.keras"));
}

}  // namespace
}  // namespace cairn
