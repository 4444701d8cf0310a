// Goal: callbacks have Keras' defaults, cause the checkpoints that they need, and each wrong field is refused by a
// sentence that names it and says what to do.
#include "common/model/callback_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/model/job_check.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

const char kGood[] = R"(
  name: "iris"
  model { layers { input { shape: 4 } } layers { dense { units: 3 activation: SOFTMAX } } }
  data { path: "/data/iris.csv" }
  loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
  metrics { kind: ACCURACY }
  optimizer { sgd {} }
)";

v1::JobSpec With(const std::string& change) { return ChangedJob(kGood, change); }

v1::JobSpec Checked(const std::string& change) {
  const auto job = CheckJob(With(change));
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? job->spec : v1::JobSpec();
}

TEST(CallbackCheck, DefaultsOfKeras) {
  const v1::JobSpec spec = Checked(R"(
    callbacks { early_stopping { } }
    callbacks { reduce_lr_on_plateau { monitor: "val_accuracy" } }
    callbacks { tensorboard { } }
    callbacks { csv_logger { filename: "/runs/log.csv" } }
    callbacks { model_checkpoint { filepath: "/runs/m-{epoch}.safetensors" save_best_only: true } }
    callbacks { terminate_on_nan { } })");
  const v1::EarlyStopping& stopping = spec.callbacks(0).early_stopping();
  EXPECT_EQ(stopping.monitor(), "val_loss");
  EXPECT_EQ(stopping.mode(), v1::MODE_MIN);
  EXPECT_EQ(stopping.patience(), 0);
  const v1::ReduceLrOnPlateau& reduce = spec.callbacks(1).reduce_lr_on_plateau();
  EXPECT_EQ(reduce.factor(), 0.1f);
  EXPECT_EQ(reduce.patience(), 10);
  EXPECT_EQ(reduce.min_delta(), 1e-4f);
  EXPECT_EQ(reduce.mode(), v1::MODE_MAX);
  EXPECT_EQ(spec.callbacks(2).tensorboard().log_dir(), "logs");
  EXPECT_TRUE(spec.callbacks(2).tensorboard().write_graph());
  EXPECT_EQ(spec.callbacks(2).tensorboard().update_freq(), "epoch");
  EXPECT_EQ(spec.callbacks(3).csv_logger().separator(), ",");
  EXPECT_EQ(spec.callbacks(4).model_checkpoint().monitor(), "val_loss");
  EXPECT_EQ(spec.checkpoints().dir(), "/runs/.cairn-iris") << "model files are made from checkpoints";
  EXPECT_EQ(spec.checkpoints().every_epochs(), 1);
  EXPECT_TRUE(WaitsAtEpochs(spec));
  EXPECT_TRUE(NeedsEpochCheckpoints(spec));
  EXPECT_TRUE(WritesSummaries(spec));
}

TEST(CallbackCheck, TwiceDoesWhatOnceDoes) {
  const v1::JobSpec once = Checked(R"(
    callbacks { early_stopping { restore_best_weights: true monitor: "accuracy" } }
    callbacks { backup_and_restore { backup_dir: "/runs/backup" save_freq: "40" } }
    callbacks { model_checkpoint { filepath: "/runs/m.safetensors" save_freq: "80" } }
    callbacks { learning_rate_scheduler { schedule { exponential_decay { decay_steps: 1 decay_rate: 0.9 } } } })");
  EXPECT_EQ(once.checkpoints().save_best(), "accuracy");
  EXPECT_EQ(once.checkpoints().mode(), v1::Checkpoints::MAX);
  EXPECT_EQ(once.checkpoints().every_steps(), 40);
  const auto twice = CheckJob(once);
  ASSERT_TRUE(twice.ok()) << twice.status();
  EXPECT_EQ(twice->spec.SerializeAsString(), once.SerializeAsString());
}

