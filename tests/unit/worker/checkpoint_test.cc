// Goal: a checkpoint is read as it was written; every torn, shortened or altered one is detected and named, and the one
// before it is used; one that does not fit a job is refused with the field, layer or variable; weights alone can be
// loaded into another model.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

#include "absl/strings/str_cat.h"
#include "common/model/initializer.h"
#include "common/model/job_check.h"
#include "common/model/optimizer_slots.h"
#include "tests/unit/test_seed.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/checkpoint/checkpoint_restore.h"
#include "worker/checkpoint/checkpoint_writer.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr char kJob[] = R"(
  name: "small"
  model {
    layers { input { shape: [6, 6, 1] } }
    layers { conv2d { filters: 3 kernel_size: 3 } }
    layers { batch_normalization { } }
    layers { flatten { } }
    layers { dense { units: 4 activation: SOFTMAX } }
  }
  data { path: "/data" }
  loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
  optimizer { adam { amsgrad: true } }
  batch_size: 8 epochs: 4 replicas: 2 seed: 3
)";
constexpr int64_t kStepsPerEpoch = 10;

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "cairn-checkpoint-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  void TearDown() override { fs::remove_all(dir_); }

  static v1::JobSpec Spec(const std::string& changes = "") {
    v1::JobSpec spec, more;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kJob, &spec));
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(changes, &more)) << changes;
    if (more.has_model()) spec.clear_model();
    if (more.has_optimizer()) spec.clear_optimizer();
    spec.MergeFrom(more);
    const absl::StatusOr<CheckedJob> checked = CheckJob(spec);
    EXPECT_TRUE(checked.ok()) << checked.status();
    return checked->spec;
  }

  // Random numbers everywhere, in the padding too: padding must not matter.
  CheckpointContents Contents(const v1::JobSpec& spec, int64_t step, uint64_t seed = 1) {
    CheckpointContents c;
    c.graph = std::make_shared<const Graph>(*Graph::Build(spec.model()));
    std::mt19937 random(static_cast<unsigned>(seed));
    const auto fill = [&] {
      Buffer b = Buffer::Allocate(static_cast<size_t>(c.graph->space_size()) * sizeof(float));
      for (float& f : b.mutable_floats()) f = static_cast<float>(random()) * 1e-9f;
      return b;
    };
    c.values = fill();
    for (size_t i = 0; i < SlotNames(spec.optimizer()).size(); ++i) c.slots.push_back(fill());
    c.manifest.job_id = 7;
    c.manifest.spec = spec;
    c.manifest.synchronous = spec.strategy() != v1::PARAMETER_SERVER;
    c.manifest.step = step;
    c.manifest.steps_per_epoch = kStepsPerEpoch;
    c.manifest.total_steps = kStepsPerEpoch * spec.epochs();
    c.manifest.train_examples = 80;
    const uint64_t half = static_cast<uint64_t>(c.graph->space_size() / 32 * 16);
    c.manifest.partitions = {{0, half, static_cast<uint64_t>(step), {}},
                             {half, static_cast<uint64_t>(c.graph->space_size()), static_cast<uint64_t>(step), {}}};
    if (!c.manifest.synchronous) {
      c.manifest.replica_step = {step, step + 2};
      c.manifest.partitions[0].version = 20;
      c.manifest.partitions[0].sequences = {static_cast<uint64_t>(step), static_cast<uint64_t>(step + 3)};
      c.manifest.partitions[1].version = 22;
      c.manifest.partitions[1].sequences = {static_cast<uint64_t>(step + 1), static_cast<uint64_t>(step + 2)};
    }
    return c;
  }

  std::string Write(const CheckpointContents& contents, int64_t time = 1000) {
    const absl::StatusOr<std::string> path = WriteCheckpoint(dir_, contents, time);
    EXPECT_TRUE(path.ok()) << path.status();
    return path.ok() ? *path : "";
  }

  static std::string Load(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void Store(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir_)) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

  std::string dir_;
};

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

