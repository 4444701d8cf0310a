// Goal: a program of the cuDNN backend weights examples, skips ignored positions and counts on the host the metrics
// that its kernels do not know, and takes losses of batches with labels of any length, as the reference does, whenever
// its copies are done.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/backend/beside_reference.h"
#include "tests/unit/backend/cudnn_host_machine.h"
#include "tests/unit/backend/layer_cases.h"
#include "worker/backend/cudnn/program.h"
#include "worker/backend/reference/reference_backend.h"

namespace cairn {
namespace {

using cudnn::HostMachine;

constexpr char kPixels[] =
    "layers { input { shape: [4, 5, 2] } } layers { conv2d { filters: 6 kernel_size: 3 padding: SAME activation: TANH "
    "} "
    "} layers { conv2d { filters: 3 kernel_size: 1 activation: SOFTMAX } }";

Batch Weighted(const Batch& batch) {
  Batch weighted = batch;
  const size_t labels = batch.labels.floats().size();
  weighted.labels = Buffer::Allocate((labels + static_cast<size_t>(batch.examples)) * sizeof(float));
  const absl::Span<float> to = weighted.labels.mutable_floats();
  std::copy(batch.labels.floats().begin(), batch.labels.floats().end(), to.begin());
  for (size_t e = 0; e < static_cast<size_t>(batch.examples); ++e) to[labels + e] = 0.25f + static_cast<float>(e);
  return weighted;
}

TEST(CudnnLoss, WeightsIgnoredPositionsAndMetricsAreThoseOfTheReference) {
  const auto graph = std::make_shared<const Graph>(Graph::Build(FromText<v1::Model>(kPixels)).value());
  for (const char* text :
       {"kind: SPARSE_CATEGORICAL_CROSSENTROPY ignore_class: 1", "kind: SPARSE_CATEGORICAL_CROSSENTROPY",
        "kind: CATEGORICAL_FOCAL_CROSSENTROPY", "kind: MEAN_SQUARED_ERROR", "kind: DICE axis: [1, 2, 3]"}) {
    for (const bool counted : {false, true}) {
      for (const auto copies : {HostMachine::Copies::kEarly, HostMachine::Copies::kLate}) {
        SCOPED_TRACE(testing::Message() << text << (counted ? ", with AUC" : ""));
        ProgramOptions options;
        options.batch_max = 5;
        options.loss = FromText<v1::Loss>(text);
        options.metrics = {FromText<v1::Metric>("kind: ACCURACY")};
        if (counted) {
          options.metrics.push_back(FromText<v1::Metric>("kind: AUC num_thresholds: 7"));
          options.metrics.push_back(FromText<v1::Metric>("kind: MEAN_IOU num_classes: 3"));
        }
        auto reference = MakeReferenceBackend()->Compile(graph, options).value();
        const cudnn::Precision precision = cudnn::PrecisionOf(options).value();
        auto program = cudnn::MakeProgram(graph, options, precision, std::make_unique<HostMachine>(precision, copies));
        ASSERT_TRUE(program.ok()) << program.status();
        const std::vector<float> values = CaseValues(*graph, 5);
        const Batch plain = CaseBatch(*graph, options.loss, 4, 7);
        for (const Batch& batch : {plain, Weighted(plain)}) {
          for (int again = 0; again < 2; ++again) {  // then what was recorded
            std::vector<float> want(values.size()), got(values.size(), NAN);
            const auto expected = reference->TrainStep(batch, {}, values, absl::MakeSpan(want), nullptr);
            const auto actual = (*program)->TrainStep(batch, {}, values, absl::MakeSpan(got), nullptr);
            ASSERT_TRUE(expected.ok() && actual.ok()) << expected.status() << actual.status();
            EXPECT_NEAR(actual->loss, expected->loss, 1e-5 * (1 + std::abs(expected->loss)));
            ASSERT_EQ(actual->metrics.size(), expected->metrics.size());
            for (size_t m = 0; m < expected->metrics.size(); ++m)
              EXPECT_NEAR(actual->metrics[m], expected->metrics[m], 1e-6) << m;
            for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-5 * (1 + std::abs(want[i]))) << i;
          }
          const auto expected = reference->Evaluate(batch, values), actual = (*program)->Evaluate(batch, values);
          ASSERT_TRUE(expected.ok() && actual.ok()) << expected.status() << actual.status();
          EXPECT_NEAR(actual->loss, expected->loss, 1e-5 * (1 + std::abs(expected->loss)));
          for (size_t m = 0; m < expected->metrics.size(); ++m)
            EXPECT_NEAR(actual->metrics[m], expected->metrics[m], 1e-6) << m;
        }
      }
    }
  }
}

// Sequences of labels in turns of few numbers and of more than the output has, filled up with 0; the pairs of batches
// of several sizes.
TEST(CudnnLoss, LossesOfBatchesAreThoseOfTheReference) {
  struct BatchCase {
    const char *layers, *loss;
    std::vector<int64_t> label_sizes;
  };
  for (const BatchCase& c :
       {BatchCase{"layers { input { shape: [7, 2] } } layers { conv1d { filters: 4 kernel_size: 1 } }",
                  "kind: CTC",
                  {3, 40, 3, 40}},
        BatchCase{"layers { input { shape: 5 } } layers { dense { units: 4 } } layers { unit_normalization {} }",
                  "kind: CIRCLE gamma: 4",
                  {1, 1}}}) {
    for (const auto copies : {HostMachine::Copies::kEarly, HostMachine::Copies::kLate}) {
      SCOPED_TRACE(c.loss);
      const auto graph = std::make_shared<const Graph>(Graph::Build(FromText<v1::Model>(c.layers)).value());
      ProgramOptions options;
      options.batch_max = 6;
      options.loss = FromText<v1::Loss>(c.loss);
      auto reference = MakeReferenceBackend()->Compile(graph, options).value();
      const cudnn::Precision precision = cudnn::PrecisionOf(options).value();
      auto program = cudnn::MakeProgram(graph, options, precision, std::make_unique<HostMachine>(precision, copies));
      ASSERT_TRUE(program.ok()) << program.status();
      const std::vector<float> values = CaseValues(*graph, 5);
      for (const int64_t label_size : c.label_sizes) {
        for (const int64_t examples : {6, 2}) {
          Batch plain = CaseBatch(*graph, options.loss, examples, 7);
          std::vector<float> labels(static_cast<size_t>(examples * label_size), 0.0f);
          for (int64_t i = 0; i < examples * plain.label_size; ++i)
            labels[i / plain.label_size * label_size + i % plain.label_size] = plain.labels.floats()[i];
          plain.labels = Buffer::CopyOf(labels.data(), labels.size() * sizeof(float));
          plain.label_size = label_size;
          for (const Batch& batch : {plain, plain, Weighted(plain)}) {
            std::vector<float> want(values.size()), got(values.size(), NAN);
            const auto expected = reference->TrainStep(batch, {}, values, absl::MakeSpan(want), nullptr);
            const auto actual = (*program)->TrainStep(batch, {}, values, absl::MakeSpan(got), nullptr);
            ASSERT_TRUE(expected.ok() && actual.ok()) << expected.status() << actual.status();
            EXPECT_NEAR(actual->loss, expected->loss, 1e-5 * (1 + std::abs(expected->loss)));
            for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-5 * (1 + std::abs(want[i]))) << i;
            const auto evaluated = reference->Evaluate(batch, values), own = (*program)->Evaluate(batch, values);
            ASSERT_TRUE(evaluated.ok() && own.ok()) << evaluated.status() << own.status();
            EXPECT_NEAR(own->loss, evaluated->loss, 1e-5 * (1 + std::abs(evaluated->loss)));
          }
        }
      }
    }
  }
}

