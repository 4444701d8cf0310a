// Goal: a job's targets, losses and metrics are checked at submission: the target's shape is filled in from output and
// loss; what does not fit, or would be passed over, is refused by the field's name.
#include "common/model/target_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/model/job_check.h"
#include "common/model/metric_sums.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A model of [8, 8, 1] pictures whose output is [8, 8, units], or with flatten a row.
v1::JobSpec Job(const std::string& last, const std::string& loss, const std::string& rest) {
  const std::string job =
      "model { layers { input { shape: [8, 8, 1] } } layers { conv2d { filters: 2 kernel_size: 3 padding: SAME } } " +
      last + " } loss { " + loss + " } optimizer { adam {} } data { path: '/d' }";
  return ChangedJob(job, rest);
}
const char kPixels[] = "layers { conv2d { filters: 1 kernel_size: 1 } }";
const char kClasses[] = "layers { conv2d { filters: 3 kernel_size: 1 activation: SOFTMAX } }";
const char kRow[] = "layers { flatten {} } layers { dense { units: 3 } }";

absl::StatusOr<CheckedJob> Check(const v1::JobSpec& spec) { return CheckJob(spec); }

void ExpectRefused(const v1::JobSpec& spec, const std::string& says) {
  const absl::Status status = Check(spec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(says));
}

TEST(TargetCheck, TheShapeComesFromOutputAndLoss) {
  const auto shape = [](const v1::JobSpec& spec) {
    const auto job = Check(spec);
    EXPECT_TRUE(job.ok()) << job.status();
    if (!job.ok()) return std::vector<int32_t>{};
    const auto again = CheckJob(job->spec);
    EXPECT_TRUE(again.ok()) << again.status() << ": a checked job is a good one";
    EXPECT_EQ(job->spec.data().label_column(), "");
    const auto& dims = job->spec.data().targets(0).shape();
    return std::vector<int32_t>(dims.begin(), dims.end());
  };
  EXPECT_THAT(shape(Job(kPixels, "kind: MEAN_SQUARED_ERROR", "data { targets { input_itself: true } }")),
              ElementsAre(8, 8, 1));
  EXPECT_THAT(shape(Job(kClasses, "kind: SPARSE_CATEGORICAL_CROSSENTROPY", "data { targets { pictures: 'm' } }")),
              ElementsAre(8, 8));
  EXPECT_THAT(shape(Job(kRow, "kind: MEAN_SQUARED_ERROR", "data { targets { columns: ['a', 'b', 'c'] } }")),
              ElementsAre(3));
  EXPECT_THAT(
      shape(Job(kRow, "kind: SPARSE_CATEGORICAL_CROSSENTROPY from_logits: true", "data { targets { feature: 'y' } }")),
      ElementsAre(1));
}

TEST(TargetCheck, WhatDoesNotFitIsRefused) {
  const std::string mse = "kind: MEAN_SQUARED_ERROR";
  const auto bad = [&](const char* last, const std::string& data, const std::string& says) {
    SCOPED_TRACE(data);
    ExpectRefused(Job(last, mse, "data { " + data + " }"), says);
  };
  bad(kPixels, "", "the model's output is [8,8,1], but an example has one label; say in data.targets");
  bad(kPixels, "targets {}", "data.targets[0]: names no source");
  bad(kPixels, "targets { input_itself: true feature: 'x' }", "names several sources");
  bad(kPixels, "targets { input_itself: true } targets { input_itself: true }", "data.targets: 2 of them");
  bad(kPixels, "targets { input_itself: true output: 'q' }", "data.targets[0].output: \"q\"");
  bad(kPixels, "targets { input_itself: true } label_column: 'a'", "data.label_column: \"a\"");
  bad(kPixels, "targets { feature: 'y' } tfrecord { label: 'a' }", "data.tfrecord.label: \"a\"");
  bad(kPixels, "targets { feature: 'x' } tfrecord { input: 'x' }", "is the input too");
  bad(kPixels, "targets { feature: 'y' } format: CSV", "only for format TFRECORD, not CSV");
  bad(kPixels, "targets { input_itself: true shape: 4 }", "has 4 numbers, but layer");
  bad(kPixels, "targets { input_itself: true shape: -64 }", "data.targets[0].shape");
  bad(kRow, "targets { input_itself: true }", "end the model in the input's shape");
  bad(kRow, "targets { pictures: 'm' }", "end the model in a picture");
  bad(kRow, "targets { columns: 'a' }", "1 of them, but layer");
  bad(kPixels, "targets { pictures: 'm' } augmentation { random_flip {} }", "moves pixels of the example");
  bad(kRow, "weight_column: 'w' format: IDX", "data.weight_column: only for formats CSV and TFRECORD");
  EXPECT_TRUE(Check(Job(kPixels, mse, "data { targets { input_itself: true } augmentation { random_flip {} } }")).ok());
  EXPECT_TRUE(
      Check(Job(kPixels, mse, "data { targets { pictures: 'm' } augmentation { random_contrast { factor: 0.1 } } }"))
          .ok());
}

