// Goal: a job's defaults are those of Keras and of proto/cairn/v1/job.proto, and each wrong field is refused by a
// sentence that names it and says what to do.
#include "common/model/job_check.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/model/metric_sums.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

const char kGood[] = R"(
  model { layers { input { shape: 4 } } layers { dense { units: 3 activation: SOFTMAX } } }
  data { path: "/data/iris.csv" }
  loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
  optimizer { sgd {} }
)";

v1::JobSpec With(const std::string& change) { return ChangedJob(kGood, change); }

void ExpectRefused(const v1::JobSpec& spec, const std::string& message) {
  const absl::StatusOr<CheckedJob> job = CheckJob(spec);
  ASSERT_FALSE(job.ok());
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(job.status().message()), message);
}

TEST(JobCheck, Defaults) {
  const CheckedJob job = CheckJob(FromText<v1::JobSpec>(kGood)).value();
  const v1::JobSpec& spec = job.spec;
  EXPECT_EQ(spec.name(), "job");
  EXPECT_EQ(spec.optimizer().learning_rate(), 0.01f);
  EXPECT_EQ(spec.strategy(), v1::MULTI_WORKER_MIRRORED);
  EXPECT_EQ(spec.batch_size(), 32);
  EXPECT_EQ(spec.epochs(), 1);
  EXPECT_EQ(spec.replicas(), 0);
  EXPECT_EQ(spec.validation_freq(), 1);
  EXPECT_EQ(spec.wire_dtype(), v1::FLOAT32);
  EXPECT_EQ(spec.partition_bytes(), 0);
  EXPECT_FALSE(spec.has_backups()) << "the cluster's to say";
  EXPECT_EQ(spec.durability(), v1::DURABILITY_UNSPECIFIED);
  EXPECT_FALSE(spec.has_checkpoints());
  EXPECT_EQ(spec.threads_per_replica(), 1);
  EXPECT_EQ(spec.min_workers(), 1);
  EXPECT_EQ(spec.max_workers(), 0);
  EXPECT_TRUE(spec.data().shuffle());
  EXPECT_EQ(spec.data().cache_mib(), 1024);
  EXPECT_EQ(spec.data().label_column(), "-1");
  EXPECT_EQ(job.graph.parameters(), 15);
  EXPECT_THAT(job.warnings, testing::IsEmpty());
}

TEST(JobCheck, OptimizerDefaultsOfKeras) {
  const auto optimizer = [](const std::string& text) {
    v1::JobSpec spec = FromText<v1::JobSpec>(kGood);
    *spec.mutable_optimizer() = FromText<v1::Optimizer>(text);
    return CheckJob(spec).value().spec.optimizer();
  };
  EXPECT_EQ(optimizer("adagrad {}").adagrad().initial_accumulator_value(), 0.1f);
  EXPECT_EQ(optimizer("adagrad {}").adagrad().epsilon(), 1e-7f);
  EXPECT_EQ(optimizer("rmsprop {}").rmsprop().rho(), 0.9f);
  EXPECT_EQ(optimizer("rmsprop {}").rmsprop().epsilon(), 1e-7f);
  EXPECT_EQ(optimizer("adam {}").adam().beta_1(), 0.9f);
  EXPECT_EQ(optimizer("adam {}").adam().beta_2(), 0.999f);
  EXPECT_EQ(optimizer("adam {}").adam().epsilon(), 1e-7f);
  EXPECT_EQ(optimizer("adamw {}").adamw().weight_decay(), 0.004f);
  EXPECT_EQ(optimizer("adamw {}").learning_rate(), 0.001f);
  EXPECT_EQ(optimizer("adam { beta_1: 0 } learning_rate: 0.5").adam().beta_1(), 0.0f);
  EXPECT_EQ(optimizer("adam {} learning_rate: 0.5").learning_rate(), 0.5f);
}