TEST_F(CheckpointTest, NewerFormatIsNamed) {
  CheckpointContents c = Contents(Spec(), 1);
  std::string text = EncodeManifest(c.manifest);
  text.replace(text.find("\"format_version\": 1"), 19, "\"format_version\": 9");
  const absl::Status status = ParseManifest(text).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("use a newer one"));
}

// Cuts off and alters each file at many places: the result is always an error that names the checkpoint.
TEST_F(CheckpointTest, EveryDamageIsSeen) {
  const v1::JobSpec spec = Spec();
  const std::string path = Write(Contents(spec, 12));
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937_64 random(seed);
  for (const char* name : {kManifestFile, kModelFile, kOptimizerFile}) {
    const std::string file = path + "/" + name, whole = Load(file);
    ASSERT_GT(whole.size(), 100u);
    const auto expect_refused = [&](const std::string& what) {
      const absl::Status status = ReadCheckpoint(path).status();
      ASSERT_FALSE(status.ok()) << name << ": " << what;
      EXPECT_THAT(status.message(), HasSubstr(path)) << what;
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << what << ": " << status;
    };
    for (size_t size : {size_t{0}, size_t{1}, size_t{7}, size_t{8}, whole.size() / 2, whole.size() - 1}) {
      Store(file, whole.substr(0, size));
      expect_refused(absl::StrCat("cut at ", size));
    }
    Store(file, whole + "x");
    expect_refused("longer");
    for (int i = 0; i < 60; ++i) {
      std::string altered = whole;
      const size_t at = random() % altered.size();
      const char bit = static_cast<char>(1 << random() % 8);
      altered[at] = static_cast<char>(altered[at] ^ bit);
      Store(file, altered);
      if (name == std::string(kManifestFile) &&
          ReadCheckpoint(path).status().code() == absl::StatusCode::kUnimplemented) {
        continue;  // the format's version itself
      }
      expect_refused(absl::StrCat("bit ", static_cast<int>(bit), " of byte ", at));
    }
    fs::remove(file);
    const absl::Status gone = ReadCheckpoint(path).status();
    EXPECT_FALSE(gone.ok()) << name;
    EXPECT_THAT(gone.message(), HasSubstr(name));
    Store(file, whole);
  }
  EXPECT_TRUE(ReadCheckpoint(path).ok());
}

TEST_F(CheckpointTest, TheOneBeforeATornOneIsUsed) {
  const v1::JobSpec spec = Spec();
  Write(Contents(spec, 10), 1000);
  Write(Contents(spec, 20), 2000);
  const std::string torn = Write(Contents(spec, 30), 3000);
  fs::resize_file(torn + "/" + kModelFile, 100);
  fs::create_directory(dir_ + "/step-40");  // no manifest at all
  const absl::StatusOr<RestoredState> state = RestoreCheckpoint(spec, dir_, {}, kStepsPerEpoch);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->step, 20);
  EXPECT_EQ(state->path, dir_ + "/step-20");
  EXPECT_THAT(state->skipped, testing::ElementsAre(HasSubstr("step-40"), HasSubstr("step-30")));

  // If it is requested by name it is an error, unless another one is named too.
  EXPECT_EQ(RestoreCheckpoint(spec, torn, {}, kStepsPerEpoch).status().code(), absl::StatusCode::kDataLoss);
  const absl::StatusOr<RestoredState> other = RestoreCheckpoint(spec, torn, {{dir_ + "/step-10"}}, kStepsPerEpoch);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->step, 10);

  const absl::Status nothing = RestoreCheckpoint(spec, dir_ + "/none", {}, 0).status();
  EXPECT_EQ(nothing.code(), absl::StatusCode::kNotFound);
  fs::create_directory(dir_ + "/empty");
  EXPECT_THAT(RestoreCheckpoint(spec, dir_ + "/empty", {}, 0).status().message(), HasSubstr("holds no checkpoint"));
}

