// Goal: each wrong field of an optimizer, its schedule, clipping, weight decay and moving average is refused by a
// sentence that names it and says what to do; defaults are Keras'.
#include "common/model/optimizer_check.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/model/job_check.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

const char kJob[] = R"(
  model { layers { input { shape: 4 } } layers { dense { units: 3 activation: SOFTMAX } } }
  data { path: "/data/iris.csv" }
  loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
)";

absl::StatusOr<CheckedJob> Check(const std::string& optimizer) {
  v1::JobSpec spec = FromText<v1::JobSpec>(kJob);
  *spec.mutable_optimizer() = FromText<v1::Optimizer>(optimizer);
  return CheckJob(spec);
}

TEST(OptimizerCheck, ExactErrors) {
  const std::string p = "optimizer.schedule.";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"sgd {} schedule {}",
       "optimizer.schedule: empty; use schedule { cosine_decay { decay_steps: 1000 } }, say, or leave it out"},
      {"sgd {} schedule { piecewise_constant_decay { values: 1 } }",
       p + "piecewise_constant_decay.boundaries: missing; name the steps after which the rate changes, such as 1000"},
      {"sgd {} schedule { piecewise_constant_decay { boundaries: [ 100, 100 ] values: [ 1, 1, 1 ] } }",
       p + "piecewise_constant_decay.boundaries[1]: 100 does not rise above 100; put them in rising order"},
      {"sgd {} schedule { piecewise_constant_decay { boundaries: -1 values: [ 1, 1 ] } }",
       p + "piecewise_constant_decay.boundaries[0]: -1 is negative; use a number of steps such as 1000"},
      {"sgd {} schedule { piecewise_constant_decay { boundaries: [ 1, 2 ] values: [ 1, 1 ] } }",
       p + "piecewise_constant_decay.values: 2 of them with 2 boundaries; give 3, one more"},
      {"sgd {} schedule { piecewise_constant_decay { boundaries: 1 values: [ 1, -1 ] } }",
       p + "piecewise_constant_decay.values[1]: -1 is negative or not finite; use a number such as 0.01"},
      {"sgd {} learning_rate: 0.5 schedule { piecewise_constant_decay { boundaries: 1 values: [ 1, 0.1 ] } }",
       "optimizer.learning_rate: 0.5, but piecewise_constant_decay begins with 1; leave learning_rate out"},
      {"sgd {} schedule { exponential_decay { decay_rate: 0.9 } }",
       p + "exponential_decay.decay_steps: missing; use a number of steps such as 1000"},
      {"sgd {} schedule { exponential_decay { decay_steps: 10 } }",
       p + "exponential_decay.decay_rate: 0 is not positive; use a number such as 0.96"},
      {"sgd {} schedule { exponential_decay { decay_steps: 10 decay_rate: inf } }",
       p + "exponential_decay.decay_rate: inf is not finite; use a number such as 0.96"},
      {"sgd {} schedule { polynomial_decay { decay_steps: -5 } }",
       p + "polynomial_decay.decay_steps: -5 is negative; use a number of steps such as 1000"},
      {"sgd {} schedule { polynomial_decay { decay_steps: 5 power: 0 } }",
       p + "polynomial_decay.power: 0 is not positive; use a number such as 1"},
      {"sgd {} schedule { polynomial_decay { decay_steps: 5 end_learning_rate: -1 } }",
       p + "polynomial_decay.end_learning_rate: -1 is negative or not finite; use a number such as 0.0001"},
      {"sgd {} schedule { inverse_time_decay { decay_rate: 0.5 } }",
       p + "inverse_time_decay.decay_steps: missing; use a number of steps such as 1000"},
      {"sgd {} schedule { inverse_time_decay { decay_steps: 7 decay_rate: -1 } }",
       p + "inverse_time_decay.decay_rate: -1 is not positive; use a number such as 0.5"},
      {"sgd {} schedule { cosine_decay { alpha: 0.1 } }",
       p + "cosine_decay.decay_steps: missing; use a number of steps such as 1000"},
      {"sgd {} schedule { cosine_decay { decay_steps: 2000000000000 } }",
       p + "cosine_decay.decay_steps: 2000000000000 is above the limit of 1099511627776"},
      {"sgd {} schedule { cosine_decay { decay_steps: 10 alpha: 2 } }",
       p + "cosine_decay.alpha: 2 is outside [0, 1]; it is the part of the learning rate that is left in the end"},
      {"sgd {} schedule { cosine_decay { decay_steps: 10 warmup_steps: 5 } }",
       p + "cosine_decay.warmup_target: missing, with warmup_steps: 5; name the learning rate that the warm-up leads "
           "to"},
      {"sgd {} schedule { cosine_decay { decay_steps: 10 warmup_target: 0.5 } }",
       p + "cosine_decay.warmup_steps: missing, with warmup_target: 0.5; use a number of steps such as 100"},
      {"sgd {} schedule { cosine_decay { decay_steps: 10 warmup_steps: 3 warmup_target: -0.5 } }",
       p + "cosine_decay.warmup_target: -0.5 is negative or not finite; use a number such as 0.1"},
      {"sgd {} schedule { cosine_decay_restarts {} }",
       p + "cosine_decay_restarts.first_decay_steps: missing; use a number of steps such as 1000"},
      {"sgd {} schedule { cosine_decay_restarts { first_decay_steps: 9 t_mul: 0.5 } }",
       p + "cosine_decay_restarts.t_mul: 0.5 is not 1 or more; use 1 for periods of one length, 2 for doubled ones"},
      {"sgd {} schedule { cosine_decay_restarts { first_decay_steps: 9 m_mul: 0 } }",
       p + "cosine_decay_restarts.m_mul: 0 is not positive; use a number such as 1"},
      {"sgd {} learning_rate: 0 schedule { cosine_decay { decay_steps: 10 } }",
       "optimizer.learning_rate: 0 is not positive; use a number such as 0.01"},
      {"sgd {} weight_decay: -1", "optimizer.weight_decay: -1 is negative or not finite; use a number such as 0.004"},
      {"sgd {} weight_decay: nan", "optimizer.weight_decay: nan is negative or not finite; use a number such as 0.004"},
      {"adamw {} weight_decay: 0.1", "optimizer.weight_decay: adamw has its own; set optimizer.adamw.weight_decay"},
      {"sgd {} exclude_from_weight_decay: 'bias'",
       "optimizer.exclude_from_weight_decay: there is no weight decay to exclude from; set optimizer.weight_decay"},
      {"sgd {} weight_decay: 0.1 exclude_from_weight_decay: ''",
       "optimizer.exclude_from_weight_decay: an empty text is part of every name; use one such as \"bias\""},
      {"adamw {} exclude_from_weight_decay: 'biass'",
       "optimizer.exclude_from_weight_decay: \"biass\" is part of no trainable variable's name; they are like "
       "\"dense/kernel\""},
      {"muon {} weight_decay: 0.1",
       "optimizer.weight_decay: muon has its own; set optimizer.muon.weight_decay and adam_weight_decay"},
      {"muon { weight_decay: 0 adam_weight_decay: 0 } exclude_from_weight_decay: 'bias'",
       "optimizer.exclude_from_weight_decay: there is no weight decay to exclude from; set optimizer.weight_decay"},
      {"muon { ns_steps: 0 }", "optimizer.muon.ns_steps: 0 is not within 1 .. 32; use 5, say"},
      {"muon { momentum: 1 }", "optimizer.muon.momentum: 1 is outside [0, 1); use a number such as 0.95"},
      {"muon { muon_b: nan }", "optimizer.muon.muon_b: nan is not finite; leave it out"},
      {"muon { exclude_layers: '' }",
       "optimizer.muon.exclude_layers: an empty text is part of every name; name the last layer, say"},
      {"muon { exclude_layers: 'desne' }",
       "optimizer.muon.exclude_layers: \"desne\" is in no variable's name; they are like \"dense/kernel\""},
      {"muon { exclude_layers: '^kernel' }",
       "optimizer.muon.exclude_layers: \"^kernel\" is in no variable's name; they are like \"dense/kernel\""},
      {"muon { exclude_layers: 'dense(' }",
       "optimizer.muon.exclude_layers: \"dense(\" is no regular expression that Cairn reads: missing ): dense(; "
       "look-around (?=...) and back-references are not read, and sizes are bounded"},
      {"lamb { beta_2: 1 }", "optimizer.lamb.beta_2: 1 is outside [0, 1); use a number such as 0.999"},
      {"lamb { epsilon: 0 }", "optimizer.lamb.epsilon: 0 is not positive; use a number such as 1e-07"},
      {"adafactor { beta_2_decay: 0 }",
       "optimizer.adafactor.beta_2_decay: 0 is outside [-8, 0); use a number such as -0.8"},
      {"adafactor { clip_threshold: -1 }",
       "optimizer.adafactor.clip_threshold: -1 is not positive; use a number such as 1"},
      {"schedule_free_adamw { beta_1: 0 }",
       "optimizer.schedule_free_adamw.beta_1: is 0, but the average is divided by it; use 0.9, say"},
      {"schedule_free_adamw { warmup_steps: -1 }",
       "optimizer.schedule_free_adamw.warmup_steps: -1 is not within 0 .. 1099511627776; use a number of steps such as "
       "1000"},
      {"sgd {} clipvalue: 0", "optimizer.clipvalue: 0 is not positive; use a number such as 1"},
      {"sgd {} clipnorm: inf", "optimizer.clipnorm: inf is not finite; use a number such as 1"},
      {"sgd {} global_clipnorm: -2", "optimizer.global_clipnorm: -2 is not positive; use a number such as 1"},
      {"sgd {} clipvalue: 1 global_clipnorm: 1",
       "optimizer.clipvalue: at most one of clipvalue, clipnorm and global_clipnorm can be given; leave the others "
       "out"},
      {"sgd {} clipnorm: 1 global_clipnorm: 1",
       "optimizer.clipnorm: at most one of clipvalue, clipnorm and global_clipnorm can be given; leave the others "
       "out"},
      {"sgd {} ema { momentum: 1 }", "optimizer.ema.momentum: 1 is outside [0, 1); use a number such as 0.99"},
      {"sgd {} ema { overwrite_frequency: -1 }",
       "optimizer.ema.overwrite_frequency: -1 is negative; use a number of steps such as 100, or 0 for only the end"},
  };
  for (const auto& [optimizer, message] : cases) {
    SCOPED_TRACE(optimizer);
    const absl::StatusOr<CheckedJob> job = Check(optimizer);
    EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(job.status().message()), message);
  }
}

