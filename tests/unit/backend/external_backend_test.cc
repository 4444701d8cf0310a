// Goal: a program gets the examples, the values and room for gradients of its batch; every number of the gradient is
// announced once, 0 where the program wrote nothing; its mistakes and its own errors end the call with the program's
// name and the whole text.
#include "worker/backend/external/external_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "common/model/example_key.h"
#include "common/model/job_check.h"
#include "tests/unit/model/external_job.h"
#include "tests/unit/model/model_text.h"
#include "worker/backend/onednn/onednn_backend.h"

namespace cairn {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The functions of a test's program; null: it does nothing.
struct Functions {
  std::function<absl::StatusOr<ProgramSums>(const ProgramBatch&, const StepInfo&, absl::Span<const float>,
                                            ProgramGradients&)>
      train;
  std::function<absl::StatusOr<ProgramSums>(const ProgramBatch&)> evaluate;
};

class TestProgram : public ExternalProgram {
 public:
  explicit TestProgram(const Functions& functions) : functions_(functions) {}
  absl::StatusOr<ProgramSums> Train(const ProgramBatch& batch, const StepInfo& info, absl::Span<const float> values,
                                    ProgramGradients& gradients) override {
    return functions_.train(batch, info, values, gradients);
  }
  absl::StatusOr<ProgramSums> Evaluate(const ProgramBatch& batch, absl::Span<const float>) override {
    return functions_.evaluate(batch);
  }
  absl::Status Predict(const ProgramBatch& batch, absl::Span<const float>, absl::Span<float> outputs) override {
    for (size_t i = 0; i < outputs.size(); ++i) outputs[i] = static_cast<float>(batch.indices[i / 3]);
    return absl::OkStatus();
  }

 private:
  const Functions functions_;
};

class ExternalBackendTest : public ::testing::Test {
 protected:
  ExternalBackendTest() {
    absl::StatusOr<CheckedJob> job = CheckJob(FromText<v1::JobSpec>(kExternalJob));
    CAIRN_CHECK(job.ok(), "the test's own job");
    graph_ = std::make_shared<const Graph>(std::move(job->graph));
    values_.resize(static_cast<size_t>(graph_->space_size()));
    std::iota(values_.begin(), values_.end(), 0.0f);
    gradients_.resize(values_.size(), 7.0f);
    batch_.examples = 2;
    batch_.label_size = 0;
    batch_.element = Element::kByte;
    batch_.inputs = Buffer::Allocate(2 * kExampleKeyBytes);
    WriteExampleKey({v1::VALIDATION, 5}, batch_.inputs.mutable_data());
    WriteExampleKey({v1::VALIDATION, 1000000}, batch_.inputs.mutable_data() + kExampleKeyBytes);
  }

  std::unique_ptr<Program> Compile(const Functions& functions) {
    auto backend =
        ExternalBackend::Make({{"lenet", "1",
                                [functions](const ProgramJob&) -> absl::StatusOr<std::unique_ptr<ExternalProgram>> {
                                  return std::make_unique<TestProgram>(functions);
                                }}},
                              {});
    CAIRN_CHECK(backend.ok(), "a good registration");
    backend_ = *std::move(backend);
    auto program = backend_->Compile(graph_, {});
    CAIRN_CHECK(program.ok(), "the program is there");
    return *std::move(program);
  }

  absl::StatusOr<BatchSums> Train(const Functions& functions) {
    StepInfo info;
    info.step = 9;
    return Compile(functions)->TrainStep(batch_, info, values_, absl::MakeSpan(gradients_),
                                         [this](int64_t begin, int64_t end) { announced_.emplace_back(begin, end); });
  }