TEST(TargetCheck, AgainstTheData) {
  const auto job = Check(Job(kPixels, "kind: MEAN_SQUARED_ERROR", "data { targets { pictures: 'm' } }"));
  ASSERT_TRUE(job.ok()) << job.status();
  v1::DataInfo info =
      FromText<v1::DataInfo>("path: '/d' format: IDX train_examples: 100 example_shape: [8, 8, 1] classes: 10");
  EXPECT_THAT(std::string(CheckJobAgainstData(*job, info).message()),
              HasSubstr("data.targets[0].pictures: only for format IMAGE_FOLDER, not IDX"));
  info.set_format(v1::Data::IMAGE_FOLDER);
  EXPECT_TRUE(CheckJobAgainstData(*job, info).ok()) << CheckJobAgainstData(*job, info);
}

// ---- losses ----

TEST(LossCheck, NumbersOfOtherKindsAreRefusedAndDefaultsFilledIn) {
  const auto bad = [](const std::string& loss, const std::string& says) {
    SCOPED_TRACE(loss);
    ExpectRefused(Job(kRow, loss, ""), says);
  };
  bad("kind: MEAN_SQUARED_ERROR delta: 1", "loss.delta: only for HUBER, not MEAN_SQUARED_ERROR");
  bad("kind: HUBER delta: 0", "loss.delta: 0 is outside");
  bad("kind: HUBER alpha: 0.5", "loss.alpha: only for");
  bad("kind: TVERSKY gamma: 2", "loss.gamma: only for");
  bad("kind: CATEGORICAL_GENERALIZED_CROSS_ENTROPY q: 2", "loss.q: 2 is outside");
  bad("kind: HUBER apply_class_balancing: true", "loss.apply_class_balancing: only for");
  bad("kind: CATEGORICAL_CROSSENTROPY ignore_class: 1", "loss.ignore_class: only for");
  bad("kind: DICE", "set axis: [1]");
  bad("kind: HUBER axis: 1", "loss.axis: only for");
  bad("kind: COSINE_SIMILARITY axis: 0", "computed over the last axis");
  bad("kind: HUBER label_smoothing: 0.1", "loss.label_smoothing: only for cross-entropies");
  const auto huber = Check(Job(kRow, "kind: HUBER", "data { targets { columns: ['a', 'b', 'c'] } }"));
  ASSERT_TRUE(huber.ok()) << huber.status();
  EXPECT_EQ(huber->spec.loss().delta(), 1);
  const auto tversky = Check(Job(kRow, "kind: TVERSKY axis: -1", "data { targets { columns: ['a', 'b', 'c'] } }"));
  ASSERT_TRUE(tversky.ok()) << tversky.status();
  EXPECT_EQ(tversky->spec.loss().alpha(), 0.5f);
}

