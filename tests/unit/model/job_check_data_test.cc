// Goal: a job that does not fit its data is refused before it starts, with both numbers in the sentence.
#include <gtest/gtest.h>

#include "common/model/job_check.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

v1::JobSpec Job(const std::string& shape, const std::string& units, const std::string& more) {
  return FromText<v1::JobSpec>("model { layers { input { shape: " + shape +
                               " } } layers { flatten {} } layers { dense { units: " + units +
                               " activation: SOFTMAX } } } data { path: 'mnist' } optimizer { adam {} } " + more);
}

const char kSparse[] = "loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY } ";
const char kMnist[] =
    "path: 'mnist' format: IDX train_examples: 100 test_examples: 10 example_shape: [28, 28, 1] classes: 10";

absl::Status Check(const v1::JobSpec& spec, const std::string& data) {
  return CheckJobAgainstData(CheckJob(spec).value(), FromText<v1::DataInfo>(data));
}

void ExpectRefused(const v1::JobSpec& spec, const std::string& data, const std::string& message) {
  const absl::Status status = Check(spec, data);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()), message);
}

TEST(JobCheckAgainstData, AJobThatFits) {
  EXPECT_TRUE(Check(Job("[28, 28, 1]", "10", kSparse), kMnist).ok());
  EXPECT_TRUE(Check(Job("[28, 28, 1]", "12", kSparse), kMnist).ok()) << "more outputs than classes are allowed";
  EXPECT_TRUE(Check(Job("[28, 28, 1]", "10", "loss { kind: CATEGORICAL_CROSSENTROPY }"), kMnist).ok());
  EXPECT_TRUE(Check(Job("[28, 28, 1]", "10", std::string(kSparse) + "steps_per_epoch: 4"), kMnist).ok());
  EXPECT_TRUE(Check(Job("[28, 28, 1]", "10", std::string(kSparse) + "batch_size: 100"), kMnist).ok());
}

TEST(JobCheckAgainstData, Shape) {
  ExpectRefused(
      Job("[32, 32, 3]", "10", kSparse), kMnist,
      "model.layers[0].input.shape: [32,32,3], but the examples of mnist are [28,28,1]; set the shape to [28,28,1]");
  ExpectRefused(
      Job("784", "10", kSparse), kMnist,
      "model.layers[0].input.shape: [784], but the examples of mnist are [28,28,1]; set the shape to [28,28,1] and add "
      "a flatten layer");
}

// The model's input may be narrowed by the fields.
TEST(JobCheckAgainstData, ImageSizesThatTheDataDoNotHave) {
  v1::JobSpec job = Job("[32, 30, 1]", "10", kSparse);
  job.MergeFrom(FromText<v1::JobSpec>("data { image_height: 32 image_width: 30 }"));
  ExpectRefused(job, kMnist,
                "data.image_height: 32 x 30, as the model's input [32,30,1], but the examples of mnist are [28,28,1]; "
                "set image_height and image_width to that");
  job = Job("[28, 28, 3]", "10", kSparse);
  job.MergeFrom(FromText<v1::JobSpec>("data { image_height: 28 image_width: 28 }"));
  ExpectRefused(job, kMnist,
                "data.image_height: 28 x 28, as the model's input [28,28,3], but the examples of mnist are [28,28,1]; "
                "leave image_height and image_width out, and set the input's shape to that");
}

// Examples of another size, of which a crop makes the model's input.
TEST(JobCheckAgainstData, ExamplesAreCropped) {
  v1::JobSpec job = Job("[24, 24, 1]", "10", kSparse);
  job.MergeFrom(FromText<v1::JobSpec>(
      "data { augmentation { random_crop { height: 24 width: 24 } } image_width: 28 image_height: 28 }"));
  EXPECT_TRUE(Check(job, kMnist).ok());
  job.mutable_data()->set_image_height(30);
  ExpectRefused(
      job, kMnist,
      "data.image_height: 30 x 28, but the examples of mnist are [28,28,1]; set image_height and image_width to that");
}

TEST(JobCheckAgainstData, PicturesAreResized) {
  const std::string folder =
      "path: 'beans' format: IMAGE_FOLDER train_examples: 100 example_shape: [500, 500, 3] classes: 3";
  EXPECT_TRUE(Check(Job("[128, 128, 3]", "3", kSparse), folder).ok());
  EXPECT_TRUE(Check(Job("[64, 32, 1]", "3", kSparse), folder).ok());
  EXPECT_FALSE(Check(Job("[64, 32, 4]", "3", kSparse), folder).ok());
  EXPECT_FALSE(Check(Job("784", "3", kSparse), folder).ok());
}

