// Goal: a job that trains several outputs is checked at submission: outputs, targets and inputs get the model's order
// and their defaults; a checked job is a good one; what does not fit, or would be passed over, is refused by name.
#include "common/model/outputs_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_split.h"
#include "common/base/limits.h"
#include "common/model/activity.h"
#include "common/model/job_check.h"
#include "common/model/job_outputs.h"
#include "common/model/metric_sums.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kModel[] = R"(
  model {
    layers { name: "sizes" input { shape: 2 } }
    layers { name: "rooms" input { shape: 1 } }
    layers { name: "all" inputs: ["sizes", "rooms"] concatenate {} }
    layers { name: "price" inputs: "all" dense { units: 1 } }
    layers { name: "kind" inputs: "all" dense { units: 3 activation: SOFTMAX } }
    layers { name: "spare" inputs: "all" dense { units: 4 } }
    outputs: ["price", "kind", "spare"]
  }
  optimizer { adam {} } data { path: "/d" format: CSV } )";
constexpr char kOutputs[] = R"(
  outputs { output: "kind" loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY } weight: 2 metrics { kind: ACCURACY } }
  outputs { output: "price" loss { kind: MEAN_SQUARED_ERROR } metrics { kind: MEAN_ABSOLUTE_ERROR name: "mae" } } )";
constexpr char kTargets[] = R"(
  data { targets { output: "kind" columns: "k" } targets { output: "price" columns: "p" } } )";
constexpr char kInputs[] = R"(
  data { inputs { input: "rooms" columns: "r" } inputs { input: "sizes" columns: ["w", "h"] } } )";

v1::JobSpec Changed(v1::JobSpec spec, const std::string& text) {
  spec.MergeFrom(FromText<v1::JobSpec>(text));
  return spec;
}

// more: texts one after the other, each with its own data.
absl::StatusOr<CheckedJob> Check(const std::string& more) {
  v1::JobSpec spec = FromText<v1::JobSpec>(kModel);
  const std::vector<std::string> texts = absl::StrSplit(more, "data {");
  for (size_t i = 0; i < texts.size(); ++i) spec = Changed(spec, (i == 0 ? "" : "data {") + texts[i]);
  return CheckJob(spec);
}

TEST(OutputsCheck, OrderAndDefaultsOfTheModel) {
  const auto job = Check(std::string(kOutputs) + kTargets + kInputs);
  ASSERT_TRUE(job.ok()) << job.status();
  const v1::JobSpec& spec = job->spec;
  ASSERT_EQ(spec.outputs_size(), 2) << "spare has no loss";
  EXPECT_EQ(spec.outputs(0).output(), "price");
  EXPECT_EQ(spec.outputs(0).weight(), 1);
  EXPECT_EQ(spec.outputs(1).weight(), 2);
  EXPECT_EQ(spec.data().targets(0).output(), "price");
  EXPECT_THAT(spec.data().targets(1).shape(), ElementsAre(1));
  EXPECT_EQ(spec.data().label_column(), "");
  EXPECT_EQ(spec.data().inputs(0).input(), "sizes");
  EXPECT_TRUE(job->warnings.empty());
  const auto again = CheckJob(spec);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->spec.SerializeAsString(), spec.SerializeAsString());

  std::vector<std::string> names;
  for (int i = 0; i < FigureCount(spec); ++i) names.push_back(MetricName(spec, i));
  EXPECT_THAT(names, ElementsAre("price_loss", "kind_loss", "price_mae", "kind_accuracy"));
  EXPECT_EQ(MetricSumCount(spec), 4);
  EXPECT_TRUE(MoreIsBetter(spec, "val_kind_accuracy"));
  EXPECT_FALSE(MoreIsBetter(spec, "price_loss"));
  v1::MetricSums sums;
  sums.set_examples(4);
  for (const double sum : {1, 2, 3, 4}) sums.add_metrics(sum);
  EXPECT_EQ(MetricValue(spec, 2, sums), 0.75);

  const std::vector<JoinedOutput> outputs = JoinedOutputsOf(job->graph, spec);
  ASSERT_EQ(outputs.size(), 3u);
  EXPECT_EQ(outputs[2].begin, 4);
  EXPECT_FALSE(outputs[2].trained);
  EXPECT_EQ(outputs[1].label_begin, 1);
  EXPECT_EQ(outputs[1].left_out, v1::SOFTMAX);
  const auto joined = BuildJoined(spec.model(), outputs);
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(joined->output().output, Shape{8});
  ASSERT_EQ(joined->variables().size(), job->graph.variables().size());
  for (size_t i = 0; i < joined->variables().size(); ++i) {
    EXPECT_EQ(joined->variables()[i].name, job->graph.variables()[i].name);
    EXPECT_EQ(joined->variables()[i].offset, job->graph.variables()[i].offset);
  }
}