TEST_F(CheckpointTest, NewestIsByTheTimeOfWriting) {
  const v1::JobSpec spec = Spec();
  EXPECT_EQ(NewestWrittenUnixMs(dir_), 0);
  Write(Contents(spec, 30), 1000);  // of an earlier run in the same directory
  Write(Contents(spec, 10), 2000);
  EXPECT_EQ(RestoreCheckpoint(spec, dir_, {}, kStepsPerEpoch)->step, 10);
  EXPECT_EQ(NewestWrittenUnixMs(dir_), 2000);
}

TEST_F(CheckpointTest, WhatDoesNotFitIsNamed) {
  Write(Contents(Spec(), 12));
  const auto error = [&](const std::string& changes, int64_t per_epoch = kStepsPerEpoch) {
    return std::string(RestoreCheckpoint(Spec(changes), dir_, {}, per_epoch).status().message());
  };
  EXPECT_THAT(error("batch_size: 16"), HasSubstr("batch_size: 16, but 8 in"));
  EXPECT_THAT(error("optimizer { adam {} }"), HasSubstr("optimizer: it keeps [momentum, velocity]"));
  EXPECT_THAT(error("optimizer { sgd { momentum: 0.9 } }"), HasSubstr("optimizer:"));
  EXPECT_THAT(error("strategy: PARAMETER_SERVER"), HasSubstr("strategy:"));
  EXPECT_THAT(error("epochs: 1"), HasSubstr("raise epochs"));
  EXPECT_THAT(error("", 11), HasSubstr("steps_per_epoch: 11, but 10"));
  const std::string wider = error(R"(model {
    layers { input { shape: [6, 6, 1] } }
    layers { conv2d { filters: 3 kernel_size: 3 } }
    layers { batch_normalization { } }
    layers { flatten { } }
    layers { dense { units: 5 activation: SOFTMAX } } })");
  EXPECT_THAT(wider, HasSubstr("variable \"dense/kernel\": shape [48,4]"));
  EXPECT_THAT(wider, HasSubstr("initial_weights"));
  EXPECT_THAT(error(R"(model {
    layers { input { shape: [6, 6, 1] } }
    layers { conv2d { filters: 3 kernel_size: 3 activation: RELU } }
    layers { batch_normalization { } }
    layers { flatten { } }
    layers { dense { units: 4 activation: SOFTMAX } } })"),
              HasSubstr("layer \"conv2d\""));
  // Another number of replicas, other hyper-parameters and more epochs are accepted.
  EXPECT_EQ(error("replicas: 4 epochs: 9 optimizer { adam { amsgrad: true beta_1: 0.8 } learning_rate: 0.1 }"), "");
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
TEST_F(CheckpointTest, WhatAnotherProcessWritesIsLeftAlone) {
  const std::string other = dir_ + "/.partial-small-7-step-3-1-1", dead = dir_ + "/.partial-small-7-step-4-1-1",
                    best = dir_ + "/.partial-,removed-best-1-1";
  for (const std::string& path : {other, dead, best}) fs::create_directories(path);
  const int locks[] = {::open(other.c_str(), O_RDONLY | O_DIRECTORY), ::open(best.c_str(), O_RDONLY | O_DIRECTORY)};
  for (int fd : locks) ASSERT_EQ(::flock(fd, LOCK_EX | LOCK_NB), 0);
  Write(Contents(Spec(), 10));
  EXPECT_THAT(Names(), testing::ElementsAre(".partial-,removed-best-1-1", ".partial-small-7-step-3-1-1", "step-10"));
  for (int fd : locks) ::close(fd);  // as the end of the process does
  Write(Contents(Spec(), 20));
  EXPECT_THAT(Names(), testing::ElementsAre("step-10", "step-20"));
}

TEST_F(CheckpointTest, WhatCannotBeWrittenIsNamedAndLeavesNothing) {
  Store(dir_ + "/file", "x");
  const absl::Status status = WriteCheckpoint(dir_ + "/file", Contents(Spec(), 1), 1).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr(dir_ + "/file"));
  EXPECT_THAT(Names(), testing::ElementsAre("file"));
}

}  // namespace
}  // namespace cairn
