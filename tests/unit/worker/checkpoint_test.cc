// Goal: a checkpoint is read as it was written; weights alone can be loaded into another model; those that are no
// longer needed go. Damage: checkpoint_damage_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/model/initializer.h"
#include "tests/unit/worker/checkpoint_testing.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/checkpoint/checkpoint_restore.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

void ExpectSameVariables(const Graph& graph, const Buffer& a, const Buffer& b, bool trainable_only) {
  for (const Variable& v : graph.variables()) {
    if (trainable_only && v.kind != VariableKind::kTrainable) continue;
    for (int64_t i = v.offset; i < v.offset + v.size; ++i) {
      ASSERT_EQ(a.floats()[static_cast<size_t>(i)], b.floats()[static_cast<size_t>(i)]) << v.name << " " << i;
    }
  }
}

TEST_F(CheckpointTest, ComesBackAsItWasWritten) {
  const v1::JobSpec spec = Spec();
  const CheckpointContents c = Contents(spec, 12);
  EXPECT_EQ(Write(c), dir_ + "/step-12");
  EXPECT_THAT(Names(), testing::ElementsAre("step-12"));
  const absl::StatusOr<RestoredState> state = RestoreCheckpoint(spec, dir_ + "/step-12", {}, kStepsPerEpoch);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->step, 12);
  EXPECT_TRUE(state->skipped.empty());
  ExpectSameVariables(*c.graph, state->values, c.values, false);
  ASSERT_EQ(state->slots.size(), 3u);
  for (size_t i = 0; i < 3; ++i) ExpectSameVariables(*c.graph, state->slots[i], c.slots[i], true);
  const v1::PartitionImage image = ImageHeader(*state, 16, 48, 5);
  EXPECT_EQ(image.version(), 12u);
  EXPECT_EQ(image.slots(), 3u);
  EXPECT_THAT(image.sequences().last_sequence(), testing::ElementsAre(12, 12, 12, 12, 12));
}

TEST_F(CheckpointTest, TheLossScaleGoesOnWhereItWas) {
  v1::JobSpec spec = Spec();
  spec.set_compute_dtype(v1::FLOAT16);
  CheckpointContents c = Contents(spec, 12);
  c.manifest.loss_scale.set_scale(1 << 24);
  c.manifest.loss_scale.set_finite_steps(5);
  c.manifest.loss_scale.set_skipped(3);
  const RestoredState state = RestoreCheckpoint(spec, Write(c), {}, kStepsPerEpoch).value();
  for (uint64_t begin : {0, 16}) {
    const v1::LossScaleState scale = ImageHeader(state, begin, begin + 16, 5).loss_scale();
    EXPECT_EQ(scale.scale(), 1 << 24);
    EXPECT_EQ(scale.finite_steps(), 5u);
    EXPECT_EQ(scale.skipped(), 3u);
  }
  EXPECT_FALSE(ImageHeader(RestoreWeights(spec, dir_ + "/step-12", {}).value(), 0, 16, 5).has_loss_scale())
      << "a new job's first step";
  c.manifest.files[kModelFile] = c.manifest.files[kOptimizerFile] = {10, "ab"};
  c.manifest.loss_scale.set_scale(1 << 25);
  EXPECT_THAT(std::string(ParseManifest(EncodeManifest(c.manifest)).status().message()),
              HasSubstr("scale: 33554432 is more than 16777216"));
}

v1::EpochFigures FiguresOf(int epoch, double loss, uint64_t steps) {
  v1::EpochFigures figures;
  figures.set_epoch(epoch);
  figures.mutable_train()->set_examples(3);
  figures.mutable_train()->set_loss(loss);
  figures.set_replica_steps(steps);
  return figures;
}

