// Goal: a program of the cuDNN backend trains a model of several outputs as the reference does: the weighted sum of
// their losses, each output's loss and metrics, the gradients added up where outputs share layers, none of an output
// without a loss; whatever the losses, with weights of examples, penalties and 16 bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/unit/backend/beside_reference.h"
#include "tests/unit/backend/cudnn_host_machine.h"
#include "tests/unit/backend/outputs_subject.h"
#include "worker/backend/cudnn/gpu_backend.h"
#include "worker/backend/reference/reference_backend.h"

namespace cairn {
namespace {

using cudnn::HostMachine;
using ::testing::HasSubstr;

std::unique_ptr<Backend> HostGpu(HostMachine::Copies copies) {
  return cudnn::MakeGpuBackend({{.index = 0, .name = "none", .fingerprint = "host"}}, {},
                               [copies](const cudnn::DeviceInfo&, const cudnn::Precision& precision,
                                        cudnn::Tuner*) -> absl::StatusOr<std::unique_ptr<cudnn::Machine>> {
                                 return std::make_unique<HostMachine>(precision, copies);
                               });
}

void ExpectOutputSums(const BatchSums& actual, const BatchSums& expected) {
  EXPECT_EQ(actual.examples, expected.examples);
  EXPECT_NEAR(actual.loss, expected.loss, 1e-5 * (1 + std::abs(expected.loss)));
  ASSERT_EQ(actual.metrics.size(), expected.metrics.size());
  for (size_t m = 0; m < expected.metrics.size(); ++m)
    EXPECT_NEAR(actual.metrics[m], expected.metrics[m], 1e-5 * (1 + std::abs(expected.metrics[m]))) << m;
}

// The first examples of the batch, with their weights if it has any.
Batch FirstOf(const Batch& batch, int64_t examples) {
  const absl::Span<const float> x = batch.inputs.floats(), y = batch.labels.floats();
  const int64_t numbers = batch.examples * batch.label_size;
  const bool weights = static_cast<int64_t>(y.size()) > numbers;
  std::vector<float> labels(y.begin(), y.begin() + examples * batch.label_size);
  if (weights) labels.insert(labels.end(), y.begin() + numbers, y.begin() + numbers + examples);
  Batch first = batch;
  first.examples = examples;
  first.inputs = Buffer::CopyOf(x.data(), x.size() / batch.examples * examples * sizeof(float));
  first.labels = Buffer::CopyOf(labels.data(), labels.size() * sizeof(float));
  return first;
}

void ExpectOutputsAsReference(const OutputsSubject& s, Program& reference, Program& program, const Batch& batch) {
  const std::vector<float> values = CaseValues(*s.graph, 2);
  std::vector<float> want(values.size()), got(values.size(), NAN);
  const auto expected = reference.TrainStep(batch, {}, values, absl::MakeSpan(want), nullptr);
  const auto actual = program.TrainStep(batch, {}, values, absl::MakeSpan(got), nullptr);
  ASSERT_TRUE(expected.ok() && actual.ok()) << expected.status() << actual.status();
  ExpectOutputSums(*actual, *expected);
  EXPECT_GT(Norm(want), 1e-2);
  for (const Variable& v : s.graph->variables()) {
    for (int64_t i = v.offset; i < v.offset + v.size; ++i)
      EXPECT_NEAR(got[i], want[i], 2e-5 * (1 + std::abs(want[i]))) << v.name << "[" << i - v.offset << "]";
  }
  const auto evaluated = reference.Evaluate(batch, values), own = program.Evaluate(batch, values);
  ASSERT_TRUE(evaluated.ok() && own.ok()) << evaluated.status() << own.status();
  ExpectOutputSums(*own, *evaluated);
  const auto right = reference.Predict(batch, values), predicted = program.Predict(batch, values);
  ASSERT_TRUE(right.ok() && predicted.ok()) << right.status() << predicted.status();
  ASSERT_EQ(predicted->size(), right->size());
  EXPECT_LE(Distance(predicted->floats(), right->floats()), 1e-5 * Norm(right->floats()));
}

// Trains, evaluates and predicts, the second time with what was recorded.
void ExpectOutputsAsReference(const OutputsSubject& s, const std::vector<Batch>& batches, HostMachine::Copies copies) {
  const std::unique_ptr<Backend> gpu = HostGpu(copies);
  const std::unique_ptr<Program> reference = MakeReferenceBackend()->Compile(s.graph, s.options).value();
  const absl::StatusOr<std::unique_ptr<Program>> program = gpu->Compile(s.graph, s.options);
  ASSERT_TRUE(program.ok()) << program.status();
  for (int again = 0; again < 2; ++again) {
    for (const Batch& batch : batches) {
      SCOPED_TRACE(batch.examples);
      ExpectOutputsAsReference(s, *reference, **program, batch);
    }
  }
}

// Losses of sequences and pairs, and metrics that are counted on the host, of rows of which some are ignored.
constexpr char kOddJob[] = R"(
model {
  layers { name: "x" input { shape: 4 } }
  layers { name: "trunk" dense { units: 12 activation: TANH } }
  layers { name: "sound" dense { units: 15 } }
  layers { name: "speech" reshape { target_shape: [5, 3] } }
  layers { name: "wide" inputs: "trunk" dense { units: 8 } }
  layers { name: "map" reshape { target_shape: [4, 2] } }
  layers { name: "rows" activation { activation: SOFTMAX } }
  layers { name: "raw" inputs: "trunk" dense { units: 3 } }
  layers { name: "face" unit_normalization {} }
  outputs: ["speech", "rows", "face"]
}
data { path: "/d" targets { output: "speech" columns: ["s", "t"] } targets { output: "face" columns: "who" }
       targets { output: "rows" columns: ["0", "1", "2", "3"] } }
outputs { output: "speech" loss { kind: CTC } weight: 0.25 }
outputs { output: "rows" loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY ignore_class: 7 } weight: 2
          metrics { kind: ACCURACY } metrics { kind: MEAN_IOU } }
outputs { output: "face" loss { kind: CIRCLE gamma: 4 margin: 0.3 } }
optimizer { sgd {} }
)";

