// Goal: the data of a model with several inputs and outputs: columns and features go where data.inputs and data.targets
// put them, beside the label and the input itself; what is not named is not read; what is missing is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/crc32c.h"
#include "common/data/output_targets.h"
#include "common/data/tf_example.h"
#include "common/model/job_check.h"
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

constexpr char kTwo[] = R"(targets { output: "p" columns: ["p1", "1"] shape: 2 } targets { output: "k" shape: 1 }
                           inputs { input: "a" columns: ["z", "0"] } inputs { input: "b" columns: "y" } )";

TEST(OutputsData, ColumnsByInputAndOutput) {
  TempFolder dir;
  WriteFile(dir / "d.csv", "x,p0,note,y,p1,z,kind\n1,2,,3,4,5,red\n6,7,some text,8,9,10,blue\n");
  const auto dataset = OpenDataset(DataOf(dir / "d.csv", kTwo), {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->info().classes(), 2) << "the label is read beside the targets";
  EXPECT_THAT(ReadOne(**dataset, v1::TRAIN, 0).example, ElementsAre(5, 1, 3));
  EXPECT_THAT(ReadOne(**dataset, v1::TRAIN, 1).example, ElementsAre(10, 6, 8));
  EXPECT_THAT(ReadOne(**dataset, v1::TRAIN, 0).target, ElementsAre(4, 2, 1));
  EXPECT_THAT(ReadOne(**dataset, v1::TRAIN, 1).target, ElementsAre(9, 7, 0));
}

TEST(OutputsData, MissingAndDoubleColumnsAreRefused) {
  TempFolder dir;
  WriteFile(dir / "d.csv", "x,p0,y,p1,kind\n1,2,3,4,0\n6,7,8,9,1\n");
  const auto bad = [&](const std::string& text, std::vector<std::string> says) {
    ExpectError(OpenDataset(DataOf(dir / "d.csv", text), {}).status(), absl::StatusCode::kInvalidArgument, says);
  };
  bad(kTwo, {"data.inputs[0].columns[0]", "no column \"z\"", "x, p0, y, p1, kind"});
  bad("inputs { columns: ['x', 'x'] }", {"data.inputs[0].columns[1]", "named for something else too"});
  bad("inputs { columns: ['x', 'kind'] }", {"data.inputs[0].columns[1]", "\"kind\"", "named for something else too"});
  bad("targets { columns: 'p0' shape: 1 } targets { columns: 'p2' shape: 1 }",
      {"data.targets[1].columns[0]", "no column \"p2\""});
}

std::string Record(const std::vector<FeatureValue>& features) {
  std::string bytes;
  AppendRecord(WriteExample(features), &bytes);
  return bytes;
}
FeatureValue Floats(const std::string& name, std::vector<float> numbers) {
  return {.name = name, .kind = FeatureKind::kFloats, .floats = std::move(numbers)};
}

TEST(OutputsData, FeaturesByInputAndOutput) {
  TempFolder dir;
  const std::string first =
      Record({Floats("a", {1, 2}), Floats("b", {3}), Floats("s", {4, 5}), Floats("t", {6}), Floats("label", {2})});
  WriteFile(dir / "d.tfrecord", first + Record({Floats("a", {1}), Floats("b", {3}), Floats("s", {4, 5}),
                                                Floats("t", {6}), Floats("label", {1})}));
  WriteFile(dir / "short.tfrecord", first + Record({Floats("a", {1, 2}), Floats("label", {0})}));
  const std::string targets =
      "targets { feature: 't' shape: 1 } targets { shape: 1 } targets { feature: 's' shape: 2 }";
  const std::string inputs = "inputs { input: 'q' feature: 'b' } inputs { input: 'p' feature: 'a' }";
  const auto dataset = OpenDataset(DataOf(dir / "d.tfrecord", targets + inputs), {3});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT((*dataset)->input_sizes(), ElementsAre(1, 2));
  EXPECT_EQ((*dataset)->info().classes(), 3);
  EXPECT_THAT(ReadOne(**dataset, v1::TRAIN, 0).example, ElementsAre(3, 1, 2));
  EXPECT_THAT(ReadOne(**dataset, v1::TRAIN, 0).target, ElementsAre(6, 2, 4, 5));
  std::vector<float> example(3), target(4);
  EXPECT_THAT(std::string((*dataset)->Read(v1::TRAIN, 1, example.data(), target.data()).message()),
              ::testing::HasSubstr("its input \"a\" has 1 numbers"));
  ExpectError(OpenDataset(DataOf(dir / "short.tfrecord", targets + inputs), {3}).status(), absl::StatusCode::kDataLoss,
              {"record 1", "no feature \"b\""});
  ExpectError(OpenDataset(DataOf(dir / "d.tfrecord", targets + "inputs { feature: 'c' }"), {3}).status(),
              absl::StatusCode::kInvalidArgument, {"data.inputs[0].feature", "no feature \"c\"", "\"label\""});
}

// An autoencoder that also classifies: its own input is one target, the folder's class the other.
TEST(OutputsData, TheInputItselfBesideTheLabel) {
  TempFolder dir;
  WritePng(dir / "data/cat/a.png", 2, 2, 1, {0, 10, 20, 30});
  WritePng(dir / "data/dog/b.png", 2, 2, 1, {40, 50, 60, 70});
  const v1::JobSpec spec = FromText<v1::JobSpec>(R"(
    model { layers { name: "in" input { shape: [2, 2, 1] } } layers { name: "scaled" rescaling { scale: 0.5 offset: 1 } }
            layers { name: "same" conv2d { filters: 1 kernel_size: 1 } }
            layers { name: "flat" inputs: "scaled" flatten {} }
            layers { name: "kind" dense { units: 2 activation: SOFTMAX } } outputs: ["same", "kind"] }
    data { path: "x" targets { output: "same" input_itself: true } targets { output: "kind" } }
    outputs { output: "same" loss { kind: MEAN_SQUARED_ERROR } }
    outputs { output: "kind" loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY } } optimizer { sgd {} })");
  const auto job = CheckJob(spec);
  ASSERT_TRUE(job.ok()) << job.status();
  v1::Data data = job->spec.data();
  data.set_path(dir / "data");
  const auto opened = OpenDataset(data, {2, 2, 1});
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto dataset = WithJobTargets(*opened, data, job->spec, job->graph);
  EXPECT_THAT(ReadOne(*dataset, v1::TRAIN, 1).target, ElementsAre(21, 26, 31, 36, 1));
  BatchSourceOptions options;
  options.input_target = ScaleOfInput(job->graph);
  options.input_target_place = 0;
  options.shuffle = false;
  BatchSource batches(*opened, StepPlan::Make(2, 2, 1, 0, 1), options);
  const auto batch = batches.Get(0, ReplicaId(0));
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_THAT(std::vector<float>(batch->labels.floats().begin(), batch->labels.floats().end()),
              ElementsAre(1, 6, 11, 16, 0, 21, 26, 31, 36, 1));
}

}  // namespace
}  // namespace cairn