// ---- metrics ----

TEST(MetricCheck, FieldsOfOtherKindsAreRefused) {
  const auto bad = [](const std::string& metric, const std::string& says) {
    SCOPED_TRACE(metric);
    ExpectRefused(Job(kRow, "kind: SPARSE_CATEGORICAL_CROSSENTROPY from_logits: true", "metrics { " + metric + " }"),
                  says);
  };
  bad("kind: AUC threshold: 0.5", "metrics[0].threshold: only for");
  bad("kind: ACCURACY curve: PR", "metrics[0].curve: only for AUC");
  bad("kind: AUC num_thresholds: 1", "metrics[0].num_thresholds: 1 is not within 2 .. ");
  bad("kind: PRECISION_AT_RECALL", "metrics[0].value: missing");
  bad("kind: PRECISION_AT_RECALL value: 2", "metrics[0].value: 2 is outside [0, 1]");
  bad("kind: F1_SCORE", "metrics[0].average: missing");
  bad("kind: FBETA_SCORE average: MACRO beta: 0", "metrics[0].beta: 0 is not positive");
  bad("kind: MEAN_IOU num_classes: 4", "metrics[0].num_classes: 4, but the model has 3 outputs");
  bad("kind: IOU", "metrics[0].target_class_ids: missing");
  bad("kind: IOU target_class_ids: 3", "metrics[0].target_class_ids: 3 is not one of the classes 0 .. 2");
  bad("kind: PRECISION class_id: 3", "metrics[0].class_id: 3 is not one of the model's outputs 0 .. 2");
  bad("kind: AUC name: 'val_x'", "metrics[0].name:");
  for (const char* units : {"166", "1431655766", "2147483647"}) {
    SCOPED_TRACE(units);
    ExpectRefused(
        Job(absl::StrCat("layers { global_average_pooling2d {} } layers { name: 'last' dense { units: ", units, " } }"),
            "kind: SPARSE_CATEGORICAL_CROSSENTROPY from_logits: true", "metrics { kind: MEAN_IOU }"),
        absl::StrCat("metrics[0].kind: MEAN_IOU has three sums for each of the ", units, " outputs of layer \"last\""));
  }
  bad("kind: AUC } metrics { kind: AUC curve: PR", "metrics[1]: with the ones before it, it is made of 800 sums");
}

TEST(MetricCheck, NamesAndSums) {
  const auto job =
      Check(Job(kRow, "kind: SPARSE_CATEGORICAL_CROSSENTROPY from_logits: true",
                "metrics { kind: AUC } metrics { kind: MEAN_IOU } metrics { kind: F1_SCORE average: MACRO } "
                "metrics { kind: PRECISION name: 'p' } metrics { kind: LOG_COSH_ERROR } "
                "metrics { kind: R2_SCORE } metrics { kind: FALSE_POSITIVES }"));
  ASSERT_TRUE(job.ok()) << job.status();
  std::vector<std::string> names;
  std::vector<int> sums;
  for (int i = 0; i < job->spec.metrics_size(); ++i) {
    names.push_back(MetricName(job->spec, i));
    sums.push_back(MetricSumCount(job->spec.metrics(i)));
  }
  EXPECT_THAT(names, ElementsAre("auc", "mean_io_u", "f1_score", "p", "logcosh", "r2_score", "false_positives"));
  EXPECT_THAT(sums, ElementsAre(400, 9, 9, 2, 1, 10, 1));
  EXPECT_EQ(MetricSumCount(job->spec), 432);
  for (const char* more : {"auc", "val_mean_io_u", "p", "accuracy", "val_cosine_similarity"})
    EXPECT_TRUE(MoreIsBetter(job->spec, more)) << more;
  for (const char* less : {"loss", "val_loss", "logcosh", "false_positives"})
    EXPECT_FALSE(MoreIsBetter(job->spec, less)) << less;
}

}  // namespace
}  // namespace cairn
