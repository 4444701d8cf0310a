// Goal: every trial's job is checked as a cluster would before anything is submitted, errors name the trial and the
// field; trials write to places of their own, and resume from them.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "client/cli/sweep/definition.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kJob[] = R"(
  name: "small"
  model {
    layers { input { shape: [28, 28, 1] } }
    layers { flatten { } }
    layers { dense { units: 10 activation: SOFTMAX } }
  }
  data { path: "/" }
  loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
  metrics { kind: ACCURACY }
  optimizer { sgd { } learning_rate: 0.1 }
  epochs: 9
)";

SweepDefinition Of(const std::string& more, const std::vector<std::string>& grid) {
  SweepDefinition definition;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kJob + more, &definition.job)) << more;
  definition.flags.grid = grid;
  definition.flags.by = "val_accuracy";
  definition.key = "k";
  definition.folder = "/sweep";
  return definition;
}

absl::Status NothingOpen(v1::JobSpec*) { return absl::OkStatus(); }

std::string Error(const SweepDefinition& definition) {
  return std::string(MakePlan(definition, NothingOpen).status().message());
}

TEST(MakePlan, TrialsAndHowTheyAreCompared) {
  SweepDefinition definition = Of("", {"optimizer=adam,sgd", "optimizer.learning_rate=0.1,0.01"});
  auto plan = MakePlan(definition, NothingOpen);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->trials.size(), 4u);
  EXPECT_TRUE(plan->options.more_is_better);
  EXPECT_TRUE(plan->options.rungs.empty());
  definition.flags.by = "loss";
  EXPECT_FALSE(MakePlan(definition, NothingOpen)->options.more_is_better);
  definition.flags.mode = "max";
  definition.flags.halving.on = true;
  plan = MakePlan(definition, NothingOpen);
  EXPECT_TRUE(plan->options.more_is_better);
  EXPECT_THAT(plan->options.rungs, ElementsAre(1, 3));
}

TEST(MakePlan, ABadTrialIsNamedWithItsField) {
  EXPECT_THAT(Error(Of("", {"optimizer.learning_rte=0.1,0.2"})),
              HasSubstr("trial 1 (learning_rte=0.1): optimizer.learning_rte=0.1: Optimizer has no field"));
  EXPECT_THAT(Error(Of("", {"batch_size=32,many"})), HasSubstr("trial 2 (batch_size=many): batch_size=many: \"many\""));
  EXPECT_THAT(Error(Of("", {"optimizer.learning_rate=0.1,-1"})),
              HasSubstr("trial 2 (learning_rate=-1): optimizer.learning_rate: -1"));
  EXPECT_THAT(Error(Of("", {"data.path=/,there/is/nothing"})), HasSubstr("trial 2"));
}

TEST(MakePlan, TheFigureMustBeOneOfTheJob) {
  SweepDefinition definition = Of("", {"batch_size=32,64"});
  definition.flags.by = "val_acuracy";
  EXPECT_THAT(Error(definition), HasSubstr("did you mean val_accuracy?"));
  definition.flags.by = "";
  EXPECT_THAT(Error(definition), HasSubstr("--by: missing"));
}

TEST(MakePlan, HalvingNeedsEpochsAndCallbacksThatForgetNothing) {
  SweepDefinition definition = Of("", {"epochs=4,8"});
  definition.flags.halving.on = true;
  EXPECT_THAT(Error(definition), HasSubstr("sweep other fields than `epochs`"));
  definition = Of("callbacks { early_stopping { } }", {"batch_size=32,64"});
  definition.flags.halving.on = true;
  EXPECT_THAT(Error(definition), HasSubstr("callbacks[0].early_stopping forgets"));
  definition = Of("validation_freq: 2", {"batch_size=32,64"});
  definition.flags.halving.on = true;
  EXPECT_THAT(Error(definition), HasSubstr("validated after every 2 epochs"));
  definition.flags.halving.min_epochs = 9;
  definition.job.clear_validation_freq();
  EXPECT_THAT(Error(definition), HasSubstr("give the job more epochs"));
}

v1::JobSpec JobOf(const SweepDefinition& definition, int number) {
  const auto plan = MakePlan(definition, NothingOpen);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return JobOfTrial(definition, plan->trials[number - 1], plan->trials.size(), NothingOpen).value();
}

TEST(JobOfTrial, WritesToPlacesOfItsOwn) {
  const SweepDefinition definition = Of(R"(
    checkpoints { dir: "/runs/c" }
    callbacks { csv_logger { filename: "/runs/log.csv" } }
    callbacks { tensorboard { log_dir: "/runs/board" } }
    callbacks { model_checkpoint { filepath: "/runs/m-{epoch:02d}.keras" } })",
                                        {"seed=0,1,2,3,4,5,6,7,8,9"});
  const v1::JobSpec job = JobOf(definition, 3);
  EXPECT_EQ(job.name(), "small-t03");
  EXPECT_EQ(job.seed(), 2u);
  EXPECT_EQ(job.checkpoints().dir(), "/runs/c/trial-03");
  EXPECT_EQ(job.callbacks(0).csv_logger().filename(), "/runs/trial-03/log.csv");
  EXPECT_EQ(job.callbacks(1).tensorboard().log_dir(), "/runs/board/trial-03");
  EXPECT_EQ(job.callbacks(2).model_checkpoint().filepath(), "/runs/trial-03/m-{epoch:02d}.keras");
}

TEST(JobOfTrial, HalvingAddsCheckpointsToResumeFrom) {
  SweepDefinition definition = Of("initial_weights: \"/w.safetensors\"", {"seed=0,1"});
  EXPECT_FALSE(JobOf(definition, 1).has_checkpoints());
  definition.flags.halving = {true, 2, 2};
  const v1::JobSpec job = JobOf(definition, 2);
  EXPECT_EQ(job.checkpoints().dir(), "/sweep/checkpoints/trial-2");
  EXPECT_EQ(job.checkpoints().every_epochs(), 2);
  EXPECT_EQ(job.checkpoints().keep_max(), 3);
  EXPECT_EQ(job.initial_weights(), "/w.safetensors");
  const v1::JobSpec resumed = Resumed(job, "/data/step-30");
  EXPECT_EQ(resumed.resume_from(), "/data/step-30");
  EXPECT_TRUE(resumed.initial_weights().empty());
}

TEST(TrialJobName, FitsInAName) {
  SweepDefinition definition = Of("", {"seed=0,1"});
  definition.job.set_name(std::string(63, 'n'));
  EXPECT_EQ(JobOf(definition, 2).name(), std::string(60, 'n') + "-t2");
}

}  // namespace
}  // namespace cairn