TEST(JobCheckAgainstData, Labels) {
  ExpectRefused(Job("[28, 28, 1]", "5", kSparse), kMnist,
                "layer \"dense\": 5 outputs, but mnist has 10 classes; set units: 10");
  const std::string numbers = "path: 'mnist' train_examples: 100 example_shape: [28, 28, 1] classes: 0";
  ExpectRefused(
      Job("[28, 28, 1]", "5", kSparse), numbers,
      "loss.kind: SPARSE_CATEGORICAL_CROSSENTROPY needs class numbers, but the labels of mnist are plain numbers; mend "
      "them, use MEAN_SQUARED_ERROR, or another data.label_column");
  ExpectRefused(
      Job("[28, 28, 1]", "5", kSparse),
      numbers + " format: TFRECORD deciding_label: 'a.tfrecord: record 3 has label -1'",
      "loss.kind: SPARSE_CATEGORICAL_CROSSENTROPY needs class numbers, but the labels of mnist are plain numbers "
      "(a.tfrecord: record 3 has label -1); mend them, use MEAN_SQUARED_ERROR, or name another feature in "
      "data.tfrecord.label");
  ExpectRefused(
      Job("[28, 28, 1]", "5", kSparse), std::string(kMnist) + " deciding_label: 'a.csv: line 3 has label 9'",
      "layer \"dense\": 5 outputs, but mnist has 10 classes (a.csv: line 3 has label 9); set units: 10, or mend "
      "the label");
  ExpectRefused(Job("[28, 28, 1]", "5", "loss { kind: MEAN_SQUARED_ERROR }"), numbers,
                "layer \"dense\": 5 outputs, but mnist has one label an example, and MEAN_SQUARED_ERROR needs one for "
                "each output; "
                "use one output, or SPARSE_CATEGORICAL_CROSSENTROPY for classes");
  EXPECT_TRUE(Check(Job("[28, 28, 1]", "1", "loss { kind: MEAN_SQUARED_ERROR }"), numbers).ok());
  // Classes named by text are numbered in sorted order: these numbers are nothing to train on.
  ExpectRefused(Job("[28, 28, 1]", "1", "loss { kind: MEAN_SQUARED_ERROR }"),
                "path: 'a.csv' format: CSV train_examples: 100 example_shape: [28, 28, 1] classes: 3 class_names: '12' "
                "class_names: '7' class_names: 'x' deciding_label: 'a.csv: line 3 has label x'",
                "loss.kind: MEAN_SQUARED_ERROR needs numbers, but the labels of a.csv are texts (a.csv: line 3 has "
                "label x); mend them, use SPARSE_CATEGORICAL_CROSSENTROPY for classes, or another data.label_column");
  ExpectRefused(Job("[28, 28, 1]", "1", "loss { kind: BINARY_CROSSENTROPY }"), kMnist,
                "loss.kind: BINARY_CROSSENTROPY tells two classes apart, but mnist has 10; use "
                "SPARSE_CATEGORICAL_CROSSENTROPY and "
                "a last layer of 10 outputs");
  EXPECT_TRUE(Check(Job("[28, 28, 1]", "1", "loss { kind: BINARY_CROSSENTROPY }"),
                    "train_examples: 100 example_shape: [28, 28, 1] classes: 2")
                  .ok());
}

TEST(JobCheckAgainstData, Counts) {
  ExpectRefused(Job("[28, 28, 1]", "10", std::string(kSparse) + "batch_size: 101"), kMnist,
                "batch_size: 101 is more than the 100 training examples of mnist; use a smaller one");
  EXPECT_TRUE(Check(Job("[28, 28, 1]", "10", std::string(kSparse) + "steps_per_epoch: 5"), kMnist).ok())
      << "repeats the data";
  ExpectRefused(
      Job("[28, 28, 1]", "10", kSparse), "path: 'mnist' test_examples: 10 example_shape: [28, 28, 1] classes: 10",
      "data.path: mnist has no training examples; check the path, and lower data.validation_split and data.test_split");
}

}  // namespace
}  // namespace cairn