  std::shared_ptr<const Graph> graph_;
  std::unique_ptr<ExternalBackend> backend_;
  std::vector<float> values_, gradients_;
  Batch batch_;
  std::vector<std::pair<int64_t, int64_t>> announced_;
};

TEST_F(ExternalBackendTest, ABatch) {
  Functions functions;
  functions.train = [&](const ProgramBatch& batch, const StepInfo& info, absl::Span<const float> values,
                        ProgramGradients& gradients) -> absl::StatusOr<ProgramSums> {
    EXPECT_THAT(batch.indices, ElementsAre(5, 1000000));
    EXPECT_EQ(batch.split, v1::VALIDATION);
    EXPECT_EQ(batch.examples, 2);
    EXPECT_EQ(info.step, 9u);
    EXPECT_EQ(values[3], 3.0f);
    EXPECT_EQ(gradients.Of(1).size(), 2u);
    gradients.Of(1)[0] = 4;
    EXPECT_TRUE(gradients.Final(1).ok());
    EXPECT_THAT(announced_, ElementsAre(std::pair<int64_t, int64_t>(16, 32))) << "while the rest is computed";
    EXPECT_EQ(gradients.Final(1).message(), "variable \"bn.running_mean\" is said to be final twice");
    EXPECT_EQ(gradients.Final(2).message(), "variable 2 is said to be final, but there are 0 .. 1");
    return ProgramSums{3.5, {1}};
  };
  const absl::StatusOr<BatchSums> sums = Train(functions);
  ASSERT_TRUE(sums.ok()) << sums.status();
  EXPECT_EQ(sums->examples, 2u);
  EXPECT_EQ(sums->loss, 3.5);
  EXPECT_THAT(sums->metrics, ElementsAre(1));
  EXPECT_THAT(announced_, ElementsAre(std::pair<int64_t, int64_t>(16, 32), std::pair<int64_t, int64_t>(0, 16)));
  EXPECT_EQ(gradients_[16], 4.0f);
  gradients_[16] = 0;
  EXPECT_THAT(gradients_, Each(0.0f)) << "what nobody wrote, padding too";
}

TEST_F(ExternalBackendTest, WhatIsFrozenHasNoGradient) {
  v1::JobSpec spec = FromText<v1::JobSpec>(kExternalJob);
  spec.mutable_model()->mutable_layers(1)->mutable_external()->mutable_variables(1)->Clear();
  *spec.mutable_model()->mutable_layers(1)->mutable_external()->mutable_variables(1) =
      FromText<v1::ExternalVariable>("name: 'x' shape: 2 kind: FROZEN");
  absl::StatusOr<CheckedJob> job = CheckJob(spec);
  ASSERT_TRUE(job.ok()) << job.status();
  graph_ = std::make_shared<const Graph>(std::move(job->graph));
  Functions functions;
  functions.train = [](const ProgramBatch&, const StepInfo&, absl::Span<const float>,
                       ProgramGradients& gradients) -> absl::StatusOr<ProgramSums> {
    std::fill(gradients.Of(1).begin(), gradients.Of(1).end(), 5.0f);
    return ProgramSums{0, {0}};
  };
  ASSERT_TRUE(Train(functions).ok());
  EXPECT_THAT(gradients_, Each(0.0f));
}

TEST_F(ExternalBackendTest, ErrorsNameTheProgram) {
  Functions functions;
  functions.train = [](auto&&...) -> absl::StatusOr<ProgramSums> { return absl::InternalError("KeyError: 'x'\nat 3"); };
  const absl::StatusOr<BatchSums> raised = Train(functions);
  EXPECT_TRUE(absl::IsUnavailable(raised.status())) << "another worker may have a better one";
  EXPECT_EQ(raised.status().message(), "program \"lenet\" version \"1\": KeyError: 'x'\nat 3");
  functions.train = [](auto&&...) -> absl::StatusOr<ProgramSums> { return ProgramSums{1, {}}; };
  EXPECT_EQ(Train(functions).status().message(),
            "program \"lenet\" version \"1\": it gave 0 figures, model.external.figures names 1");
  functions.evaluate = [](const ProgramBatch&) -> absl::StatusOr<ProgramSums> {
    return absl::CancelledError("stopped");
  };
  EXPECT_TRUE(absl::IsCancelled(Compile(functions)->Evaluate(batch_, values_).status()));
  batch_.inputs = Buffer::Allocate(1);
  EXPECT_EQ(Train(functions).status().message(), "a batch of data.external holds no keys of examples");
}

TEST_F(ExternalBackendTest, Predicts) {
  const absl::StatusOr<Buffer> outputs = Compile({})->Predict(batch_, values_);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_THAT(outputs->floats(), ElementsAre(5, 5, 5, 1000000, 1000000, 1000000));
  v1::JobSpec spec = FromText<v1::JobSpec>(kExternalJob);
  spec.mutable_model()->mutable_layers(1)->mutable_external()->clear_output_shape();
  absl::StatusOr<CheckedJob> job = CheckJob(spec);
  ASSERT_TRUE(job.ok()) << job.status();
  graph_ = std::make_shared<const Graph>(std::move(job->graph));
  EXPECT_THAT(std::string(Compile({})->Predict(batch_, values_).status().message()),
              HasSubstr("model.external.output_shape: missing, so that the job's program makes no predictions"));
}

TEST_F(ExternalBackendTest, OtherProgramsAndLayersAreRefused) {
  const auto open = [](const ProgramJob&) -> absl::StatusOr<std::unique_ptr<ExternalProgram>> {
    return absl::InternalError("no such file");
  };
  EXPECT_EQ(ExternalBackend::Make({}, {}).status().message(), "programs: none; a worker has one at least");
  EXPECT_EQ(ExternalBackend::Make({{"a", "1", open}, {"a", "1", open}}, {}).status().message(),
            "programs[1]: \"a\" version \"1\" twice; give it once");
  EXPECT_EQ(
      ExternalBackend::Make({{"a/b", "1", open}}, {}).status().message(),
      "programs[0]: name and version are 1 to 63 letters, digits, '-', '_' and '.'; it has \"a/b\" version \"1\"");
  auto backend = ExternalBackend::Make({{"lenet", "2", open}}, {});
  ASSERT_TRUE(backend.ok());
  EXPECT_EQ((*backend)->Compile(graph_, {}).status().message(),
            "layer \"external\": this worker has no program \"lenet\" version \"1\"");
  backend = ExternalBackend::Make({{"lenet", "1", open}}, {});
  EXPECT_EQ((*backend)->Compile(graph_, {}).status().message(),
            "program \"lenet\" version \"1\", when it was opened: no such file");
  const auto layers = Graph::Build(FromText<v1::Model>("layers { input { shape: 8 } } layers { dense { units: 1 } }"));
  EXPECT_EQ((*backend)->Compile(std::make_shared<const Graph>(*layers), {}).status().message(),
            "layer \"dense\": this worker has programs of its own and computes no layers; start a cairn-worker");
  EXPECT_EQ(
      MakeOnednnBackend()->Compile(graph_, {}).status().message(),
      "layer \"external\": it needs the program \"lenet\" version \"1\", which the backend onednn has not; start a "
      "worker with it");
}

}  // namespace
}  // namespace cairn
