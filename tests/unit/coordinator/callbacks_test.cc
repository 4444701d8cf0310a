// Goal: callbacks decide what Keras' callbacks would decide. They are compared with naive models over random figures,
// and with the cases that Keras' documentation describes.
#include "coordinator/core/callbacks.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Feeds the epochs of a job to its callbacks, one after the other.
class Training {
 public:
  explicit Training(const std::string& callbacks) {
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString("name: 'a' metrics { kind: ACCURACY } " + callbacks,
                                                              status_.mutable_spec()));
    status_.mutable_data()->set_validation_examples(1);
    status_.set_steps_per_epoch(10);
  }
  EpochDecision Epoch(double val_loss, double loss = 1) {
    v1::EpochResult& result = *status_.add_epochs();
    result.mutable_train()->set_examples(1);
    result.mutable_train()->set_loss(loss);
    result.mutable_train()->add_metrics(0.5);
    result.mutable_validation()->set_examples(1);
    result.mutable_validation()->set_loss(val_loss);
    result.mutable_validation()->add_metrics(1 - val_loss);
    EpochDecision decision = DecideEpoch(status_, status_.epochs_size() - 1, rate, &states_);
    if (decision.learning_rate) rate = *decision.learning_rate;
    return decision;
  }
  // The number of epochs that are trained with these figures: all of them if no callback stops the job.
  int EpochsOf(const std::vector<double>& figures) {
    for (size_t i = 0; i < figures.size(); ++i) {
      if (Epoch(figures[i]).stop) return static_cast<int>(i) + 1;
    }
    return static_cast<int>(figures.size());
  }
  int best() const { return BestEpoch(status_.spec(), states_); }
  v1::JobStatus& status() { return status_; }
  float rate = 0.01f;

 private:
  v1::JobStatus status_;
  google::protobuf::RepeatedPtrField<v1::StoredCallback> states_;
};

TEST(Callbacks, EarlyStoppingCases) {
  struct Case {
    const char* what;
    const char* fields;
    std::vector<double> figures;
    int epochs;  // trained
    int best;    // with restore_best_weights
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Case cases[] = {
      {"patience 0 stops at the first that is not a better", "", {0.5, 0.4, 0.4, 0.3}, 3, 1},
      {"patience 2", "patience: 2", {0.5, 0.4, 0.45, 0.44, 0.3}, 4, 1},
      {"the wait begins anew", "patience: 2", {0.5, 0.6, 0.4, 0.6, 0.6, 0.1}, 5, 2},
      {"min_delta", "patience: 1 min_delta: 0.1", {0.5, 0.45, 0.3}, 2, 0},
      {"a baseline that is not reached ends it after patience, though figures improve",
       "patience: 2 baseline: 0.1",
       {0.5, 0.4, 0.3, 0.3, 0.01},
       4,
       2},
      {"a baseline that is reached", "patience: 2 baseline: 0.45", {0.5, 0.4, 0.41, 0.42}, 4, 1},
      {"epochs before start_from_epoch do not count", "start_from_epoch: 3", {0.1, 0.2, 0.3, 0.5, 0.4, 0.6}, 6, 4},
      {"the first epoch never ends it", "patience: 0", {nan, nan, 0.1}, 2, 0},
      {"nothing ends it", "patience: 3", {0.5, 0.6, 0.7}, 3, 0},
  };
  for (const Case& c : cases) {
    Training run(
        absl::StrCat("callbacks { early_stopping { monitor: 'val_loss' mode: MODE_MIN restore_best_weights: true ",
                     c.fields, " } }"));
    EXPECT_EQ(run.EpochsOf(c.figures), c.epochs) << c.what;
    EXPECT_EQ(run.best(), c.best) << c.what;
  }
}

TEST(Callbacks, EarlyStoppingSaysWhy) {
  Training run(
      "callbacks { terminate_on_nan { } } callbacks { early_stopping { monitor: 'val_loss' mode: MODE_MIN patience: 1 "
      "} }");
  run.Epoch(0.25);
  const EpochDecision decision = run.Epoch(0.5);
  EXPECT_TRUE(decision.stop);
  EXPECT_FALSE(decision.failed);
  EXPECT_EQ(decision.reason, "stopped early after epoch 2: val_loss did not improve on 0.25 for 1 epoch");
  ASSERT_EQ(decision.notes.size(), 1u);
  EXPECT_EQ(decision.notes[0].epoch(), 1);
  EXPECT_EQ(decision.notes[0].callback(), "early_stopping");
  EXPECT_EQ(decision.notes[0].text(), "val_loss did not improve on 0.25 for 1 epoch; the job ends");
}

TEST(Callbacks, AnEpochWithoutTheFigureDoesNotCount) {
  Training run("callbacks { early_stopping { monitor: 'val_loss' mode: MODE_MIN } }");
  run.Epoch(0.5);
  run.status().add_epochs()->mutable_train()->set_examples(1);  // no validation: validation_freq 2
  google::protobuf::RepeatedPtrField<v1::StoredCallback> states;
  EXPECT_FALSE(DecideEpoch(run.status(), 1, 0.1f, &states).stop);
  EXPECT_EQ(states[0].wait(), 0);
}

// Keras' ReduceLROnPlateau in other words, with numpy's float32 of the learning rate.
struct NaiveReduce {
  bool max = false;
  double factor, min_delta, min_lr;
  int patience, cooldown;
  float lr;
  double best = max ? -INFINITY : INFINITY;
  int wait = 0, rests = 0;
  void EpochEnd(double current) {
    if (rests > 0) {
      --rests;
      wait = 0;
    }
    const bool better = max ? current > best + min_delta : current < best - min_delta;
    if (better) {
      best = current;
      wait = 0;
    } else if (rests == 0) {
      if (++wait >= patience && lr > static_cast<float>(min_lr)) {
        lr = static_cast<float>(std::max(static_cast<double>(lr) * factor, min_lr));
        rests = cooldown;
        wait = 0;
      }
    }
  }
};

TEST(Callbacks, ReduceLrOnPlateauAsANaiveModel) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 500; ++round) {
    NaiveReduce naive{.max = false,
                      .factor = round % 2 == 0 ? 0.1 : 0.5,
                      .min_delta = round % 3 == 0 ? 0.0 : 1.0 / 64,
                      .min_lr = round % 5 == 0 ? 0.001 : 0,
                      .patience = static_cast<int>(random() % 4),
                      .cooldown = static_cast<int>(random() % 3),
                      .lr = 0.01f};
    Training run(absl::StrCat("callbacks { reduce_lr_on_plateau { monitor: 'val_loss' mode: MODE_MIN factor: ",
                              naive.factor, " min_delta: ", naive.min_delta, " min_lr: ", naive.min_lr,
                              " patience: ", naive.patience, " cooldown: ", naive.cooldown, " } }"));
    for (int epoch = 0; epoch < 30; ++epoch) {
      const double figure =
          static_cast<double>(random() % 64) / 64;  // differences are exact: both ways of comparing agree
      naive.EpochEnd(figure);
      run.Epoch(figure);
      ASSERT_EQ(run.rate, naive.lr) << "round " << round << " epoch " << epoch;
    }
  }
}