Batch OddBatch(bool weights) {
  return OutputsBatch(weights, [](int e) {
    std::vector<float> own = {static_cast<float>(1 + e % 2), static_cast<float>(e % 3)};
    for (int i = 0; i < 4; ++i) own.push_back((e + i) % 3 == 2 ? 7.0f : static_cast<float>((e * i) % 2));
    own.push_back(static_cast<float>(e % 2));
    return own;
  });
}

class CudnnOutputs : public testing::TestWithParam<bool> {};

TEST_P(CudnnOutputs, AreThoseOfTheReference) {
  for (const auto copies : {HostMachine::Copies::kEarly, HostMachine::Copies::kLate})
    ExpectOutputsAsReference(SubjectOf(kOutputsJob), {SomeBatch(GetParam())}, copies);
}

TEST_P(CudnnOutputs, OfOtherLossesAndOfMetricsOfTheHostAreThoseOfTheReference) {
  for (const auto copies : {HostMachine::Copies::kEarly, HostMachine::Copies::kLate})
    ExpectOutputsAsReference(SubjectOf(kOddJob), {OddBatch(GetParam())}, copies);
}

// The weights of its rows lie behind its own labels, and those of each output behind the ones before.
TEST_P(CudnnOutputs, OfAShortLastBatchAreThoseOfTheReference) {
  for (const auto copies : {HostMachine::Copies::kEarly, HostMachine::Copies::kLate}) {
    const Batch some = SomeBatch(GetParam()), odd = OddBatch(GetParam());
    ExpectOutputsAsReference(SubjectOf(kOutputsJob), {some, FirstOf(some, 3)}, copies);
    ExpectOutputsAsReference(SubjectOf(kOddJob), {odd, FirstOf(odd, 3)}, copies);
  }
}

// A gradient is of the sum of the losses with the loss scale, which comes out again.
TEST_P(CudnnOutputs, SixteenBitsNearTheReference) {
  OutputsSubject s = SubjectOf(kOddJob);
  const Batch batch = OddBatch(GetParam());
  const std::unique_ptr<Program> reference = MakeReferenceBackend()->Compile(s.graph, s.options).value();
  const std::unique_ptr<Backend> gpu = HostGpu(HostMachine::Copies::kLate);
  s.options.compute = v1::FLOAT16;
  const std::unique_ptr<Program> program = gpu->Compile(s.graph, s.options).value();
  const std::vector<float> values = CaseValues(*s.graph, 2);
  std::vector<float> want(values.size()), got(values.size(), NAN);
  StepInfo info;
  info.loss_scale = 64;
  const auto expected = reference->TrainStep(batch, info, values, absl::MakeSpan(want), nullptr);
  const auto actual = program->TrainStep(batch, info, values, absl::MakeSpan(got), nullptr);
  ASSERT_TRUE(expected.ok() && actual.ok()) << expected.status() << actual.status();
  EXPECT_NEAR(actual->loss, expected->loss, 1e-2 * (1 + std::abs(expected->loss)));
  EXPECT_LE(Distance(got, want), 3e-2 * Norm(want));
}

