// Goal: a job with model.external is expanded to an input and one layer that has the user's variables under the user's
// names; everything that has no meaning for such a job, and everything that is missing or wrong, is refused by name.
#include "common/model/external_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/model/example_key.h"
#include "common/model/job_check.h"
#include "common/model/job_outputs.h"
#include "common/model/metric_sums.h"
#include "tests/unit/model/external_job.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

// As a user writes it.
constexpr char kUsers[] = R"(
  model { external {
    program: "lenet" version: "1" figures: ["accuracy", "top5"]
    variables { name: "conv.weight" shape: [4, 2] }
    variables { name: "conv.bias" shape: 4 regularizer { l2: 0.1 } }
    variables { name: "bn.mean" shape: 2 kind: MOVING_AVERAGE momentum: 0.9 }
    variables { name: "table" shape: 5 kind: FROZEN }
    variables { name: "scale" }
  } }
  data { external { examples: 64 } } batch_size: 8 optimizer { sgd {} } )";

absl::StatusOr<CheckedJob> Check(v1::JobSpec spec) {
  if (spec.model().has_external()) {
    if (const absl::Status status = ExpandExternal(spec.mutable_model()); !status.ok()) return status;
  }
  return CheckJob(spec);
}

std::string ErrorOf(const std::string& change) {
  const absl::StatusOr<CheckedJob> checked = Check(ChangedJob(kUsers, change));
  return checked.ok() ? "taken" : std::string(checked.status().message());
}

// A job of kUsers with another message in place of a variable's text.
std::string ErrorInstead(const std::string& what, const std::string& with) {
  std::string text = kUsers;
  const size_t at = text.find(what);
  CAIRN_CHECK(at != std::string::npos, "the test's own text has no " + what);
  const absl::StatusOr<CheckedJob> checked = Check(FromText<v1::JobSpec>(text.replace(at, what.size(), with)));
  return checked.ok() ? "taken" : std::string(checked.status().message());
}

TEST(ExternalCheck, VariablesAreTheUsers) {
  const absl::StatusOr<CheckedJob> job = Check(FromText<v1::JobSpec>(kUsers));
  ASSERT_TRUE(job.ok()) << job.status();
  const std::vector<Variable>& v = job->graph.variables();
  ASSERT_EQ(v.size(), 5u);
  EXPECT_EQ(v[0].name, "conv.weight");
  EXPECT_EQ(v[0].shape, (Shape{4, 2}));
  EXPECT_EQ(v[0].kind, VariableKind::kTrainable);
  EXPECT_EQ(v[0].initializer.kind(), v1::Initializer::GLOROT_UNIFORM);
  EXPECT_EQ(v[1].initializer.kind(), v1::Initializer::ZEROS);
  EXPECT_EQ(v[1].l2, 0.1f);
  EXPECT_EQ(v[2].kind, VariableKind::kMovingAverage);
  EXPECT_EQ(v[2].momentum, 0.9f);
  EXPECT_EQ(v[3].kind, VariableKind::kFrozen);
  EXPECT_EQ(v[4].size, 1) << "no axes: one number";
  EXPECT_EQ(job->graph.input_shape(), (Shape{kExampleKeyBytes}));
  EXPECT_EQ(FigureCount(job->spec), 2);
  EXPECT_EQ(MetricSumCount(job->spec), 2);
  EXPECT_EQ(MetricName(job->spec, 1), "top5");
  v1::MetricSums sums;
  sums.set_examples(4);
  sums.add_metrics(3);
  sums.add_metrics(1);
  EXPECT_EQ(MetricValue(job->spec, 0, sums), 0.75);
  EXPECT_TRUE(MoreIsBetter(job->spec, "val_accuracy"));
  const absl::StatusOr<CheckedJob> again = CheckJob(job->spec);
  ASSERT_TRUE(again.ok()) << "a checked job is a good one: " << again.status();
  EXPECT_EQ(again->spec.SerializeAsString(), job->spec.SerializeAsString());
}