TEST(Callbacks, ReduceLrOnPlateauSaysWhatItDid) {
  Training run("callbacks { reduce_lr_on_plateau { monitor: 'val_accuracy' mode: MODE_MAX factor: 0.1 patience: 2 } }");
  run.Epoch(0.25);
  run.Epoch(0.5);
  const EpochDecision decision = run.Epoch(0.5);
  ASSERT_EQ(decision.notes.size(), 1u);
  EXPECT_EQ(decision.notes[0].text(),
            "val_accuracy did not improve on 0.75 for 2 epochs; the learning rate is now 0.001");
  EXPECT_EQ(run.rate, static_cast<float>(static_cast<double>(0.01f) * 0.1));
}

TEST(Callbacks, ModelCheckpointSavesEveryEpochOrTheBest) {
  Training every(
      "callbacks { model_checkpoint { filepath: '/m-{epoch:02d}-{val_loss:.2f}.safetensors' save_freq: 'epoch' } }");
  EXPECT_THAT(every.Epoch(0.5).saves, ElementsAre("/m-01-0.50.safetensors"));
  EXPECT_THAT(every.Epoch(0.625).saves, ElementsAre("/m-02-0.62.safetensors"));
  Training best(
      "callbacks { model_checkpoint { filepath: '/b-{epoch}.safetensors' monitor: 'val_loss' mode: MODE_MIN "
      "save_best_only: true "
      "initial_value_threshold: 0.55 save_freq: 'epoch' } }");
  EXPECT_THAT(best.Epoch(0.6).saves, IsEmpty()) << "not better than the threshold";
  EXPECT_THAT(best.Epoch(0.5).saves, ElementsAre("/b-2.safetensors"));
  EXPECT_THAT(best.Epoch(0.5).saves, IsEmpty());
  EXPECT_THAT(best.Epoch(0.4).saves, ElementsAre("/b-4.safetensors"));
}

TEST(Callbacks, ModelCheckpointEverySoManySteps) {
  Training run(
      "callbacks { model_checkpoint { filepath: '/m-{epoch}-{batch:02d}.safetensors' save_freq: '4' } } callbacks { "
      "csv_logger { } }");
  EXPECT_THAT(SavesAtStep(run.status(), 4), ElementsAre("/m-1-04.safetensors"));
  EXPECT_THAT(SavesAtStep(run.status(), 20), ElementsAre("/m-2-10.safetensors"));
  EXPECT_THAT(SavesAtStep(run.status(), 21), IsEmpty());
  EXPECT_THAT(SavesAtStep(run.status(), 0), IsEmpty());
  EXPECT_THAT(run.Epoch(0.5).saves, IsEmpty());
}

TEST(Callbacks, TerminateOnNanFails) {
  Training run(
      "callbacks { early_stopping { monitor: 'val_loss' mode: MODE_MIN } } callbacks { terminate_on_nan { } }");
  EXPECT_FALSE(run.Epoch(0.5).stop);
  const EpochDecision decision = run.Epoch(0.6, std::numeric_limits<double>::infinity());
  EXPECT_TRUE(decision.stop);
  EXPECT_TRUE(decision.failed) << "though early_stopping stops too";
  EXPECT_EQ(decision.reason, "the loss is not finite in epoch 2; lower optimizer.learning_rate, or check the data");
}

TEST(Callbacks, StatesAreKeptByCallback) {
  // The same figures through one state that is stored and read again after each epoch.
  Training run(
      "callbacks { reduce_lr_on_plateau { monitor: 'val_loss' mode: MODE_MIN factor: 0.5 patience: 1 } } "
      "callbacks { early_stopping { monitor: 'val_loss' mode: MODE_MIN patience: 3 } }");
  EXPECT_EQ(run.EpochsOf({0.5, 0.5, 0.5, 0.5, 0.5}), 4);
  EXPECT_EQ(run.rate, 0.00125f);
}

}  // namespace
}  // namespace cairn