TEST(OutputsCheck, WithoutTargetsAllTakeTheLabel) {
  const auto job = Check(kOutputs);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.data().label_column(), "-1");
  EXPECT_EQ(job->spec.data().targets_size(), 2);
  EXPECT_TRUE(CheckJob(job->spec).ok());
  v1::DataInfo data;
  data.set_path("/d");
  data.set_format(v1::Data::CSV);
  data.set_train_examples(100);
  data.add_example_shape(3);
  data.set_classes(4);
  EXPECT_THAT(std::string(CheckJobAgainstData(*job, data).message()),
              HasSubstr("output \"kind\": layer \"kind\": 3 outputs, but /d has 4 classes"));
}

TEST(OutputsCheck, CallbacksMayWatchEachFigure) {
  const std::string good = std::string(kOutputs) + kTargets;
  for (const char* figure : {"price_loss", "val_kind_accuracy", "val_loss", "loss"}) {
    EXPECT_TRUE(Check(good + "callbacks { early_stopping { monitor: '" + figure + "' } }").ok()) << figure;
  }
  EXPECT_THAT(std::string(Check(good + "callbacks { early_stopping { monitor: 'accuracy' } }").status().message()),
              HasSubstr("loss, price_loss, kind_loss, price_mae, kind_accuracy"));
}

TEST(OutputsCheck, WhatDoesNotFitIsRefused) {
  const auto bad = [](const std::string& more, const std::string& says) {
    const absl::Status status = Check(more).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << more;
    EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  };
  const std::string outputs = kOutputs, good = outputs + kTargets;
  bad("loss { kind: MEAN_SQUARED_ERROR }", "model.outputs: the model has 3 outputs; say in the job");
  bad(good + "outputs { output: 'spar' loss { kind: MEAN_SQUARED_ERROR } }",
      "outputs[2].output: \"spar\" is not an output of the model; did you mean \"spare\"?");
  bad(good + "outputs { loss { kind: MEAN_SQUARED_ERROR } }", "outputs[2].output: missing");
  bad(good + "outputs { output: 'kind' loss { kind: MEAN_SQUARED_ERROR } }", "outputs[2].output: \"kind\" twice");
  bad(good + "loss { kind: MEAN_SQUARED_ERROR }", "loss: together with outputs");
  bad(good + "metrics { kind: ACCURACY }", "metrics: together with outputs");
  bad(good + "class_weight { class_id: 1 weight: 2 }", "class_weight: ");
  bad(good + "outputs { output: 'spare' }", "outputs[2].loss: missing");
  bad(good + "outputs { output: 'spare' loss { kind: BINARY_CROSSENTROPY } weight: -1 }", "outputs[2].weight: -1");
  bad("outputs { output: 'price' loss { kind: CATEGORICAL_CROSSENTROPY } }",
      "outputs[0].loss.kind: CATEGORICAL_CROSSENTROPY needs one output for each class, but layer \"price\" has 1");
  bad("outputs { output: 'kind' loss { kind: MEAN_SQUARED_ERROR } metrics { kind: TOP_K_ACCURACY k: 4 } }",
      "outputs[0].metrics[0].k: 4");
  bad(outputs + "data { targets { output: 'price' columns: 'p' } }",
      "data.targets: there is no entry for output \"kind\"");
  bad(good + "data { targets { output: 'spare' columns: 'p' } }", "data.targets[2].output: \"spare\" has no loss");
  bad(good + "data { targets { output: 'kind' columns: 'p' } }", "data.targets[2].output: \"kind\" twice");
  bad(good + "data { targets { columns: 'p' } }", "data.targets[2].output: missing");
  bad(good + "data { label_column: 'c' }", "data.label_column: \"c\", but data.targets");
  bad(outputs + "data { targets { output: 'price' columns: ['p', 'q'] } targets { output: 'kind' } }",
      "data.targets[0].columns: 2 of them");
  bad(outputs + "data { targets { output: 'price' feature: 'p' } targets { output: 'kind' } }",
      "data.targets[0].feature: only for format TFRECORD, not CSV");
  bad(outputs + "data { targets { output: 'price' input_itself: true } targets { output: 'kind' } }",
      "data.targets[0].input_itself: an example has the shape [3]");
  bad("outputs { output: 'spare' loss { kind: MEAN_SQUARED_ERROR } }",
      "data.targets[0]: the data's label is one number, but layer \"spare\" gives [4]");
}