TEST(JobCheck, GivenFieldsAreKept) {
  const CheckedJob job = CheckJob(With(R"(name: "a-b_c.1" batch_size: 64 epochs: 5 replicas: 4 partition_bytes: 65536
      metrics { kind: TOP_K_ACCURACY k: 2 } strategy: PARAMETER_SERVER staleness_bound: 0 wire_dtype: BFLOAT16
      data { shuffle: false cache_mib: 7 } min_workers: 2 max_workers: 3)"))
                             .value();
  EXPECT_EQ(job.spec.batch_size(), 64);
  EXPECT_EQ(job.spec.replicas(), 4);
  EXPECT_EQ(job.spec.partition_bytes(), 65536);
  EXPECT_TRUE(job.spec.has_staleness_bound());
  EXPECT_EQ(job.spec.wire_dtype(), v1::BFLOAT16);
  EXPECT_FALSE(job.spec.data().shuffle());
  EXPECT_EQ(job.spec.data().cache_mib(), 7);
}

TEST(JobCheck, MirroredRunsOnOneWorker) {
  EXPECT_EQ(CheckJob(With("strategy: MIRRORED replicas: 2")).value().spec.max_workers(), 1);
  ExpectRefused(
      With("strategy: MIRRORED min_workers: 2"),
      "min_workers: more than 1, but strategy MIRRORED runs on one worker; use 1, or strategy MULTI_WORKER_MIRRORED");
}

TEST(JobCheck, EachWrongFieldIsNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"name: 'a b'", "name: it may have letters, digits, '-', '_' and '.', at most 63; choose another"},
      {"name: '" + std::string(64, 'a') + "'",
       "name: it may have letters, digits, '-', '_' and '.', at most 63; choose another"},
      {"name: '2026'", "name: \"2026\" would be taken for a job's number; put a letter before it"},
      {"name: '-a'", "name: \"-a\" would be taken for a flag; put a letter before it"},
      {"optimizer { learning_rate: -1 }", "optimizer.learning_rate: -1 is not positive; use a number such as 0.01"},
      {"optimizer { learning_rate: 0 }", "optimizer.learning_rate: 0 is not positive; use a number such as 0.01"},
      {"optimizer { learning_rate: nan }", "optimizer.learning_rate: nan is not positive; use a number such as 0.01"},
      {"optimizer { learning_rate: inf }", "optimizer.learning_rate: inf is not finite; use a number such as 0.01"},
      {"optimizer { sgd { momentum: 1 } }", "optimizer.sgd.momentum: 1 is outside [0, 1); use a number such as 0.9"},
      {"optimizer { adam { beta_1: 1 } }", "optimizer.adam.beta_1: 1 is outside [0, 1); use a number such as 0.9"},
      {"optimizer { adam { beta_2: -0.5 } }",
       "optimizer.adam.beta_2: -0.5 is outside [0, 1); use a number such as 0.999"},
      {"optimizer { adamw { epsilon: 0 } }", "optimizer.adamw.epsilon: 0 is not positive; use a number such as 1e-07"},
      {"optimizer { adamw { weight_decay: -1 } }",
       "optimizer.adamw.weight_decay: -1 is negative or not finite; use a number such as 0.004"},
      {"optimizer { rmsprop { rho: 2 } }", "optimizer.rmsprop.rho: 2 is outside [0, 1); use a number such as 0.9"},
      {"optimizer { rmsprop { momentum: -1 } }",
       "optimizer.rmsprop.momentum: -1 is outside [0, 1); use a number such as 0.9"},
      {"optimizer { adagrad { initial_accumulator_value: -1 } }",
       "optimizer.adagrad.initial_accumulator_value: -1 is negative or not finite; use a number such as 0.1"},
      {"staleness_bound: 1",
       "staleness_bound: only for strategy PARAMETER_SERVER, not MULTI_WORKER_MIRRORED; leave it out or change the "
       "strategy"},
      {"strategy: PARAMETER_SERVER staleness_bound: -1",
       "staleness_bound: -1 is negative; use 0 or more, or leave it out for no bound"},
      {"batch_size: -32", "batch_size: -32 is not allowed; leave it out for 32, or give at least 1"},
      {"batch_size: 2000000000", "batch_size: 2000000000 is above the limit of 1048576; use a smaller one"},
      {"epochs: -1", "epochs: -1 is not allowed; leave it out for 1, or give at least 1"},
      {"replicas: -1", "replicas: -1 is not allowed; leave it out for one for each worker slot, or give at least 1"},
      {"replicas: 1025 batch_size: 4096", "replicas: 1025 is above the limit of 1024; use fewer"},
      {"replicas: 8 batch_size: 4",
       "batch_size: 4 is less than the 8 replicas that share each batch; use a larger batch_size or fewer replicas"},
      {"steps_per_epoch: -1",
       "steps_per_epoch: -1 is not allowed; leave it out for all batches of the data, or give at least 1"},
      {"validation_freq: -1", "validation_freq: -1 is not allowed; leave it out for 1, or give at least 1"},
      {"partition_bytes: 100",
       "partition_bytes: 100 is not a multiple of 64 within 64 .. 67108864; use 4194304 or leave it out"},
      {"partition_bytes: -64",
       "partition_bytes: -64 is not a multiple of 64 within 64 .. 67108864; use 4194304 or leave it out"},
      {"partition_bytes: 134217728",
       "partition_bytes: 134217728 is not a multiple of 64 within 64 .. 67108864; use 4194304 or leave it out"},
      {"threads_per_replica: -1", "threads_per_replica: -1 is not allowed; leave it out for 1, or give at least 1"},
      {"min_workers: -1", "min_workers: -1 is not allowed; leave it out for 1, or give at least 1"},
      {"max_workers: -1", "max_workers: -1 is negative; use 1 or more, or 0 for no limit"},
      {"min_workers: 3 max_workers: 2", "max_workers: 2 is less than min_workers 3; raise it or lower min_workers"},
      {"min_workers: 5 batch_size: 4",
       "min_workers: 5 is more than batch_size 4, so that some would have no work; use fewer, or a larger batch_size"},
      {"min_workers: 3 replicas: 2",
       "min_workers: 3 is more than the 2 replicas, so that some would have no work; use fewer, or more replicas"},
      {"data { validation_split: 1 }", "data.validation_split: 1 is outside [0, 1); use a share such as 0.1"},
      {"data { validation_split: nan }", "data.validation_split: nan is outside [0, 1); use a share such as 0.1"},
      {"data { test_split: -0.5 }", "data.test_split: -0.5 is outside [0, 1); use a share such as 0.1"},
      {"data { validation_split: 0.5 test_split: 0.5 }",
       "data.validation_split: with data.test_split it takes 1 of the examples and leaves none to train on; make their "
       "sum less than 1"},
      {"data { image_height: 5 }", "data.image_height: image_height and image_width go together; set both or none"},
      {"data { image_height: -5 image_width: 3 }",
       "data.image_height, image_width: -5 x 3 pixels are not within 1 .. 16384 each; use a size such as 128 x 128"},
      {"data { image_height: 5 image_width: 3 }",
       "data.image_height: pictures are resized to 5 x 3, but the model's input is [4]; make them equal, or leave "
       "image_height and "
       "image_width out"},
      {"data { format: IMAGE_FOLDER }",
       "model.layers[0].input.shape: [4] cannot hold pictures; use [height, width, 3], or 1 for grey ones"},
      {"data { cache_mib: -1 }", "data.cache_mib: -1 is not allowed; leave it out for 1024, or give at least 1"},
      {"metrics {}",
       "metrics[0].kind: missing or not known; use ACCURACY, TOP_K_ACCURACY, MEAN_ABSOLUTE_ERROR, AUC, say"},
      {"metrics { kind: ACCURACY k: 3 }", "metrics[0].k: only for TOP_K_ACCURACY, PRECISION and RECALL; leave it out"},
      {"metrics { kind: ACCURACY } metrics { kind: TOP_K_ACCURACY }",
       "metrics[1].k: 5 is more than the model's 3 outputs; use a smaller k"},
      {"metrics { kind: TOP_K_ACCURACY k: -1 }",
       "metrics[0].k: -1 is not allowed; leave it out for 5, or give at least 1"},
      {"model { layers { dropout { rate: 2 } } }",
       "layer \"dropout\": rate 2 is outside [0, 1); use a number such as 0.5"},
      {"model { layers { dense { units: 1 activation: SIGMOID } } }",
       "loss.kind: SPARSE_CATEGORICAL_CROSSENTROPY needs one output for each class, but layer \"dense_1\" has 1; use "
       "BINARY_CROSSENTROPY for two classes, or more units"},
  };
  for (const auto& [change, message] : cases) {
    SCOPED_TRACE(change);
    ExpectRefused(With(change), message);
  }
}