TEST(StepCheck, ExactErrors) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"accumulate_steps: -1", "accumulate_steps: -1 is not allowed; leave it out for 1, or give at least 1"},
      {"batch_size: 1024 accumulate_steps: 2000",
       "accumulate_steps: 2000 batches of 1024 make steps of 2048000 examples, above the limit of 1048576; use fewer"},
      {"compute_dtype: FLOAT16 loss_scaling { initial_scale: 1000 }",
       "loss_scaling.initial_scale: 1000 is not a power of two from 1 to 16777216; use one such as 32768"},
      {"compute_dtype: FLOAT16 device: CPU",
       "device: CPU does not compute compute_dtype FLOAT16; use GPU, or BFLOAT16 or FLOAT32"},
      {"loss_scaling {}",
       "loss_scaling: gradients of compute_dtype FLOAT32 need no scale; leave it out, or use compute_dtype FLOAT16"},
      {"optimizer { ema {} } callbacks { early_stopping {} }",
       "optimizer.ema: early_stopping ends the job at a step that is not known beforehand, at which the average should "
       "become the "
       "weights; set ema.overwrite_frequency to the steps of an epoch, or leave one of the two out"},
  };
  for (const auto& [change, message] : cases) {
    SCOPED_TRACE(change);
    v1::JobSpec spec = FromText<v1::JobSpec>(std::string(kJob) + "optimizer { sgd {} }");
    spec.MergeFrom(FromText<v1::JobSpec>(change));
    const absl::StatusOr<CheckedJob> job = CheckJob(spec);
    EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(job.status().message()), message);
  }
}

