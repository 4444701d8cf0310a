// Goal: a replayed step has the same bits wherever it begins and however the job was cut into partitions; a digest that
// differs is seen; the first example and layer that are not finite are found; a step that cannot be computed again is
// refused by the field's name.
#include "replay/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "common/data/batch_decoder.h"
#include "common/model/job_check.h"
#include "common/model/step_plan.h"
#include "google/protobuf/text_format.h"
#include "replay/layer_outputs.h"
#include "worker/node/backend_select.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int64_t kExamples = 60, kPoisoned = 37;

// Four numbers and one of three classes a line.
std::string WriteCsv(const std::string& name, int64_t poisoned = -1) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream out(path);
  for (int64_t i = 0; i < kExamples; ++i) {
    if (i == poisoned) {
      out << "3e38,1,1,1,0\n";  // times 10 it is infinite
    } else {
      out << 0.1 * static_cast<double>(i % 7) << ',' << 0.2 * static_cast<double>(i % 3) << ',' << 0.3 << ','
          << 0.05 * static_cast<double>(i % 11) << ',' << i % 3 << '\n';
    }
  }
  return path;
}

v1::JobSpec Spec(const std::string& data, const std::string& change = "") {
  v1::JobSpec spec, changes;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(change, &changes));
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(model {
           layers { input { shape: 4 } }
           layers { name: "scaled" rescaling { scale: 10 } }
           layers { name: "hidden" dense { units: 512 activation: RELU } }
           layers { batch_normalization { momentum: 0.9 } }
           layers { dropout { rate: 0.2 } }
           layers { name: "out" dense { units: 3 activation: SOFTMAX } }
         }
         loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY } metrics { kind: ACCURACY }
         optimizer { adam { } learning_rate: 0.01 }
         batch_size: 12 epochs: 3 replicas: 3 seed: 7)",
      &spec));
  spec.MergeFrom(changes);
  spec.mutable_data()->set_path(data);
  absl::StatusOr<CheckedJob> checked = CheckJob(spec);
  EXPECT_TRUE(checked.ok()) << checked.status();
  return checked->spec;
}

// What a coordinator says of the job after its last step.
v1::JobStatus JobOf(const v1::JobSpec& spec, int64_t partition_bytes = 4096) {
  v1::JobStatus job;
  job.set_job_id(3);
  *job.mutable_spec() = spec;
  job.set_state(v1::SUCCEEDED);
  const auto dataset = OpenDataset(spec.data(), {4});
  EXPECT_TRUE(dataset.ok()) << dataset.status();
  *job.mutable_data() = (*dataset)->info();
  const StepPlan plan = StepPlan::Of(spec, static_cast<int64_t>(job.data().train_examples()));
  job.set_steps_per_epoch(plan.steps_per_epoch);
  job.set_total_steps(plan.total_steps);
  job.set_step(plan.total_steps);
  const absl::StatusOr<Graph> graph = Graph::Build(spec.model());
  for (const v1::PartitionRange& range : CutPartitions(graph->space_size(), partition_bytes)) {
    v1::PartitionPlacement& p = *job.add_partitions();
    p.set_partition(range.partition());
    p.set_begin(range.begin());
    p.set_end(range.end());
  }
  return job;
}

ReplayOptions At(int64_t step) {
  ReplayOptions options;
  options.step = step;
  options.device = "cpu";
  return options;
}

ReplayResult Replayed(const v1::JobStatus& job, int64_t step) {
  absl::StatusOr<ReplayResult> result = ReplayStep(job, At(step));
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : ReplayResult();
}

TEST(Replay, AStepHasFiguresNormsAndADigest) {
  const std::string data = WriteCsv("replay.csv");
  const v1::JobStatus job = JobOf(Spec(data));
  ASSERT_GT(job.partitions_size(), 3);
  const ReplayResult whole = Replayed(job, 8);
  EXPECT_EQ(whole.step, 8);
  EXPECT_EQ(whole.origin.first_step, 0);
  EXPECT_EQ(whole.sums.examples(), 12u);
  EXPECT_GT(whole.sums.loss(), 0);
  EXPECT_FALSE(whole.check);
  EXPECT_EQ(whole.digest.size(), 32u);
  std::vector<std::string> layers;
  for (const LayerNorms& layer : whole.layers) {
    layers.push_back(layer.layer);
    EXPECT_GT(layer.weights, 0) << layer.layer;
    EXPECT_GT(layer.update, 0) << layer.layer;
    EXPECT_GT(layer.gradient, 0) << layer.layer;
  }
  EXPECT_THAT(layers, ElementsAre("hidden", "batch_normalization", "out"));
  EXPECT_NE(Replayed(job, 7).digest, whole.digest);
  EXPECT_EQ(Replayed(JobOf(Spec(data, "deterministic: false")), 8).digest, whole.digest) << "on a CPU it is no matter";
  EXPECT_EQ(Replayed(JobOf(Spec(data, "strategy: CENTRAL_STORAGE")), 8).digest, whole.digest)
      << "computed with the variables in memory";
}