TEST(ExternalCheck, OfCairnsOwnData) {
  v1::JobSpec spec = FromText<v1::JobSpec>(kUsers);
  *spec.mutable_data() = FromText<v1::Data>("path: '/d'");
  spec.mutable_model()->mutable_external()->add_input_shape(28);
  const absl::StatusOr<CheckedJob> job = Check(spec);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->graph.input_shape(), (Shape{28}));
}

TEST(ExternalCheck, KeysOfExamples) {
  for (const int64_t index : {int64_t{0}, int64_t{255}, int64_t{256}, kExternalExamplesMax}) {
    uint8_t bytes[kExampleKeyBytes];
    WriteExampleKey({v1::VALIDATION, index}, bytes);
    EXPECT_EQ(ReadExampleKey(bytes).index, index);
    EXPECT_EQ(ReadExampleKey(bytes).split, v1::VALIDATION);
  }
}

TEST(ExternalCheck, WhatHasNoMeaningIsRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"loss { kind: MEAN_SQUARED_ERROR }",
       "loss: the program of model.external computes the loss itself; leave it out"},
      {"metrics { kind: ACCURACY }",
       "metrics: the program of model.external reports its own; name them in model.external.figures"},
      {"outputs { output: 'external' }",
       "outputs: the program of model.external computes all losses itself; leave it out"},
      {"class_weight { class_id: 0 weight: 1 }",
       "class_weight: the program of model.external computes the loss itself; leave it out"},
      {"strategy: CENTRAL_STORAGE",
       "strategy: CENTRAL_STORAGE computes layer by layer, and the program of model.external takes all values at once; "
       "use MULTI_WORKER_MIRRORED"},
      {"compute_dtype: BFLOAT16",
       "compute_dtype: the program of model.external computes with the types that it chooses; leave it out"},
      {"loss_scaling { initial_scale: 2 }",
       "loss_scaling: the program of model.external computes with the scale that it chooses; leave it out"},
      {"allow_tf32: true",
       "allow_tf32: the program of model.external computes with the types that it chooses; leave it out"},
      {"callbacks { model_checkpoint { filepath: '/m.keras' } }",
       "callbacks[0].model_checkpoint.filepath: a model that a program computes has no layers to write; end it in "
       ".safetensors"},
      {"initial_weights: '/w.onnx'",
       "initial_weights: /w.onnx holds weights of layers, and a program computes the model; give a checkpoint's "
       "directory or a .safetensors file"},
      {"model { trainable_layers: 'conv' }",
       "model.trainable_layers: model.external has variables, no layers; give those that are not trained kind: FROZEN"},
      {"model { outputs: 'conv' }", "model.outputs: model.external has no layers; leave it out"},
      {"data { path: '/d' }", "data.path: the program of data.external has the examples; leave one of the two out"},
      {"data { validation_split: 0.1 }",
       "data.validation_split: the program of data.external has the examples; leave one of the two out"},
      {"data { augmentation { random_flip {} } }",
       "data.augmentation: the program of data.external has the examples; leave one of the two out"},
      {"data { external { examples: -1 } }",
       "data.external.examples: -1 is not positive; give the number of examples in the training split"},
      {"data { external { test_examples: -1 } }", "data.external.test_examples: -1 is not within 0 .. 1099511627776"},
      {"model { external { input_shape: 8 } }",
       "model.external.input_shape: together with data.external, whose examples are the program's; leave it out"},
      {"model { external { output_shape: 0 } }",
       "layer \"external\": output_shape: [0] has a side below 1; give that of one example"},
      {"model { external { figures: 'accuracy' } }",
       "layer \"external\": figures[2]: \"accuracy\" twice; name it once"},
      {"model { external { figures: 'loss' } }",
       "layer \"external\": figures[2]: \"loss\": it may have letters, digits, '-', '_' and '.', and is neither "
       "\"loss\" "
       "nor begins with val_; choose another"},
      {"model { external { program: 'a b' } }",
       "layer \"external\": program: \"a b\" is not 1 to 63 letters, digits, '-', '_' and '.'; give it as the workers' "
       "program has it"},
      {"model { external { variables { name: 'table' } } }",
       "layer \"external\": variables[5].name: \"table\" twice; name each variable once"},
      {"model { external { variables { shape: 1 } } }",
       "layer \"external\": variables[5].name: it has 1 to 512 bytes of text, no control characters, and is not "
       "\"__metadata__\"; choose another"},
      {"model { external { variables { name: 'x' shape: 0 } } }",
       "layer \"external\": variables[5].shape: [0] has a side below 1; leave the variable out"},
      {"model { external { variables { name: 'x' momentum: 0.5 } } }",
       "layer \"external\": variables[5].momentum: only for kind MOVING_AVERAGE; leave it out, or set that kind"},
      {"model { external { variables { name: 'x' kind: MOVING_AVERAGE momentum: 1 } } }",
       "layer \"external\": variables[5].momentum: 1 is outside [0, 1); use 0.99, say"},
      {"model { external { variables { name: 'x' kind: FROZEN regularizer { l2: 1 } } } }",
       "layer \"external\": variables[5].regularizer: only for kind TRAINABLE; leave it out"},
      {"model { external { variables { name: 'x' shape: [2, 2] regularizer { orthogonal_factor: 1 } } } }",
       "layer \"external\": variables[5].regularizer: l1 and l2 are for variables of programs; leave orthogonal_factor "
       "out"},
      {"model { external { variables { name: 'x' initializer { kind: IDENTITY } } } }",
       "layer \"external\": variables[5].shape [] is not a matrix, as IDENTITY needs; use another initializer"},
  };
  for (const auto& [change, error] : cases) EXPECT_EQ(ErrorOf(change), error) << change;
}