TEST_F(CheckpointTest, TheFiguresOfTheRunningEpochGoOn) {
  const v1::JobSpec spec = Spec();
  CheckpointContents c = Contents(spec, 12);
  *c.manifest.figures.Add() = FiguresOf(1, 1.0 / 3, 4);
  *c.manifest.figures.Add() = FiguresOf(2, std::nan(""), 5);
  const RestoredState state = RestoreCheckpoint(spec, Write(c), {}, kStepsPerEpoch).value();
  v1::Restore command;
  *command.mutable_spec() = spec;
  v1::PartitionRange range;
  range.set_end(16);
  v1::PartitionImage image;
  ASSERT_TRUE(image.ParseFromString(RestoreFrames(command, state, range)[0].image));
  ASSERT_EQ(image.figures_size(), 2);
  EXPECT_EQ(image.figures(0).train().loss(), 1.0 / 3) << "bit for bit";
  EXPECT_TRUE(std::isnan(image.figures(1).train().loss()));
  range.set_begin(16);
  range.set_end(32);
  ASSERT_TRUE(image.ParseFromString(RestoreFrames(command, state, range)[0].image));
  EXPECT_TRUE(image.figures().empty()) << "the first partition's alone";
  c.manifest.files[kModelFile] = c.manifest.files[kOptimizerFile] = {10, "ab"};
  *c.manifest.figures.Add() = FiguresOf(2, 1, 1);
  EXPECT_THAT(std::string(ParseManifest(EncodeManifest(c.manifest)).status().message()), HasSubstr("epoch 2 after 2"));
}

// Steps that are done again are not in the figures: only the number of steps is known, so that the epoch is complete
// when it has them all.
TEST_F(CheckpointTest, FiguresOfStepsThatAreDoneAgainAreLeftOut) {
  const v1::JobSpec spec = Spec("strategy: PARAMETER_SERVER");
  CheckpointContents c = Contents(spec, 12);
  *c.manifest.figures.Add() = FiguresOf(12 / kStepsPerEpoch, 1, 7);
  Write(c);
  const RestoredState state = RestoreCheckpoint(spec, dir_, {}, kStepsPerEpoch).value();
  const CheckpointPartition &a = c.manifest.partitions[0], &b = c.manifest.partitions[1];
  const EpochList as_cut = FiguresAt(state, ImageHeader(state, a.begin, a.end, 2), spec);
  ASSERT_EQ(as_cut.size(), 1);
  EXPECT_EQ(as_cut[0].train().examples(), 3u);
  const v1::PartitionImage other = ImageHeader(state, a.begin, b.end, 2);
  uint64_t steps = 0, expected = 0;
  for (const v1::EpochFigures& epoch : FiguresAt(state, other, spec)) {
    EXPECT_EQ(epoch.train().examples(), 0u);
    steps += epoch.replica_steps();
  }
  for (uint64_t s : other.sequences().last_sequence()) expected += s - 12 / kStepsPerEpoch * kStepsPerEpoch;
  EXPECT_EQ(steps, expected);
}

