// Goal: the fields about faults are consistent: a combination that promises what it cannot keep is refused by a
// sentence that names the field and what to set instead; defaults are those of job.proto.
#include "common/model/fault_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/base/limits.h"
#include "common/model/job_check.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

const char kGood[] = R"(
  model { layers { input { shape: 4 } } layers { dense { units: 3 activation: SOFTMAX } } }
  data { path: "/data/iris.csv" }
  loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
  metrics { kind: ACCURACY }
  optimizer { sgd {} }
)";

v1::JobSpec With(const std::string& change) { return ChangedJob(kGood, change); }

v1::JobSpec Checked(const std::string& change) { return CheckJob(With(change)).value().spec; }

TEST(FaultCheck, DurabilityAndBackupsGoTogether) {
  EXPECT_EQ(Checked("backups: 1").durability(), v1::REPLICATED);
  EXPECT_EQ(Checked("backups: 0").durability(), v1::LOGGED);
  for (const char* logs : {"LOGGED", "SNAPSHOT"}) {
    const v1::JobSpec spec = Checked(absl::StrCat("durability: ", logs));
    EXPECT_TRUE(spec.has_backups());
    EXPECT_EQ(spec.backups(), 0) << logs;
  }
  for (const char* copies : {"REPLICATED", "LOGGED_AND_REPLICATED"}) {
    EXPECT_EQ(Checked(absl::StrCat("durability: ", copies)).backups(), 1) << copies;
    EXPECT_EQ(Checked(absl::StrCat("backups: 3 durability: ", copies)).backups(), 3) << copies;
  }
}

TEST(FaultCheck, TheClusterSaysTheRest) {
  v1::JobSpec spec = Checked("");
  ResolveBackups(1, &spec);
  EXPECT_EQ(spec.backups(), 0);
  EXPECT_EQ(spec.durability(), v1::LOGGED);
  spec = Checked("");
  ResolveBackups(2, &spec);
  EXPECT_EQ(spec.backups(), 1);
  EXPECT_EQ(spec.durability(), v1::REPLICATED);
  spec = Checked("backups: 2");
  ResolveBackups(2, &spec);
  EXPECT_EQ(spec.backups(), 2) << "what the user said stays";
}

TEST(FaultCheck, CheckpointDefaults) {
  v1::Checkpoints c = Checked("checkpoints { dir: '/c' save_best: 'val_accuracy' }").checkpoints();
  EXPECT_EQ(c.every_epochs(), 1);
  EXPECT_EQ(c.keep_max(), 3);
  EXPECT_EQ(c.mode(), v1::Checkpoints::MAX);
  c = Checked("checkpoints { dir: '/c' every_minutes: 0.5 keep_max: 7 save_best: 'loss' }").checkpoints();
  EXPECT_EQ(c.every_epochs(), 1) << "the best is one of an epoch's end";
  EXPECT_EQ(c.keep_max(), 7);
  EXPECT_EQ(c.mode(), v1::Checkpoints::MIN);
  EXPECT_EQ(Checked("checkpoints { dir: '/c' every_minutes: 0.5 }").checkpoints().every_epochs(), 0);
}

TEST(FaultCheck, EachWrongFieldIsNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"backups: -1", "backups: -1 is not within 0 .. 3; use 1, or 0 for none"},
      {"backups: 4", "backups: 4 is not within 0 .. 3; use 1, or 0 for none"},
      {"backups: 1 durability: LOGGED",
       "durability: LOGGED does not wait for the 1 backups; set durability: LOGGED_AND_REPLICATED, or backups: 0"},
      {"backups: 2 durability: SNAPSHOT",
       "durability: SNAPSHOT does not wait for the 2 backups; set durability: REPLICATED, or backups: 0"},
      {"backups: 0 durability: REPLICATED",
       "durability: REPLICATED needs backups, but backups is 0; set backups: 1, or durability: LOGGED"},
      {"backup_replicas: -1", "backup_replicas: -1 is negative; use 0 or more"},
      {"backup_replicas: 4 replicas: 4",
       "backup_replicas: 4 of 4 replicas would leave none whose gradient counts; use fewer, or more replicas"},
      {"backup_replicas: 1 strategy: PARAMETER_SERVER",
       "backup_replicas: only for synchronous jobs, where slow replicas delay a step; leave it out"},
      {"backup_replicas: 1 strategy: MIRRORED",
       "backup_replicas: strategy MIRRORED computes all replicas on one worker, so that none is late; leave it out, "
       "or "
       "use MULTI_WORKER_MIRRORED"},
      {"checkpoints {}", "checkpoints.dir: missing; give a directory that all workers share"},
      {"checkpoints { dir: '" + std::string(4097, 'x') + "' }",
       "checkpoints.dir: longer than 4096 bytes; use a shorter one"},
      {"checkpoints { dir: '/c' every_steps: -1 }",
       "checkpoints.every_steps: -1 is not allowed; leave it out for no such rule, or give at least 1"},
      {"checkpoints { dir: '/c' every_epochs: -1 }",
       "checkpoints.every_epochs: -1 is not allowed; leave it out for 1 where no other rule is set, or give at least "
       "1"},
      {"checkpoints { dir: '/c' every_minutes: nan }",
       "checkpoints.every_minutes: nan is not allowed; leave it out for no such rule, or give a number such as 10"},
      {"checkpoints { dir: '/c' every_minutes: -2 }",
       "checkpoints.every_minutes: -2 is not allowed; leave it out for no such rule, or give a number such as 10"},
      {"checkpoints { dir: '/c' keep_max: -1 }",
       "checkpoints.keep_max: -1 is not allowed; leave it out for 3, or give at least 1"},
      {"checkpoints { dir: '/c' save_best: 'val_top_5_accuracy' }",
       "checkpoints.save_best: \"val_top_5_accuracy\" is not a figure of this job; use one of loss, accuracy, with "
       "val_ "
       "before it for the validation split"},
      {"checkpoints { dir: '/c' mode: MIN }",
       "checkpoints.mode: it says what is best, but checkpoints.save_best names no figure; set both"},
      {"resume_from: '/a' initial_weights: '/b'",
       "initial_weights: a job that resumes from resume_from gets its weights from there; set only one of them"},
      {"resume_from: '" + std::string(4097, 'x') + "'", "resume_from: longer than 4096 bytes; use a shorter path"},
  };
  for (const auto& [change, message] : cases) {
    SCOPED_TRACE(change.substr(0, 80));
    const absl::StatusOr<CheckedJob> job = CheckJob(With(change));
    ASSERT_FALSE(job.ok());
    EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(job.status().message()), message);
  }
}

TEST(FaultCheck, Warnings) {
  EXPECT_THAT(CheckJob(With("backups: 1 fsync: true")).value().warnings, testing::SizeIs(1));
  EXPECT_THAT(CheckJob(With("durability: LOGGED_AND_REPLICATED fsync: true")).value().warnings, testing::IsEmpty());
}

TEST(FaultCheck, ACheckedJobPassesAgainUnchanged) {
  for (const char* change : {"backups: 1", "durability: SNAPSHOT", "checkpoints { dir: '/c' save_best: 'loss' }"}) {
    const v1::JobSpec once = Checked(change);
    EXPECT_EQ(CheckJob(once).value().spec.SerializeAsString(), once.SerializeAsString()) << change;
  }
}

}  // namespace
}  // namespace cairn