TEST(CallbackCheck, BackupIsAShortFormOfCheckpoints) {
  const v1::JobSpec spec = Checked(R"(callbacks { backup_and_restore { backup_dir: "/runs/backup" } })");
  EXPECT_EQ(spec.checkpoints().dir(), "/runs/backup");
  EXPECT_EQ(spec.checkpoints().every_epochs(), 1);
  EXPECT_EQ(spec.checkpoints().every_steps(), 0);
  EXPECT_TRUE(spec.callbacks(0).backup_and_restore().delete_checkpoint());
  EXPECT_FALSE(WaitsAtEpochs(spec));
}

TEST(CallbackCheck, WhatIsWrongIsSaid) {
  const std::pair<const char*, const char*> cases[] = {
      {"callbacks { }", "callbacks[0]: it is empty; name one, such as early_stopping { patience: 3 }"},
      {"callbacks { early_stopping { monitor: 'val_los' } }",
       "callbacks[0].early_stopping.monitor: \"val_los\" is not a figure of this job; use one of loss, accuracy, with "
       "val_ before it "
       "for the validation split"},
      {"callbacks { early_stopping { patience: -1 } }",
       "callbacks[0].early_stopping.patience: -1 is negative; use 0 or more"},
      {"callbacks { early_stopping { min_delta: -0.5 } }",
       "callbacks[0].early_stopping.min_delta: -0.5 is negative or not finite; use 0 or more"},
      {"callbacks { early_stopping { baseline: nan } }",
       "callbacks[0].early_stopping.baseline: nan is not finite; use a number, or leave it out"},
      {"callbacks { early_stopping { start_from_epoch: -2 } }",
       "callbacks[0].early_stopping.start_from_epoch: -2 is negative; use 0 or more"},
      {"callbacks { early_stopping { restore_best_weights: true } }",
       "callbacks[0].early_stopping.restore_best_weights: the weights come from checkpoints, and this job writes none; "
       "add "
       "checkpoints { dir: \"...\" }, a directory that all workers share"},
      {"checkpoints { dir: '/c' save_best: 'accuracy' } callbacks { early_stopping { restore_best_weights: true } }",
       "callbacks[0].early_stopping.restore_best_weights: it keeps the best checkpoint by \"val_loss\", but "
       "checkpoints.save_best is "
       "\"accuracy\"; leave save_best and mode out, or make them equal"},
      {"checkpoints { dir: '/c' } callbacks { early_stopping { restore_best_weights: true } } "
       "callbacks { early_stopping { restore_best_weights: true monitor: 'loss' } }",
       "callbacks[1].early_stopping: callbacks[0] is one already, and a job has one at most with restore_best_weights; "
       "leave one of "
       "them out"},
      {"validation_by: BY_EVALUATOR callbacks { early_stopping { } }",
       "callbacks[0].early_stopping.monitor: \"val_loss\" comes from an evaluator, for which the training does not "
       "wait; use "
       "validation_by: BY_REPLICAS, or monitor \"loss\""},
      {"callbacks { terminate_on_nan { } } callbacks { reduce_lr_on_plateau { factor: 1 } }",
       "callbacks[1].reduce_lr_on_plateau.factor: 1 is not between 0 and 1; use a number such as 0.1"},
      {"callbacks { reduce_lr_on_plateau { patience: -3 } }",
       "callbacks[0].reduce_lr_on_plateau.patience: -3 is negative; use 0 or more"},
      {"callbacks { reduce_lr_on_plateau { cooldown: -1 } }",
       "callbacks[0].reduce_lr_on_plateau.cooldown: -1 is negative; use 0 or more"},
      {"callbacks { reduce_lr_on_plateau { min_lr: -1 } }",
       "callbacks[0].reduce_lr_on_plateau.min_lr: -1 is negative or not finite; use 0 or more"},
      {"optimizer { schedule { constant { } } } callbacks { reduce_lr_on_plateau { } }",
       "callbacks[0].reduce_lr_on_plateau: optimizer.schedule sets the learning rate too; leave one of them out"},
      {"callbacks { learning_rate_scheduler { } }",
       "callbacks[0].learning_rate_scheduler.schedule: missing; use exponential_decay { ... }, say"},
      {"callbacks { learning_rate_scheduler { schedule { exponential_decay { decay_rate: 0.5 } } } }",
       "callbacks[0].learning_rate_scheduler.schedule: exponential_decay.decay_steps: missing; use a number of steps "
       "such as 1000"},
      {"callbacks { learning_rate_scheduler { schedule { constant { } } } } callbacks { reduce_lr_on_plateau { } }",
       "callbacks[1].reduce_lr_on_plateau: callbacks[0].learning_rate_scheduler sets the learning rate in each "
       "epoch; leave one "
       "of them out"},
      {"callbacks { csv_logger { } }", "callbacks[0].csv_logger.filename: missing; give a file as the workers see it"},
      {"callbacks { csv_logger { filename: '/a' separator: ', ' } }",
       "callbacks[0].csv_logger.separator: \", \" is not one character; use \",\", \";\" or a tab"},
      {"callbacks { tensorboard { histogram_freq: -1 } }",
       "callbacks[0].tensorboard.histogram_freq: -1 is negative; use 0 or more"},
      {"callbacks { tensorboard { update_freq: 'batches' } }",
       "callbacks[0].tensorboard.update_freq: \"batches\" is neither \"epoch\" nor a number of steps; use one of them"},
      {"callbacks { backup_and_restore { } }",
       "callbacks[0].backup_and_restore.backup_dir: missing; give a directory that all workers share, as the workers "
       "see it"},
      {"callbacks { backup_and_restore { backup_dir: '/b' save_freq: '-5' } }",
       "callbacks[0].backup_and_restore.save_freq: \"-5\" is neither \"epoch\" nor a number of steps; use one of them"},
      {"checkpoints { dir: '/c' } callbacks { backup_and_restore { backup_dir: '/b' } }",
       "callbacks[0].backup_and_restore: the job has `checkpoints` in \"/c\" already, which do the same; leave one of "
       "them out"},
      {"callbacks { backup_and_restore { backup_dir: '/b' } } callbacks { backup_and_restore { backup_dir: '/c' } }",
       "callbacks[1].backup_and_restore: callbacks[0] is one already, and a job has one at most; leave one of them "
       "out"},
      {"callbacks { model_checkpoint { } }",
       "callbacks[0].model_checkpoint.filepath: missing; give the file's name as the workers see it"},
      {"callbacks { model_checkpoint { filepath: '/m.h5' } }",
       "callbacks[0].model_checkpoint.filepath: \"/m.h5\" does not say by its end which kind of file it is; end it in "
       ".safetensors, "
       ".keras, .weights.h5 or .onnx"},
      {"callbacks { model_checkpoint { filepath: '/m-{epoch.safetensors' } }",
       "callbacks[0].model_checkpoint.filepath: a { without its }; write {{ for a brace"},
      {"callbacks { model_checkpoint { filepath: '/m-{epoch:y}.safetensors' } }",
       "callbacks[0].model_checkpoint.filepath: \"y\" is not a format; use 02d for counts or .2f for figures"},
      {"callbacks { model_checkpoint { filepath: '/m-{val_mae}.safetensors' } }",
       "callbacks[0].model_checkpoint.filepath: {val_mae} is not a figure of this job; use epoch, loss, accuracy, with "
       "val_ before a figure "
       "for the validation split"},
      {"callbacks { model_checkpoint { filepath: '/m-{batch}.safetensors' } }",
       "callbacks[0].model_checkpoint.filepath: {batch} is known where save_freq is a number of steps; leave it out"},
      {"callbacks { model_checkpoint { filepath: '/m-{val_loss}.safetensors' save_freq: '10' } }",
       "callbacks[0].model_checkpoint.filepath: {val_loss} is known after epochs, and save_freq is a number of steps; "
       "use {epoch} and "
       "{batch}"},
      {"callbacks { model_checkpoint { filepath: '/m.safetensors' save_freq: 'batch' } }",
       "callbacks[0].model_checkpoint.save_freq: \"batch\" is neither \"epoch\" nor a number of steps; use one of "
       "them"},
      {"callbacks { model_checkpoint { filepath: '/m.safetensors' save_freq: '10' save_best_only: true } }",
       "callbacks[0].model_checkpoint.save_best_only: figures to compare exist only after epochs; use save_freq: "
       "\"epoch\""},
      {"callbacks { model_checkpoint { filepath: '/m.safetensors' initial_value_threshold: 0.5 } }",
       "callbacks[0].model_checkpoint.initial_value_threshold: it has an effect only with save_best_only; set both or "
       "neither"},
      {"checkpoints { dir: '/c' every_steps: 7 } callbacks { model_checkpoint { filepath: '/m.safetensors' save_freq: "
       "'10' } }",
       "callbacks[0].model_checkpoint.save_freq: model files are made from checkpoints, and 10 is not a multiple of "
       "checkpoints.every_steps 7; leave every_steps out, or make it so"},
      {"checkpoints { dir: '/c' every_epochs: 2 } callbacks { model_checkpoint { filepath: '/m.safetensors' } }",
       "callbacks[0].model_checkpoint.save_freq: model files are made from checkpoints, and checkpoints.every_epochs "
       "is 2; set it to 1"},
      {"checkpoints { dir: '/c' every_epochs: 3 } callbacks { early_stopping { restore_best_weights: true } }",
       "callbacks[0].early_stopping.restore_best_weights: any epoch may be the best, and checkpoints.every_epochs is "
       "3; set it to 1"},
  };
  for (const auto& [change, message] : cases) {
    const absl::StatusOr<CheckedJob> job = CheckJob(With(change));
    ASSERT_FALSE(job.ok()) << change;
    EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(job.status().message()), message);
  }
}