TEST(JobCheck, WhatIsMissing) {
  v1::JobSpec spec = FromText<v1::JobSpec>(kGood);
  spec.clear_model();
  ExpectRefused(
      spec,
      "model.layers: empty; begin with an input layer, such as { input { shape: [28, 28, 1] } }, or give --model FILE, "
      "also to a job that resumes");
  spec = FromText<v1::JobSpec>(kGood);
  spec.clear_data();
  ExpectRefused(spec, "data.path: missing; give the file or directory as the workers see it");
  spec = FromText<v1::JobSpec>(kGood);
  spec.clear_loss();
  ExpectRefused(spec, "loss.kind: missing; use SPARSE_CATEGORICAL_CROSSENTROPY for classes, say");
  spec = FromText<v1::JobSpec>(kGood);
  spec.clear_optimizer();
  ExpectRefused(spec, "optimizer: missing; use optimizer { adam {} }, say");
  spec = FromText<v1::JobSpec>(kGood);
  spec.mutable_model()->mutable_layers(1)->mutable_activation()->set_activation(v1::SOFTMAX);
  ExpectRefused(spec, "model.layers: no layer has anything to train; add a dense or conv2d layer");
  spec = FromText<v1::JobSpec>(kGood);
  for (v1::Layer& layer : *spec.mutable_model()->mutable_layers()) layer.set_trainable(false);
  ExpectRefused(
      spec,
      "model.layers: nothing is trained; leave `trainable: false` out at one layer with variables, such as the last");
  spec = FromText<v1::JobSpec>(kGood);
  spec.mutable_model()->mutable_layers(0)->mutable_input()->add_shape(2);
  ExpectRefused(
      spec,
      "layer \"dense\": the model's output is [4,3], but an example has one label; say in data.targets what the "
      "model is to give, as targets { input_itself: true }, or put a flatten or global_average_pooling2d "
      "before the output");
  ExpectRefused(
      v1::JobSpec(),
      "model.layers: empty; begin with an input layer, such as { input { shape: [28, 28, 1] } }, or give --model FILE, "
      "also to a job that resumes");
}