// The norm is over all partitions, summed in an order that does not depend on them.
TEST(Replay, TheSameBitsForAnyPartitions) {
  const std::string data = WriteCsv("partitions.csv");
  std::vector<std::string> digests;
  for (const char* clip : {"", "optimizer { global_clipnorm: 0.01 }"}) {
    const v1::JobSpec spec = Spec(data, clip);
    const v1::JobStatus cut = JobOf(spec, 4096), whole = JobOf(spec, 1 << 20);
    ASSERT_GT(cut.partitions_size(), whole.partitions_size());
    digests.push_back(Replayed(cut, 8).digest);
    EXPECT_EQ(Replayed(whole, 8).digest, digests.back()) << clip;
  }
  EXPECT_NE(digests[0], digests[1]) << "it was clipped";
}

// ---- learning rates that a callback decides ----

// Two epochs of 5 steps have closed.
v1::JobStatus ReducedJob(const std::string& data) {
  v1::JobStatus job =
      JobOf(Spec(data, "callbacks { reduce_lr_on_plateau { monitor: \"loss\" patience: 1 factor: 0.5 } }"));
  for (const float rate : {0.01f, 0.01f}) job.add_epochs()->set_learning_rate(rate);
  return job;
}

TEST(Replay, TheRateOfTheRunningEpochIsUsedOnceTheOneBeforeHasClosed) {
  v1::JobStatus job = ReducedJob(WriteCsv("rates.csv"));
  job.set_step(13);
  job.set_learning_rate(0.005f);
  EXPECT_FLOAT_EQ(static_cast<float>(Replayed(job, 9).learning_rate), 0.01f);
  EXPECT_FLOAT_EQ(static_cast<float>(Replayed(job, 12).learning_rate), 0.005f);
  job.mutable_epochs()->RemoveLast();  // step 10 is done, but the figures of its epoch have not come
  EXPECT_THAT(ReplayStep(job, At(12)).status().message(), HasSubstr("epoch 2 is not decided yet"));
  EXPECT_FLOAT_EQ(static_cast<float>(Replayed(job, 4).learning_rate), 0.01f);
  job = ReducedJob(WriteCsv("rates.csv"));
  job.set_step(13);  // ended by an older coordinator, which stored no rate
  EXPECT_THAT(ReplayStep(job, At(12)).status().message(), HasSubstr("the learning rate of epoch 3 is not known"));
}

TEST(Replay, AComparisonDoesNotRunIntoAnEpochOfAnUnknownRate) {
  v1::JobStatus job = ReducedJob(WriteCsv("undecided.csv"));
  job.mutable_epochs()->RemoveLast();
  job.set_step(7);
  v1::StepDigest& recorded = *job.add_step_digests();
  recorded.set_step(7);
  recorded.set_digest(std::string(32, '0'));
  EXPECT_FALSE(Replayed(job, 3).check) << "no rate was stored";
}

TEST(Replay, ADigestIsComparedAtItsStepOrTheNextThatHasOne) {
  v1::JobStatus job = JobOf(Spec(WriteCsv("compared.csv")));
  v1::StepDigest& recorded = *job.add_step_digests();
  recorded.set_step(9);
  recorded.set_digest(Replayed(job, 8).digest);
  for (const int64_t step : {8, 5}) {
    const ReplayResult result = Replayed(job, step);
    ASSERT_TRUE(result.check);
    EXPECT_EQ(result.check->updates, 9);
    EXPECT_TRUE(result.check->same());
    EXPECT_EQ(result.step, step);
  }
  EXPECT_FALSE(Replayed(job, 9).check);
  job.mutable_step_digests(0)->set_digest(std::string(32, '0'));
  const ReplayResult other = Replayed(job, 5);
  ASSERT_TRUE(other.check);
  EXPECT_FALSE(other.check->same());
}