TEST_F(CheckpointTest, ManifestSaysWhereTheJobIs) {
  CheckpointContents c = Contents(Spec(), 12);
  c.manifest.files[kModelFile] = {10, "ab"};
  c.manifest.files[kOptimizerFile] = {20, "cd"};
  const std::string text = EncodeManifest(c.manifest);
  for (const char* line : {"\"step\": 12", "\"epoch\": 1", "\"step_in_epoch\": 2", "\"seed\": 3", "\"replicas\": 2"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  const absl::StatusOr<CheckpointManifest> parsed = ParseManifest(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(EncodeManifest(*parsed), text);
  EXPECT_EQ(parsed->partitions, c.manifest.partitions);
}

TEST_F(CheckpointTest, WeightsAloneIntoAnotherModel) {
  const v1::JobSpec spec = Spec();
  const CheckpointContents c = Contents(spec, 12);
  const std::string path = Write(c);
  const std::string five = R"(model {
    layers { input { shape: [6, 6, 1] } }
    layers { conv2d { filters: 3 kernel_size: 3 } }
    layers { batch_normalization { } }
    layers { flatten { } }
    layers { dense { units: 5 activation: SOFTMAX } } } optimizer { adagrad { } } )";
  const absl::Status refused = RestoreWeights(Spec(five), path, {}).status();
  EXPECT_THAT(refused.message(), HasSubstr("variable \"dense/kernel\": shape [48,4] in"));
  EXPECT_THAT(refused.message(), HasSubstr("initial_weights_skip: \"dense\""));

  v1::JobSpec skipping = Spec(five);
  skipping.add_initial_weights_skip("dense");
  const Graph graph = *Graph::Build(skipping.model());
  Buffer initial = Buffer::Zeros(static_cast<size_t>(graph.space_size()) * sizeof(float));
  InitializeRange(graph, skipping.seed(), 0, initial.mutable_floats());
  for (const std::string& from : {path, path + "/" + kModelFile, dir_}) {
    const absl::StatusOr<RestoredState> state = RestoreWeights(skipping, from, {});
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_EQ(state->step, 0);
    ASSERT_EQ(state->slots.size(), 1u);
    EXPECT_EQ(state->slots[0].floats()[0], 0.1f);
    for (const Variable& v : graph.variables()) {
      const bool own = v.name.starts_with("dense/");
      EXPECT_EQ(state->values.floats()[static_cast<size_t>(v.offset)],
                (own ? initial : c.values).floats()[static_cast<size_t>(v.offset)])
          << v.name;
    }
    EXPECT_EQ(ImageHeader(*state, 0, 16, 2).version(), 0u);
  }
  skipping.add_initial_weights_skip("dens");
  EXPECT_THAT(RestoreWeights(skipping, path, {}).status().message(), HasSubstr("\"dens\" is neither a layer"));
}

TEST_F(CheckpointTest, AsynchronousSequencesFollowTheCut) {
  const v1::JobSpec spec = Spec("strategy: PARAMETER_SERVER");
  const CheckpointContents c = Contents(spec, 12);
  Write(c);
  const absl::StatusOr<RestoredState> state = RestoreCheckpoint(spec, dir_, {}, kStepsPerEpoch);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_THAT(state->replica_step, testing::ElementsAre(12, 14));
  const CheckpointPartition &a = c.manifest.partitions[0], &b = c.manifest.partitions[1];
  v1::PartitionImage image = ImageHeader(*state, a.begin, a.end, 2);
  EXPECT_EQ(image.version(), 20u);
  EXPECT_THAT(image.sequences().last_sequence(), testing::ElementsAre(12, 15));
  image = ImageHeader(*state, a.begin, b.end, 2);
  EXPECT_EQ(image.version(), 22u);
  EXPECT_THAT(image.sequences().last_sequence(), testing::ElementsAre(12, 14));
  const absl::StatusOr<RestoredState> four =
      RestoreCheckpoint(Spec("strategy: PARAMETER_SERVER replicas: 4"), dir_, {}, 0);
  ASSERT_TRUE(four.ok()) << four.status();
  EXPECT_TRUE(four->replica_step.empty());
  EXPECT_THAT(ImageHeader(*four, 0, 16, 4).sequences().last_sequence(), testing::ElementsAre(12, 12, 12, 12));
}

TEST_F(CheckpointTest, ReplacesRemovesAndKeepsTheBest) {
  const v1::JobSpec spec = Spec();
  fs::create_directories(dir_ + "/.partial-small-7-step-3-1-1");  // of a killed writer
  fs::create_directories(dir_ + "/.partial-other-7-step-3-1-1");  // of another job
  const CheckpointOwner owner = CheckpointOwner::Of(7, 0, spec);
  const std::string path = Write(Contents(spec, 10, 1));
  EXPECT_THAT(Names(), testing::ElementsAre(".partial-other-7-step-3-1-1", "step-10"));
  const std::string first = Load(path + "/" + kModelFile);
  ASSERT_EQ(*KeepAsBest(dir_, 10, owner), dir_ + "/best");
  EXPECT_EQ(Write(Contents(spec, 10, 2)), path);
  EXPECT_NE(Load(path + "/" + kModelFile), first);
  EXPECT_EQ(Load(dir_ + "/best/" + kModelFile), first);
  EXPECT_TRUE(ReadCheckpoint(dir_ + "/best").ok());
  Write(Contents(spec, 20, 3));
  ASSERT_TRUE(KeepAsBest(dir_, 20, owner).ok());
  EXPECT_EQ(ReadCheckpoint(dir_ + "/best")->manifest.step, 20);
  const OwnCheckpoints own = OwnCheckpoints::Open(dir_, owner).value();
  ASSERT_TRUE(own.Remove("step-20").ok());
  EXPECT_EQ(ReadCheckpoint(dir_ + "/best")->manifest.step, 20);
  EXPECT_THAT(Names(), testing::ElementsAre(".partial-other-7-step-3-1-1", "best", "step-10"));
  EXPECT_FALSE(KeepAsBest(dir_, 20, owner).ok());
  EXPECT_EQ(ReadCheckpoint(dir_ + "/best")->manifest.step, 20);
  ASSERT_TRUE(own.RemoveAll().ok());
  EXPECT_THAT(Names(), testing::ElementsAre(".partial-other-7-step-3-1-1")) << "what is not a checkpoint stays";
}

// Two workers that both believe to be the chief, for a moment.

}  // namespace
}  // namespace cairn