// Masked steps are left out of loss and metrics: means are taken over the steps that count.
TEST(JobCheck, MaskedStepsOfTheOutput) {
  const auto job = [](const std::string& last, const std::string& fields) {
    v1::JobSpec spec = FromText<v1::JobSpec>(kGood);
    spec.clear_metrics();
    google::protobuf::TextFormat::MergeFromString(fields, &spec);
    *spec.mutable_model() = FromText<v1::Model>("layers { input { shape: [6, 4] } } layers { masking {} } " + last);
    return spec;
  };
  const std::string dense = "layers { dense { units: 3 activation: SOFTMAX } }",
                    steps = "layers { lstm { units: 4 return_sequences: true } } " + dense,
                    targets = "data { targets { feature: 'y' shape: 6 } } ";
  const std::string accuracy = "metrics { kind: ACCURACY } metrics { kind: AUC }";
  const auto one = CheckJob(job("layers { lstm { units: 4 } } " + dense, accuracy));
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->spec.metrics(0).average(), v1::Metric::AVERAGE_UNSPECIFIED);
  const auto all = CheckJob(job(steps, targets + accuracy));
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->spec.metrics(0).average(), v1::Metric::MICRO);
  EXPECT_EQ(MetricSumCount(all->spec.metrics(0)), 2);
  EXPECT_EQ(all->spec.metrics(1).average(), v1::Metric::AVERAGE_UNSPECIFIED);
  EXPECT_TRUE(CheckJob(all->spec).ok());  // what was filled in is accepted again
  ExpectRefused(job(steps, targets + "metrics { kind: ACCURACY average: MACRO }"),
                "metrics[0].average: of layer \"dense\", which has masked steps, it is MICRO; leave it out");
  ExpectRefused(job(steps, targets + "loss { kind: DICE axis: [1, 2] }"),
                "loss.kind: DICE takes an example as a whole, but layer \"dense\" has masked steps; use a loss of each "
                "step, or remove the mask");
}