TEST(Replay, OtherDataHasOtherBitsOrIsRefused) {
  const v1::JobStatus job = JobOf(Spec(WriteCsv("own.csv")));
  ReplayOptions options = At(4);
  options.source.data = WriteCsv("other.csv", kPoisoned);
  const absl::StatusOr<ReplayResult> other = ReplayStep(job, options);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_NE(other->digest, Replayed(job, 4).digest);
  options.source.data = testing::TempDir() + "/short.csv";
  std::ofstream(options.source.data) << "1,2,3,4,0\n1,2,3,4,1\n1,2,3,4,2\n";
  EXPECT_THAT(ReplayStep(job, options).status().message(),
              HasSubstr("holds 3 training examples here, but the job was trained on 60; give its data with --data"));
}

TEST(Replay, TheFirstExampleAndLayerThatAreNotFinite) {
  const v1::JobStatus job = JobOf(Spec(WriteCsv("poisoned.csv", kPoisoned)));
  const absl::StatusOr<FindResult> result = FindNotFinite(job, At(job.total_steps() - 1));
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_TRUE(result->found);
  const StepPlan plan = StepPlan::Of(job.spec(), kExamples);
  int64_t expected = -1;
  for (int64_t step = 0; step < plan.steps_per_epoch && expected < 0; ++step) {
    const ExampleOrder order(job.spec().seed(), true, plan, step);
    for (int32_t r = 0; r < plan.replicas; ++r) {
      const PlaceRange places = plan.Places(step, ReplicaId(r));
      for (int64_t place = places.begin; place < places.end; ++place) {
        if (order(place) == kPoisoned) expected = step;
      }
    }
  }
  EXPECT_EQ(result->found->step, expected);
  EXPECT_EQ(result->last_step, expected);
  EXPECT_EQ(result->found->kind, NotFinite::Kind::kOutput);
  EXPECT_EQ(result->found->name, "scaled");
  ASSERT_TRUE(result->found->example);
  EXPECT_EQ(*result->found->example, kPoisoned);
  EXPECT_TRUE(result->found->replica);
}

TEST(Replay, ALayerIsFoundThatSharesItsVariables) {
  v1::JobSpec spec = Spec(WriteCsv("shared.csv", kPoisoned));
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(layers { name: "x" input { shape: 4 } }
         layers { name: "a" inputs: "x" dense { units: 4 kernel_initializer { kind: ONES } } }
         layers { name: "lifted" inputs: "x" rescaling { scale: 1 offset: 2e37 } }
         layers { name: "b" inputs: "lifted" shares: "a" }
         layers { name: "small" rescaling { scale: 1e-37 } }
         layers { name: "of_a" inputs: "a" rescaling { scale: 1e-37 } }
         layers { name: "sum" inputs: "of_a" inputs: "small" add { } }
         layers { name: "out" dense { units: 3 activation: SOFTMAX } })",
      spec.mutable_model()));
  const absl::StatusOr<CheckedJob> checked = CheckJob(spec);
  ASSERT_TRUE(checked.ok()) << checked.status();
  const v1::JobStatus job = JobOf(checked->spec);
  const absl::StatusOr<FindResult> result = FindNotFinite(job, At(job.total_steps() - 1));
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_TRUE(result->found);
  EXPECT_EQ(result->found->kind, NotFinite::Kind::kOutput);
  EXPECT_EQ(result->found->name, "b") << "four inputs of at least 2e37 beside one of 3.2e38";
  EXPECT_THAT(result->found->not_looked_at, IsEmpty());
}

TEST(Replay, NothingIsFoundWhereEverythingIsFinite) {
  const v1::JobStatus job = JobOf(Spec(WriteCsv("finite.csv")));
  const absl::StatusOr<FindResult> result = FindNotFinite(job, At(6));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->found);
  EXPECT_EQ(result->last_step, 6);
}

TEST(Replay, ItEndsWhenTheCallerWantsNoMore) {
  ReplayOptions options = At(6);
  options.go_on = [](int64_t step) { return step < 3; };
  const auto status = ReplayStep(JobOf(Spec(WriteCsv("ended.csv"))), options).status();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
}