TEST(CallbackCheck, FiguresOfAValidationNeedTheSplit) {
  v1::DataInfo data;
  data.set_path("/data/iris.csv");
  data.set_train_examples(100);
  data.add_example_shape(4);
  data.set_classes(3);
  const std::pair<const char*, const char*> cases[] = {
      {"callbacks { early_stopping { } }",
       "callbacks[0].early_stopping.monitor: \"val_loss\" needs a validation split, and the data has none; set "
       "data.validation_split, or monitor \"loss\""},
      {"callbacks { model_checkpoint { filepath: '/m-{val_loss:.2f}.safetensors' } }",
       "callbacks[0].model_checkpoint.filepath: {val_loss} needs a validation split, and the data has none; set "
       "data.validation_split, or use another figure"},
  };
  for (const auto& [change, message] : cases) {
    const auto job = CheckJob(With(change));
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(std::string(CheckJobAgainstData(*job, data).message()), message);
  }
  const auto fine =
      CheckJob(With("callbacks { early_stopping { monitor: 'loss' } } callbacks { model_checkpoint { filepath: "
                    "'/m.safetensors' } }"));
  ASSERT_TRUE(fine.ok()) << fine.status();
  EXPECT_TRUE(CheckJobAgainstData(*fine, data).ok()) << CheckJobAgainstData(*fine, data);
}

TEST(CallbackCheck, FiguresByName) {
  v1::JobStatus status;
  *status.mutable_spec() = With("");
  status.mutable_data()->set_validation_examples(10);
  v1::EpochResult epoch;
  epoch.mutable_train()->set_examples(4);
  epoch.mutable_train()->set_loss(2);
  epoch.mutable_train()->add_metrics(3);
  EXPECT_EQ(FigureOf(status, epoch, "loss"), 0.5);
  EXPECT_EQ(FigureOf(status, epoch, "accuracy"), 0.75);
  EXPECT_EQ(FigureOf(status, epoch, "val_loss"), std::nullopt);
  epoch.mutable_validation()->set_examples(9);
  EXPECT_EQ(FigureOf(status, epoch, "val_loss"), std::nullopt) << "not whole";
  epoch.mutable_validation()->set_examples(10);
  epoch.mutable_validation()->set_loss(1);
  EXPECT_EQ(FigureOf(status, epoch, "val_loss"), 0.1);
  EXPECT_EQ(FigureOf(status, epoch, "nothing"), std::nullopt);
}

}  // namespace
}  // namespace cairn