TEST(ExternalCheck, WhatIsMissingIsSaid) {
  EXPECT_EQ(
      ErrorInstead("version: \"1\"", ""),
      "layer \"external\": version: \"\" is not 1 to 63 letters, digits, '-', '_' and '.'; give it as the workers' "
      "program has it");
  EXPECT_EQ(ErrorInstead("external { examples: 64 }", "path: \"/d\""),
            "model.external.input_shape: missing, and data.path names Cairn's examples; give their shape, or "
            "data.external instead of data.path");
  v1::JobSpec spec = FromText<v1::JobSpec>(kUsers);
  spec.mutable_model()->mutable_external()->clear_variables();
  EXPECT_EQ(Check(spec).status().message(),
            "layer \"external\": variables: none; name those that the program computes with");
  *spec.mutable_model()->mutable_external()->add_variables() = FromText<v1::ExternalVariable>("name: 'x' kind: FROZEN");
  EXPECT_EQ(Check(spec).status().message(),
            "model.external.variables: nothing is trained; give one of them kind: TRAINABLE");
}

TEST(ExternalCheck, BesideOtherLayers) {
  v1::JobSpec spec = FromText<v1::JobSpec>(kExternalJob);
  *spec.mutable_model()->add_layers() = FromText<v1::Layer>("dense { units: 1 }");
  EXPECT_THAT(std::string(CheckJob(spec).status().message()),
              HasSubstr("a model that a program computes has an input and one layer `external`; give it as "
                        "model.external"));
  spec = FromText<v1::JobSpec>(kExternalJob);
  *spec.mutable_model() = FromText<v1::Model>("layers { input { shape: 8 } } layers { dense { units: 1 } }");
  spec.mutable_loss()->set_kind(v1::Loss::MEAN_SQUARED_ERROR);
  EXPECT_EQ(CheckJob(spec).status().message(),
            "data.external: only with model.external, whose program has the examples; give data.path");
  spec = FromText<v1::JobSpec>(kExternalJob);
  *spec.mutable_data() = FromText<v1::Data>("path: '/d' weight_column: 'w'");
  v1::Layer& layer = *spec.mutable_model()->mutable_layers(1);
  layer.mutable_external()->add_input_shape(8);
  EXPECT_EQ(CheckJob(spec).status().message(),
            "data.weight_column: the program of model.external gets an input and a label; leave it out");
}

TEST(ExternalCheck, FilesOfLayersAreRefused) {
  const absl::StatusOr<CheckedJob> job = CheckJob(FromText<v1::JobSpec>(kExternalJob));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(CheckHasLayers(job->graph, "ONNX").message(),
            "layer \"external\": the program \"lenet\" version \"1\" computes it, so that there are no layers to write "
            "as ONNX; write safetensors");
}

}  // namespace
}  // namespace cairn