TEST(Replay, WhatCannotBeReplayedIsRefused) {
  const std::string data = WriteCsv("refused.csv");
  const struct {
    const char* change;
    const char* error;
  } cases[] = {
      {"strategy: PARAMETER_SERVER", "strategy: the job is asynchronous"},
      {"strategy: PARAMETER_SERVER staleness_bound: 2", "strategy: the job is asynchronous"},
      {"backup_replicas: 1", "backup_replicas: a step has the gradients that came first"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(ReplayStep(JobOf(Spec(data, c.change)), At(3)).status().message(), HasSubstr(c.error)) << c.change;
  }
  v1::JobStatus job = JobOf(Spec(data));
  for (const int64_t step : {int64_t{-1}, job.total_steps()}) {
    EXPECT_THAT(ReplayStep(job, At(step)).status().message(), HasSubstr("--step: job 3 has done 15 steps, but not"));
  }
  ReplayOptions remote = At(3);
  remote.source.data = "s3://bucket/data.csv";
  EXPECT_THAT(ReplayStep(job, remote).status().message(), HasSubstr("give its path with --data"));
  const std::string folder = testing::TempDir() + "/no-checkpoints";
  ASSERT_TRUE(MakeFolders(folder).ok());
  const struct {
    std::string path;
    const char* error;
  } checkpoints[] = {
      {"/nowhere", "--checkpoint: there is no /nowhere"},
      {"s3://bucket/run", "--checkpoint: s3://bucket/run lies on S3"},
      {folder, "holds neither manifest.json nor step-N"},
  };
  for (const auto& c : checkpoints) {
    ReplayOptions from = At(3);
    from.source.checkpoint = c.path;
    const absl::Status status = ReplayStep(job, from).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr(c.error));
  }
  job.mutable_spec()->set_resume_from("/nowhere/step-5");
  EXPECT_THAT(ReplayStep(job, At(3)).status().message(), HasSubstr("there is no checkpoint before step 3"));
  job = JobOf(Spec(data));
  job.clear_partitions();
  EXPECT_THAT(ReplayStep(job, At(3)).status().message(), HasSubstr("has not begun"));
}

TEST(Replay, AutoIsTheKindOfDeviceThatTheJobRanOn) {
  v1::JobStatus job = JobOf(Spec(WriteCsv("device.csv")));
  ReplayOptions options = At(1);
  options.device = "auto";
  job.add_devices(v1::CPU);
  const absl::StatusOr<ReplayResult> on_cpu = ReplayStep(job, options);
  ASSERT_TRUE(on_cpu.ok()) << on_cpu.status();
  EXPECT_THAT(on_cpu->origin.device, HasSubstr("cpu"));
  job.set_devices(0, v1::GPU);
  const absl::StatusOr<ReplayResult> on_gpu = ReplayStep(job, options);
  if (SelectBackend("gpu").ok()) {
    ASSERT_TRUE(on_gpu.ok()) << on_gpu.status();
    EXPECT_THAT(on_gpu->origin.device, Not(HasSubstr("cpu")));
  } else {
    EXPECT_THAT(on_gpu.status().message(), HasSubstr("--device: job 3 ran on a GPU, and there is none here"));
  }
}

TEST(Replay, AModelUpToALayerHasWhatItsOutputIsComputedFrom) {
  v1::Model model;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(layers { name: "x" input { shape: 4 } }
         layers { name: "y" input { shape: 3 } }
         layers { name: "a" inputs: "x" dense { units: 5 } }
         layers { name: "b" inputs: "y" dense { units: 5 } }
         layers { name: "c" inputs: "a" inputs: "b" add { } }
         layers { name: "d" dense { units: 5 } }
         layers { name: "e" inputs: "b" shares: "d" }
         layers { name: "f" inputs: "d" inputs: "e" add { } }
         layers { dense { units: 2 } })",
      &model));
  const absl::StatusOr<Graph> graph = Graph::Build(model);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto names = [&](int node) {
    std::vector<std::string> found;
    const v1::Model part = ModelUpTo(*graph, node);
    for (const v1::Layer& layer : part.layers()) found.push_back(layer.name());
    return found;
  };
  EXPECT_THAT(names(3), ElementsAre("y", "b"));
  EXPECT_THAT(names(4), ElementsAre("x", "y", "a", "b", "c"));
  EXPECT_THAT(names(6), ElementsAre("y", "b", "e")) << "without the layer whose variables it shares";
  for (const Node& node : graph->nodes()) {
    if (node.kind == LayerKind::kInput) continue;
    const absl::StatusOr<Graph> part = Graph::Build(ModelUpTo(*graph, node.id));
    ASSERT_TRUE(part.ok()) << node.name << ": " << part.status();
    EXPECT_EQ(part->output().name, node.name);
  }
}

}  // namespace
}  // namespace cairn