TEST(JobCheck, UnknownEnumNumbers) {
  v1::JobSpec spec = FromText<v1::JobSpec>(kGood);
  spec.mutable_loss()->set_kind(static_cast<v1::Loss::Kind>(50));
  ExpectRefused(
      spec,
      "loss.kind: 50 is not known; use SPARSE_CATEGORICAL_CROSSENTROPY, CATEGORICAL_CROSSENTROPY, "
      "BINARY_CROSSENTROPY, MEAN_SQUARED_ERROR, MEAN_ABSOLUTE_ERROR, MEAN_ABSOLUTE_PERCENTAGE_ERROR, "
      "MEAN_SQUARED_LOGARITHMIC_ERROR, HUBER, LOG_COSH, KL_DIVERGENCE, POISSON, HINGE, SQUARED_HINGE, "
      "CATEGORICAL_HINGE, COSINE_SIMILARITY, BINARY_FOCAL_CROSSENTROPY, CATEGORICAL_FOCAL_CROSSENTROPY, DICE, "
      "TVERSKY, CATEGORICAL_GENERALIZED_CROSS_ENTROPY, CTC or CIRCLE");
  spec = FromText<v1::JobSpec>(kGood);
  spec.set_strategy(static_cast<v1::Strategy>(50));
  ExpectRefused(spec,
                "strategy: 50 is not known; use MIRRORED, MULTI_WORKER_MIRRORED, CENTRAL_STORAGE or PARAMETER_SERVER");
  spec = FromText<v1::JobSpec>(kGood);
  spec.set_durability(static_cast<v1::Durability>(50));
  ExpectRefused(spec, "durability: 50 is not known; use LOGGED, SNAPSHOT, REPLICATED or LOGGED_AND_REPLICATED");
  spec = FromText<v1::JobSpec>(kGood);
  spec.set_wire_dtype(static_cast<v1::DataType>(50));
  ExpectRefused(spec, "wire_dtype: 50 is not known; use FLOAT32, BFLOAT16, FLOAT16, INT8, INT4 or INT2");
  spec = FromText<v1::JobSpec>(kGood);
  spec.set_compute_dtype(v1::INT4);
  ExpectRefused(spec, "compute_dtype: INT4 is not a type to compute with; use FLOAT32, BFLOAT16 or FLOAT16");
  spec = FromText<v1::JobSpec>(kGood);
  spec.set_values_wire_dtype(v1::INT4);
  ExpectRefused(spec,
                "values_wire_dtype: INT4 is not a type of values; use FLOAT32, BFLOAT16, FLOAT16 or INT8, or leave it "
                "out");
  spec.set_values_wire_dtype(static_cast<v1::DataType>(50));
  ExpectRefused(spec,
                "values_wire_dtype: 50 is not a type of values; use FLOAT32, BFLOAT16, FLOAT16 or INT8, or leave it "
                "out");
  spec = FromText<v1::JobSpec>(kGood);
  spec.mutable_data()->set_format(static_cast<v1::Data::Format>(50));
  ExpectRefused(spec,
                "data.format: 50 is not known; use IDX, CIFAR10, IMAGE_FOLDER, CSV, TFRECORD, TEXT_FOLDER, or AUTO");
}