INSTANTIATE_TEST_SUITE_P(Weights, CudnnOutputs, testing::Bool());

TEST(CudnnOutputsOf, LayersWithPenaltiesHaveThemInTheLossOnce) {
  const OutputsSubject s = SubjectOf(R"(
    model { layers { name: "x" input { shape: 4 } }
            layers { name: "a" inputs: "x" dense { units: 2 activity_regularizer { l1: 0.5 } } }
            layers { name: "b" inputs: "x" dense { units: 3 activation: SOFTMAX activity_regularizer { l2: 2 } } }
            layers { name: "c" inputs: "a" dense { units: 1 activation: SIGMOID activity_regularizer { l1: 3 } } }
            outputs: ["c", "a", "b"] }
    data { path: "/d" targets { output: "a" columns: ["p", "q"] } targets { output: "b" columns: "k" }
           targets { output: "c" columns: "l" } }
    outputs { output: "a" loss { kind: MEAN_SQUARED_ERROR } }
    outputs { output: "b" loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY } }
    outputs { output: "c" loss { kind: BINARY_CROSSENTROPY } weight: 0.25 } optimizer { sgd {} })");
  const Batch batch = OutputsBatch(false, [](int e) {
    return std::vector<float>{static_cast<float>(e % 2), 0.4f, -1, static_cast<float>(e % 3)};
  });
  ExpectOutputsAsReference(s, {batch}, HostMachine::Copies::kLate);
}

TEST(CudnnOutputsOf, WhatOnlyAnOutputWithoutALossReadsHasNoGradient) {
  const OutputsSubject s = SubjectOf(R"(
    model { layers { name: "x" input { shape: 4 } } layers { name: "a" inputs: "x" dense { units: 1 } }
            layers { name: "b" inputs: "x" dense { units: 2 activation: SOFTMAX } } outputs: ["b", "a"] }
    data { path: "/d" targets { output: "a" columns: "y" } }
    outputs { output: "a" loss { kind: MEAN_SQUARED_ERROR } } optimizer { sgd {} })");
  const Batch batch = OutputsBatch(false, [](int e) { return std::vector<float>{0.3f * static_cast<float>(e)}; });
  const std::unique_ptr<Backend> gpu = HostGpu(HostMachine::Copies::kEarly);
  const std::unique_ptr<Program> program = gpu->Compile(s.graph, s.options).value();
  const std::vector<float> values = CaseValues(*s.graph, 2);
  std::vector<float> gradients(values.size(), NAN);
  ASSERT_TRUE(program->TrainStep(batch, {}, values, absl::MakeSpan(gradients), nullptr).ok());
  for (const Variable& v : s.graph->variables()) {
    const auto begin = gradients.begin() + v.offset, end = begin + v.size;
    const bool zero = std::all_of(begin, end, [](float g) { return g == 0; });
    EXPECT_EQ(zero, v.name[0] == 'b') << v.name;
  }
}

TEST(CudnnOutputsOf, BadLabelsAreRefusedByTheirOutput) {
  const OutputsSubject s = SubjectOf(kOutputsJob);
  const std::unique_ptr<Backend> gpu = HostGpu(HostMachine::Copies::kLate);
  const std::unique_ptr<Program> program = gpu->Compile(s.graph, s.options).value();
  const std::vector<float> values = CaseValues(*s.graph, 2);
  std::vector<float> gradients(values.size());
  Batch batch = SomeBatch(false);
  batch.labels.mutable_floats()[2] = 3;
  EXPECT_THAT(std::string(program->TrainStep(batch, {}, values, absl::MakeSpan(gradients), nullptr).status().message()),
              HasSubstr("output \"b\": label 3 of example 0"));
  batch.label_size = 6;
  EXPECT_THAT(std::string(program->Evaluate(batch, values).status().message()),
              HasSubstr("the data has 6 target numbers an example, but the losses of the outputs need 7"));
}

}  // namespace
}  // namespace cairn