TEST(StepCheck, AStepHasItsExamplesInTheData) {
  v1::JobSpec spec =
      FromText<v1::JobSpec>(std::string(kJob) + "optimizer { sgd {} } batch_size: 32 accumulate_steps: 5");
  v1::DataInfo data = FromText<v1::DataInfo>("path: '/d' format: CSV train_examples: 159 example_shape: 4 classes: 3");
  const CheckedJob job = CheckJob(spec).value();
  EXPECT_EQ(CheckJobAgainstData(job, data).message(),
            "accumulate_steps: 5 batches of 32 are more than the 159 training examples of /d; use fewer");
  data.set_train_examples(160);
  EXPECT_TRUE(CheckJobAgainstData(job, data).ok());
}

TEST(OptimizerCheck, DefaultsOfKeras) {
  const auto optimizer = [](const std::string& text) { return Check(text).value().spec.optimizer(); };
  EXPECT_EQ(optimizer("sgd {} ema {}").ema().momentum(), 0.99f);
  EXPECT_EQ(optimizer("sgd {} ema { momentum: 0 }").ema().momentum(), 0.0f);
  EXPECT_FALSE(optimizer("sgd {}").has_ema());
  const v1::Optimizer polynomial = optimizer("sgd {} schedule { polynomial_decay { decay_steps: 1 } }");
  EXPECT_EQ(polynomial.schedule().polynomial_decay().end_learning_rate(), 0.0001f);
  EXPECT_EQ(polynomial.schedule().polynomial_decay().power(), 1.0f);
  const v1::Optimizer restarts = optimizer("sgd {} schedule { cosine_decay_restarts { first_decay_steps: 1 } }");
  EXPECT_EQ(restarts.schedule().cosine_decay_restarts().t_mul(), 2.0f);
  EXPECT_EQ(restarts.schedule().cosine_decay_restarts().m_mul(), 1.0f);
  EXPECT_EQ(optimizer("adam {} schedule { constant {} }").learning_rate(), 0.001f);
  EXPECT_EQ(optimizer("sgd {} weight_decay: 0.1 exclude_from_weight_decay: 'bias'").weight_decay(), 0.1f);
  EXPECT_EQ(optimizer("schedule_free_adamw {}").learning_rate(), 0.0025f);
  EXPECT_EQ(optimizer("schedule_free_adamw {}").schedule_free_adamw().epsilon(), 1e-8f);
  EXPECT_EQ(optimizer("lamb {}").lamb().beta_2(), 0.999f);
  EXPECT_EQ(optimizer("adafactor {}").adafactor().beta_2_decay(), -0.8f);
  EXPECT_TRUE(optimizer("adafactor {}").adafactor().relative_step());
  EXPECT_EQ(optimizer("muon {}").muon().rms_rate(), 0.2f);
  EXPECT_EQ(optimizer("muon { rms_rate: 0 }").muon().rms_rate(), 0);
  EXPECT_TRUE(optimizer("muon {}").muon().nesterov());
}