TEST(JobCheck, Warnings) {
  const auto warnings = [](v1::Activation activation, const std::string& change) {
    v1::JobSpec spec = With(change);
    spec.mutable_model()->mutable_layers(1)->mutable_dense()->set_activation(activation);
    return CheckJob(spec).value().warnings;
  };
  using testing::ElementsAre;
  using testing::IsEmpty;
  EXPECT_THAT(
      warnings(v1::LINEAR, ""),
      ElementsAre(
          "loss.kind: SPARSE_CATEGORICAL_CROSSENTROPY takes probabilities, but the last layer \"dense\" does not "
          "end in softmax; give it activation: SOFTMAX, or set loss.from_logits: true"));
  EXPECT_THAT(
      warnings(v1::SOFTMAX, "loss { from_logits: true }"),
      ElementsAre(
          "loss.from_logits: true, but the last layer \"dense\" ends in softmax, so its outputs are not logits; set "
          "from_logits: false or remove the activation"));
  EXPECT_THAT(
      warnings(v1::SOFTMAX, "loss { kind: BINARY_CROSSENTROPY }"),
      ElementsAre("loss.kind: BINARY_CROSSENTROPY takes probabilities, but the last layer \"dense\" does not end in "
                  "sigmoid; give it activation: SIGMOID"));
  EXPECT_THAT(warnings(v1::LINEAR, "loss { kind: MEAN_SQUARED_ERROR from_logits: true }"),
              ElementsAre("loss.from_logits: it has no meaning for MEAN_SQUARED_ERROR"));
  EXPECT_THAT(warnings(v1::SOFTMAX, "optimizer { sgd { nesterov: true } }"),
              ElementsAre("optimizer.sgd.nesterov: it has no effect without momentum; set momentum: 0.9, say"));
  EXPECT_THAT(warnings(v1::LINEAR, "loss { from_logits: true }"), IsEmpty());
  EXPECT_THAT(warnings(v1::SIGMOID, "loss { kind: BINARY_CROSSENTROPY }"), IsEmpty());
  EXPECT_THAT(warnings(v1::RELU, "loss { kind: MEAN_SQUARED_ERROR }"), IsEmpty());
}

TEST(JobCheck, ACheckedJobPassesAgainUnchanged) {
  const v1::JobSpec once = CheckJob(With("strategy: MIRRORED metrics { kind: TOP_K_ACCURACY k: 3 }")).value().spec;
  EXPECT_EQ(CheckJob(once).value().spec.SerializeAsString(), once.SerializeAsString());
}

TEST(MetricName, AndValue) {
  const v1::JobSpec spec = FromText<v1::JobSpec>(R"(metrics { kind: ACCURACY } metrics { kind: TOP_K_ACCURACY }
      metrics { kind: TOP_K_ACCURACY k: 3 } metrics { kind: MEAN_ABSOLUTE_ERROR } metrics { kind: ROOT_MEAN_SQUARED_ERROR })");
  EXPECT_EQ(MetricName(spec, 0), "accuracy");
  EXPECT_EQ(MetricName(spec, 1), "top_5_accuracy");
  EXPECT_EQ(MetricName(spec, 2), "top_3_accuracy");
  EXPECT_EQ(MetricName(spec, 3), "mean_absolute_error");
  EXPECT_EQ(MetricName(spec, 4), "root_mean_squared_error");
  const v1::MetricSums sums = FromText<v1::MetricSums>("examples: 4 metrics: [3, 4, 4, 2, 36]");
  EXPECT_DOUBLE_EQ(MetricValue(spec, 0, sums), 0.75);
  EXPECT_DOUBLE_EQ(MetricValue(spec, 3, sums), 0.5);
  EXPECT_DOUBLE_EQ(MetricValue(spec, 4, sums), 3);
  EXPECT_TRUE(std::isnan(MetricValue(spec, 0, v1::MetricSums())));
}

}  // namespace
}  // namespace cairn
