// Goal: targets of any shape and weights of examples are read from CSV columns, records and pictures, from each split;
// an autoencoder's target is its augmented, rescaled input; what cannot be read is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/data/augment.h"
#include "common/data/input_target.h"
#include "common/data/tf_example.h"
#include "tests/unit/data/data_files.h"
#include "tests/unit/data/open_dataset.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;

v1::Data DataOf(const std::string& path, const std::string& text) {
  v1::Data data = FromText<v1::Data>(text);
  data.set_path(path);
  return data;
}

// ---- CSV ----

TEST(Targets, ColumnsOfCsvInTheOrderThatIsAskedFor) {
  TempFolder dir;
  WriteFile(dir / "train.csv", "a,y2,b,w,y1\n1,2,3,0.5,4\n5,6,7,2,8\n9,10,11,0,12\n");
  WriteFile(dir / "test.csv", "a,y2,b,w,y1\n0,1,2,3,4\n");
  const auto dataset =
      OpenDataset(DataOf(dir.path(), "targets { columns: ['y1', '1'] shape: 2 } weight_column: 'w'"), {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->label_size(), 2);
  EXPECT_EQ((*dataset)->info().classes(), 0);
  ASSERT_TRUE((*dataset)->weighted());
  const Read second = ReadOne(**dataset, v1::TRAIN, 1);
  EXPECT_THAT(second.example, ElementsAre(5, 7));
  EXPECT_THAT(second.target, ElementsAre(8, 6));
  EXPECT_EQ((*dataset)->Weight(v1::TRAIN, 0), 0.5f);
  EXPECT_EQ((*dataset)->Weight(v1::TEST, 0), 3);
  EXPECT_THAT(ReadOne(**dataset, v1::TEST, 0).target, ElementsAre(4, 1));
}

TEST(Targets, SplitsTakeTheirTargetsAndWeightsAlong) {
  TempFolder dir;
  std::string text = "x,y,z,w\n";
  for (int i = 0; i < 20; ++i) text += absl::StrCat(i, ",", 2 * i, ",", 3 * i, ",", i, "\n");
  WriteFile(dir / "d.csv", text);
  const auto dataset = OpenDataset(
      DataOf(dir / "d.csv", "targets { columns: ['y', 'z'] shape: 2 } weight_column: 'w' validation_split: 0.3"), {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  for (const v1::Split split : {v1::TRAIN, v1::VALIDATION}) {
    for (int64_t i = 0; i < (*dataset)->size(split); ++i) {
      const Read r = ReadOne(**dataset, split, i);
      EXPECT_THAT(r.target, ElementsAre(2 * r.example[0], 3 * r.example[0]));
      EXPECT_EQ((*dataset)->Weight(split, i), r.example[0]);
    }
  }
  EXPECT_EQ((*dataset)->size(v1::VALIDATION), 6);
}

TEST(Targets, WeightsBesideALabel) {
  TempFolder dir;
  WriteFile(dir / "d.csv", "1,2,0.25,0\n3,4,4,1\n");
  const auto dataset = OpenDataset(DataOf(dir / "d.csv", "weight_column: '2'"), {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->info().classes(), 2);
  EXPECT_THAT(ReadOne(**dataset, v1::TRAIN, 1).example, ElementsAre(3, 4));
  EXPECT_EQ((*dataset)->Weight(v1::TRAIN, 1), 4);
}

TEST(Targets, BadColumnsAreNamed) {
  TempFolder dir;
  WriteFile(dir / "d.csv", "a,b,c\n1,2,3\n4,x,-1\n");
  const auto bad = [&](const std::string& text, const std::string& says) {
    ExpectError(OpenDataset(DataOf(dir / "d.csv", text), {}).status(), absl::StatusCode::kInvalidArgument, {says});
  };
  bad("targets { columns: 'q' shape: 1 }", "data.targets[0].columns[0]: ");
  bad("targets { columns: ['a', '0'] shape: 2 }", "data.targets[0].columns[1]: column 0 (\"a\")");
  bad("targets { columns: ['a', 'b', 'c'] shape: 3 }", "none is left as a feature");
  bad("targets { columns: 'b' shape: 1 }",
      "line 3, column 1 (\"b\"): \"x\" is not a number, as targets and weights are");
  bad("label_column: 'a' weight_column: 'a'", "data.weight_column: column 0 (\"a\")");
  bad("targets { feature: 'y' shape: 1 }", "data.targets[0].feature: only for format TFRECORD, not CSV");
  WriteFile(dir / "w.csv", "a,w,c\n1,2,3\n4,-1,1\n");
  ExpectError(OpenDataset(DataOf(dir / "w.csv", "weight_column: 'w'"), {}).status(), absl::StatusCode::kInvalidArgument,
              {"-1 is negative, and a weight is not"});
}

// ---- TFRecord ----

std::string Record(const std::vector<FeatureValue>& features) {
  std::string bytes;
  AppendRecord(WriteExample(features), &bytes);
  return bytes;
}
FeatureValue Floats(const std::string& name, const std::vector<float>& floats) {
  return {.name = name, .kind = FeatureKind::kFloats, .floats = floats};
}

TEST(Targets, FeaturesOfRecords) {
  TempFolder dir;
  const std::string bytes("\x01\x02\xff", 3);
  WriteFile(
      dir / "train.tfrecord",
      Record({Floats("x", {1, 2}), Floats("t", {3, 4, 5}), Floats("w", {0.5f})}) +
          Record(
              {Floats("x", {6, 7}), {.name = "t", .kind = FeatureKind::kInts, .ints = {8, 9, 10}}, Floats("w", {2})}) +
          Record({Floats("x", {6, 7}), {.name = "t", .kind = FeatureKind::kBytes, .bytes = bytes}, Floats("w", {0})}) +
          Record({Floats("x", {6, 7}), Floats("t", {1}), Floats("w", {0})}) +
          Record({Floats("x", {6, 7}), Floats("w", {0})}));
  const auto dataset =
      OpenDataset(DataOf(dir.path(), "targets { feature: 't' shape: [3, 1] } weight_column: 'w'"), {2});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->label_size(), 3);
  EXPECT_THAT(ReadOne(**dataset, v1::TRAIN, 0).target, ElementsAre(3, 4, 5));
  EXPECT_THAT(ReadOne(**dataset, v1::TRAIN, 1).target, ElementsAre(8, 9, 10));
  EXPECT_THAT(ReadOne(**dataset, v1::TRAIN, 2).target, ElementsAre(1, 2, 255));
  EXPECT_EQ((*dataset)->Weight(v1::TRAIN, 1), 2);
  std::vector<float> example(2), target(3);
  ExpectError((*dataset)->Read(v1::TRAIN, 3, example.data(), target.data()), absl::StatusCode::kDataLoss,
              {"record 3", "\"t\" has 1 numbers", "takes 3"});
  ExpectError((*dataset)->Read(v1::TRAIN, 4, example.data(), target.data()), absl::StatusCode::kDataLoss,
              {"record 4", "no feature \"t\""});
  WriteFile(dir / "bad.tfrecord", Record({Floats("x", {1, 2}), Floats("label", {0}), Floats("w", {-1})}));
  ExpectError(OpenDataset(DataOf(dir / "bad.tfrecord", "weight_column: 'w'"), {2}).status(),
              absl::StatusCode::kDataLoss, {"its weight \"w\" is -1"});
}

// ---- pictures ----

TEST(Targets, PicturesOfTheSameName) {
  TempFolder dir;
  WritePng(dir / "data/train/all/a.png", 4, 4, 1, Plain(4, 4, {10}));
  WritePng(dir / "data/train/all/b.png", 4, 4, 1, Plain(4, 4, {20}));
  WritePng(dir / "masks/train/all/a.png", 2, 2, 1, {0, 1, 2, 3});
  WritePng(dir / "masks/train/all/b.PNG", 2, 2, 1, {9, 9, 9, 9});
  const auto classes = OpenDataset(DataOf(dir / "data", "targets { pictures: '../masks' shape: [4, 4] }"), {4, 4, 1});
  ASSERT_TRUE(classes.ok()) << classes.status();
  EXPECT_THAT(ReadOne(**classes, v1::TRAIN, 0).target, ElementsAre(0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3))
      << "class numbers are not mixed";
  EXPECT_EQ((*classes)->info().classes(), 0);
  const auto numbers = OpenDataset(
      DataOf(dir / "data", absl::StrCat("targets { pictures: '", dir / "masks", "' shape: [2, 2, 1] }")), {4, 4, 1});
  ASSERT_TRUE(numbers.ok()) << numbers.status();
  EXPECT_THAT(ReadOne(**numbers, v1::TRAIN, 1).target, ElementsAre(9, 9, 9, 9));
  WritePng(dir / "data/train/all/c.png", 4, 4, 1, Plain(4, 4, {20}));
  ExpectError(OpenDataset(DataOf(dir / "data", "targets { pictures: '../masks' shape: [4, 4] }"), {4, 4, 1}).status(),
              absl::StatusCode::kNotFound, {"no picture train/all/c.png", "target of"});
  ExpectError(OpenDataset(DataOf(dir / "data", "targets { pictures: 'none' shape: [4, 4] }"), {4, 4, 1}).status(),
              absl::StatusCode::kNotFound, {"data.targets[0].pictures", "no such folder"});
}

// ---- the input itself ----

Graph GraphOf(const std::string& layers) {
  return Graph::Build(FromText<v1::Model>("layers { input { shape: [4, 4, 1] } } " + layers)).value();
}

TEST(Targets, TheInputAsTheModelSeesIt) {
  TempFolder dir;
  WritePng(dir / "all/a.png", 4, 4, 1, {0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120, 130, 140, 150});
  const v1::Data data = DataOf(dir.path(), "targets { input_itself: true shape: [4, 4, 1] }");
  const auto dataset = OpenDataset(data, {4, 4, 1});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const Graph graph =
      GraphOf("layers { rescaling { scale: 0.5 offset: -1 } } layers { conv2d { filters: 1 kernel_size: 1 } }");
  EXPECT_EQ(ScaleOfInput(graph).scale, 0.5f);
  EXPECT_EQ(ScaleOfInput(GraphOf("layers { conv2d { filters: 1 kernel_size: 1 } }")).scale, 1);
  const auto seen = WithTargets(*dataset, data, v1::Loss(), graph);
  EXPECT_EQ(seen->label_size(), 16);
  const Read r = ReadOne(*seen, v1::TRAIN, 0);
  for (size_t i = 0; i < 16; ++i) EXPECT_EQ(r.target[i], r.example[i] * 0.5f - 1);
  std::vector<uint8_t> bytes(16);
  std::vector<float> target(16);
  ASSERT_TRUE(seen->ReadBytes(v1::TRAIN, 0, bytes.data(), target.data()).ok());
  EXPECT_EQ(target, r.target);
  const v1::Data labels = DataOf(dir.path(), "");
  EXPECT_EQ(WithTargets(*dataset, labels, v1::Loss(), graph), *dataset);
}

TEST(Targets, BatchesOfTheAugmentedInput) {
  TempFolder dir;
  std::vector<uint8_t> pixels(16);
  for (size_t i = 0; i < 16; ++i) pixels[i] = static_cast<uint8_t>(i * 10);
  for (int i = 0; i < 8; ++i) WritePng(dir / absl::StrCat("all/", i, ".png"), 4, 4, 1, pixels);
  const v1::Data data =
      DataOf(dir.path(), "targets { input_itself: true } augmentation { random_brightness { factor: 0.3 } }");
  const auto dataset = OpenDataset(data, {4, 4, 1});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  BatchSourceOptions options;
  options.augmenter = Augmenter::Make(data, {4, 4, 1}, 1).value();
  options.input_target = InputScale{2, 1};
  BatchSource source(*dataset, StepPlan::Make(8, 4, 1, 0, 1), options);
  const auto batch = source.Get(0, ReplicaId(0));
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->label_size, 16);
  ASSERT_EQ(batch->labels.floats().size(), 64u);
  bool changed = false;
  for (size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(batch->labels.floats()[i], batch->inputs.floats()[i] * 2 + 1);
    changed |= batch->inputs.floats()[i] != static_cast<float>(pixels[i % 16]);
  }
  EXPECT_TRUE(changed) << "nothing was augmented";
}

TEST(Targets, WeightsStandBehindTheLabelsOfABatch) {
  TempFolder dir;
  std::string text = "x,y,w\n";
  for (int i = 0; i < 6; ++i) text += absl::StrCat(i, ",", i % 2, ",", i + 0.5, "\n");
  WriteFile(dir / "d.csv", text);
  const auto dataset = OpenDataset(DataOf(dir / "d.csv", "label_column: 'y' weight_column: 'w'"), {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  BatchSource source(*dataset, StepPlan::Make(6, 3, 1, 0, 1), {});
  const auto batch = source.Get(1, ReplicaId(0));
  ASSERT_TRUE(batch.ok()) << batch.status();
  const auto labels = batch->labels.floats();
  ASSERT_EQ(labels.size(), 6u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(labels[3 + i], batch->inputs.floats()[i] + 0.5f);
}

}  // namespace
}  // namespace cairn