TEST(CudnnLoss, SequencesThatTheStepsCannotGiveAreRefused) {
  const auto graph = std::make_shared<const Graph>(
      Graph::Build(FromText<v1::Model>("layers { input { shape: [4, 2] } } layers { conv1d { filters: 3 kernel_size: 1 "
                                       "} }"))
          .value());
  ProgramOptions options;
  options.batch_max = 1;
  options.loss = FromText<v1::Loss>("kind: CTC");
  const cudnn::Precision precision = cudnn::PrecisionOf(options).value();
  auto program = cudnn::MakeProgram(graph, options, precision, std::make_unique<HostMachine>(precision)).value();
  auto reference = MakeReferenceBackend()->Compile(graph, options).value();
  Batch batch = CaseBatch(*graph, options.loss, 1, 7);
  std::fill(batch.labels.mutable_floats().begin(), batch.labels.mutable_floats().end(), 1.0f);  // three equal ones
  const std::vector<float> values = CaseValues(*graph, 5);
  const absl::Status expected = reference->Evaluate(batch, values).status();
  EXPECT_TRUE(absl::IsInvalidArgument(expected)) << expected;
  EXPECT_EQ(program->Evaluate(batch, values).status(), expected);
}

// A program of CTC on a machine that tells what it was asked for.
class CudnnSequences : public testing::Test {
 protected:
  void Make(const std::string& layers, int64_t batch_max) {
    graph_ = std::make_shared<const Graph>(Graph::Build(FromText<v1::Model>(layers)).value());
    options_.batch_max = batch_max;
    options_.loss = FromText<v1::Loss>("kind: CTC");
    const cudnn::Precision precision = cudnn::PrecisionOf(options_).value();
    auto machine = std::make_unique<HostMachine>(precision);
    machine_ = machine.get();
    program_ = cudnn::MakeProgram(graph_, options_, precision, std::move(machine)).value();
    reference_ = MakeReferenceBackend()->Compile(graph_, options_).value();
    values_ = CaseValues(*graph_, 5);
  }
  // label_size: numbers of an example's labels, of which so many are labels.
  Batch Sequences(int64_t label_size, int64_t count) const {
    Batch batch = CaseBatch(*graph_, options_.loss, options_.batch_max, 7);
    std::vector<float> labels(static_cast<size_t>(batch.examples * label_size), 0.0f);
    for (int64_t e = 0; e < batch.examples; ++e) {
      for (int64_t i = 0; i < count; ++i) labels[e * label_size + i] = static_cast<float>(1 + (e + i) % 2);
    }
    batch.labels = Buffer::CopyOf(labels.data(), labels.size() * sizeof(float));
    batch.label_size = label_size;
    return batch;
  }
  void ExpectTrainsAsReference(const Batch& batch) {
    std::vector<float> want(values_.size()), got(values_.size(), NAN);
    const auto expected = reference_->TrainStep(batch, {}, values_, absl::MakeSpan(want), nullptr);
    const auto actual = program_->TrainStep(batch, {}, values_, absl::MakeSpan(got), nullptr);
    ASSERT_TRUE(expected.ok() && actual.ok()) << expected.status() << actual.status();
    EXPECT_NEAR(actual->loss, expected->loss, 1e-5 * (1 + std::abs(expected->loss)));
    EXPECT_LE(Distance(got, want), 1e-4 * Norm(want));
  }
  void ExpectEvaluatesAsReference(const Batch& batch) {
    const auto expected = reference_->Evaluate(batch, values_), actual = program_->Evaluate(batch, values_);
    ASSERT_TRUE(expected.ok() && actual.ok()) << expected.status() << actual.status();
    EXPECT_NEAR(actual->loss, expected->loss, 1e-5 * (1 + std::abs(expected->loss)));
  }