TEST(OutputsCheck, InputsThatDoNotFitAreRefused) {
  const auto bad = [](const std::string& inputs, const std::string& says) {
    const absl::Status status = Check(std::string(kOutputs) + kTargets + "data { " + inputs + " }").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << inputs;
    EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  };
  const std::string sizes = "inputs { input: 'sizes' columns: ['w', 'h'] } ";
  bad(sizes, "data.inputs: there is no entry for input \"rooms\"");
  bad(sizes + "inputs { input: 'room' columns: 'r' }",
      "data.inputs[1].input: \"room\" is not an input of the model; did");
  bad(sizes + "inputs { columns: 'r' }", "data.inputs[1].input: missing");
  bad(sizes + "inputs { input: 'rooms' columns: 'r' } inputs { input: 'rooms' columns: 's' }",
      "data.inputs[2].input: \"rooms\" twice");
  bad(sizes + "inputs { input: 'rooms' columns: ['r', 's'] }", "data.inputs[1].columns: 2 of them");
  bad(sizes + "inputs { input: 'rooms' }", "data.inputs[1]: names no source");
  bad(sizes + "inputs { input: 'rooms' feature: 'r' }", "data.inputs[1]: a feature, but data.inputs[0] names columns");
  bad("inputs { input: 'sizes' feature: 's' } inputs { input: 'rooms' feature: 'r' }", "only for format TFRECORD");
}

// A penalty is one of probabilities, not of logits; nodes are those of the model.
TEST(OutputsCheck, AnActivityRegularizerKeepsTheActivation) {
  v1::JobSpec spec = Changed(FromText<v1::JobSpec>(kModel), std::string(kOutputs) + kTargets);
  for (v1::Layer& layer : *spec.mutable_model()->mutable_layers()) {
    if (layer.name() != "price" && layer.name() != "kind") continue;
    layer.mutable_dense()->mutable_activity_regularizer()->set_l2(0.5f);
  }
  const auto job = CheckJob(spec);
  ASSERT_TRUE(job.ok()) << job.status();
  const std::vector<JoinedOutput> outputs = JoinedOutputsOf(job->graph, job->spec);
  EXPECT_EQ(outputs[1].left_out, v1::LINEAR);
  for (const JoinedOutput& output : outputs) {
    EXPECT_EQ(job->graph.nodes()[static_cast<size_t>(output.node)].name, output.name);
  }
  const auto joined = BuildJoined(job->spec.model(), outputs);
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(joined->nodes()[4].activation, v1::SOFTMAX);
  const auto with = WithActivityLayers(std::make_shared<const Graph>(*joined));
  const Node& all = with->output();
  ASSERT_EQ(all.inputs.size(), 3u);
  EXPECT_EQ(with->nodes()[static_cast<size_t>(all.inputs[0])].name, "activity_regularizer_3");
  EXPECT_EQ(with->nodes()[static_cast<size_t>(all.inputs[1])].name, "activity_regularizer_4");
  EXPECT_EQ(with->nodes()[static_cast<size_t>(all.inputs[2])].name, "spare");
}

// The layers that training adds count: what is accepted can be built by a worker.
TEST(OutputsCheck, LayersThatTrainingAddsCount) {
  const auto check = [](int layers) {
    v1::JobSpec spec = FromText<v1::JobSpec>(
        "optimizer { sgd {} } data { path: '/d' } outputs { output: 'a' loss { kind: MEAN_SQUARED_ERROR } }"
        "outputs { output: 'b' loss { kind: MEAN_SQUARED_ERROR } }"
        "model { layers { input { shape: 1 } } outputs: ['a', 'b'] }");
    for (int i = 1; i < layers; ++i) {
      v1::Layer& layer = *spec.mutable_model()->add_layers();
      if (i + 2 >= layers) layer.set_name(i + 1 == layers ? "b" : "a");
      layer.mutable_dense()->set_units(1);
    }
    return CheckJob(spec);
  };
  const auto good = check(kLayersMax - 1);
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_TRUE(BuildJoined(good->spec.model(), JoinedOutputsOf(good->graph, good->spec)).ok());
  EXPECT_THAT(std::string(check(kLayersMax).status().message()),
              HasSubstr("one that concatenates all: model.layers: 4097 layers; at most 4096 are allowed"));
}

TEST(OutputsCheck, OneOutputHasNone) {
  const auto job = CheckJob(ChangedJob(
      "model { layers { input { shape: 2 } } layers { name: 'only' dense { units: 1 } } } optimizer { sgd {} }",
      "data { path: '/d' } outputs { output: 'only' loss { kind: MEAN_SQUARED_ERROR } }"));
  EXPECT_THAT(std::string(job.status().message()),
              HasSubstr("outputs: the model has one output, \"only\"; use `loss`"));
}

}  // namespace
}  // namespace cairn