TEST(OptimizerCheck, MuonsMatricesHaveALimit) {
  v1::JobSpec spec = FromText<v1::JobSpec>(kJob);
  *spec.mutable_optimizer() = FromText<v1::Optimizer>("muon {}");
  spec.mutable_model()->mutable_layers(0)->mutable_input()->set_shape(0, 2049);
  spec.mutable_model()->mutable_layers(1)->mutable_dense()->set_units(2049);
  EXPECT_EQ(std::string(CheckJob(spec).status().message()),
            "optimizer.muon: dense/kernel [2049,2049] is a matrix whose shorter side is above 2048, whose products "
            "would take one ps minutes in every step; name it in exclude_layers");
  spec.mutable_optimizer()->mutable_muon()->add_exclude_layers("dense");
  EXPECT_TRUE(CheckJob(spec).ok()) << CheckJob(spec).status();
}

// What CheckJob has filled in is accepted again: the spec of a status can be submitted.
TEST(OptimizerCheck, AResolvedOptimizerStaysAsItIs) {
  for (const char* text :
       {"sgd {} schedule { piecewise_constant_decay { boundaries: 5 values: [ 0, 0.5 ] } }",
        "adamw {} exclude_from_weight_decay: 'bias' clipnorm: 2 ema {}", "lamb {} clipnorm: 2 ema {}",
        "muon { exclude_layers: 'dense' } exclude_from_weight_decay: 'bias'", "adafactor {} weight_decay: 0.1",
        "schedule_free_adamw {}",
        "sgd {} learning_rate: 0 schedule { cosine_decay { decay_steps: 9 warmup_steps: 2 warmup_target: 1 } }"}) {
    const absl::StatusOr<CheckedJob> once = Check(text);
    ASSERT_TRUE(once.ok()) << once.status();
    const absl::StatusOr<CheckedJob> twice = CheckJob(once->spec);
    ASSERT_TRUE(twice.ok()) << twice.status();
    EXPECT_EQ(twice->spec.optimizer().DebugString(), once->spec.optimizer().DebugString());
  }
}

}  // namespace
}  // namespace cairn