  std::shared_ptr<const Graph> graph_;
  ProgramOptions options_;
  std::unique_ptr<Program> program_, reference_;
  HostMachine* machine_ = nullptr;
  std::vector<float> values_;
};

// Labels as long as the steps would need some megabytes here, and of thousands of steps more than a GPU has.
TEST_F(CudnnSequences, NeedTheMemoryThatTheirLabelsNeed) {
  Make("layers { input { shape: [200, 2] } } layers { conv1d { filters: 3 kernel_size: 1 } }", 4);
  EXPECT_LT(program_->memory_bytes(), 256u << 10);
  const Batch few = Sequences(3, 2), many = Sequences(60, 60);
  for (int again = 0; again < 2; ++again) {  // then what was recorded
    ExpectTrainsAsReference(few);
    ExpectEvaluatesAsReference(few);
  }
  EXPECT_LT(program_->memory_bytes(), 256u << 10);
  const int recorded = machine_->recorded();
  EXPECT_GT(recorded, 0);
  ExpectTrainsAsReference(many);
  EXPECT_GT(program_->memory_bytes(), 512u << 10);
  ExpectEvaluatesAsReference(few);
  ExpectTrainsAsReference(few);
  EXPECT_EQ(machine_->recorded(), 2 * recorded) << "what was recorded points to memory that is gone";
  for (int again = 0; again < 2; ++again) {
    ExpectEvaluatesAsReference(many);
    ExpectTrainsAsReference(many);
  }
}

// The first layer makes the arena of a training step so large that more labels need no larger one.
TEST_F(CudnnSequences, WithMoreLabelsAllThatPointsToThemIsRecordedAnew) {
  Make(
      "layers { input { shape: [7, 2] } } layers { conv1d { filters: 512 kernel_size: 1 activation: TANH } } "
      "layers { conv1d { filters: 3 kernel_size: 1 } }",
      6);
  const Batch few = Sequences(3, 2), many = Sequences(40, 4);
  ExpectTrainsAsReference(few);
  for (int again = 0; again < 2; ++again) ExpectEvaluatesAsReference(few);
  const int recorded = machine_->recorded();
  EXPECT_GT(recorded, 0);
  const uint64_t bytes = program_->memory_bytes();
  ExpectEvaluatesAsReference(many);
  EXPECT_GT(program_->memory_bytes(), bytes) << "there was room for the labels";
  EXPECT_LT(program_->memory_bytes(), bytes + (1 << 10)) << "the arena grew too, and drops what was recorded";
  EXPECT_EQ(machine_->recorded(), recorded) << "the first time nothing is recorded";
  ExpectEvaluatesAsReference(few);
  EXPECT_EQ(machine_->recorded(), 2 * recorded) << "what was recorded points to labels that are gone";
}

TEST_F(CudnnSequences, LabelsWithoutPinnedMemoryAreAnErrorUntilThereIsSome) {
  Make("layers { input { shape: [7, 2] } } layers { conv1d { filters: 3 kernel_size: 1 } }", 6);
  const Batch few = Sequences(3, 2), many = Sequences(40, 4);
  ExpectTrainsAsReference(few);
  machine_->RefusePinned(true);
  for (const Batch& batch : {many, many, few}) {
    const absl::Status status = program_->Evaluate(batch, values_).status();
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  }
  machine_->RefusePinned(false);
  ExpectEvaluatesAsReference(few);
  ExpectTrainsAsReference(many);
}

}  // namespace
}  // namespace cairn
