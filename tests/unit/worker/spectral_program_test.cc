// Goal: a step is computed with the kernels that spectral normalization divides, and in no other type than theirs;
// evaluations and predictions with the values as they are; other models are not wrapped.
#include "worker/train/spectral_program.h"

#include <gtest/gtest.h>

#include "common/model/spectral.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

// Notes what it is called with.
class NotingProgram : public Program {
 public:
  absl::StatusOr<BatchSums> TrainStep(const Batch&, const StepInfo& info, absl::Span<const float> values,
                                      absl::Span<float>, const GradientReady&) override {
    type = info.values;
    seen.assign(values.begin(), values.end());
    return BatchSums{1, 10, {}};
  }
  absl::StatusOr<BatchSums> Evaluate(const Batch&, absl::Span<const float> values) override {
    seen.assign(values.begin(), values.end());
    return BatchSums{1, 20, {}};
  }
  absl::StatusOr<Buffer> Predict(const Batch&, absl::Span<const float> values) override {
    seen.assign(values.begin(), values.end());
    return Buffer::Zeros(4);
  }
  uint64_t memory_bytes() const override { return 77; }

  std::vector<float> seen;
  v1::DataType type = v1::DATA_TYPE_UNSPECIFIED;
};

TEST(SpectralProgram, DividesKernelsInTrainingAlone) {
  const Graph graph =
      Graph::Build(
          FromText<v1::Model>(
              "layers { input { shape: 3 } } layers { spectral_normalization { layer { dense { units: 2 } } } } "
              "layers { dense { units: 2 } }"))
          .value();
  std::vector<float> values(static_cast<size_t>(graph.space_size()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = 0.125f * static_cast<float>(i % 7) - 0.25f;
  std::vector<float> divided = values;
  const auto ranges = SpectralRangesOf(graph, 0, graph.space_size());
  NormalizeKernels(ranges, absl::MakeSpan(divided));
  ASSERT_NE(values, divided);
  auto noting = std::make_unique<NotingProgram>();
  NotingProgram& inner = *noting;
  const std::unique_ptr<Program> program = WithSpectralNormalization(std::move(noting), graph);
  std::vector<float> gradients(values.size());
  StepInfo info;
  info.values = v1::BFLOAT16;
  for (int step = 0; step < 2; ++step) {
    ASSERT_TRUE(program->TrainStep(Batch(), info, values, absl::MakeSpan(gradients), [](int64_t, int64_t) {}).ok());
    EXPECT_EQ(inner.seen, divided);
    EXPECT_EQ(inner.type, v1::FLOAT32);
  }
  EXPECT_EQ(program->Evaluate(Batch(), values)->loss, 20);
  EXPECT_EQ(inner.seen, values);
  inner.seen.clear();
  EXPECT_EQ(program->Predict(Batch(), values)->size(), 4u);
  EXPECT_EQ(inner.seen, values);
  EXPECT_EQ(program->memory_bytes(), 77 + values.size() * sizeof(float));
}

TEST(SpectralProgram, OthersAreNotWrapped) {
  for (const char* model :
       {"layers { input { shape: 3 } } layers { dense { units: 2 } }",
        "layers { input { shape: 3 } } layers { training: false spectral_normalization { layer { dense { units: 2 } } "
        "} }"}) {
    const Graph graph = Graph::Build(FromText<v1::Model>(model)).value();
    auto program = std::make_unique<NotingProgram>();
    const Program* const own = program.get();
    EXPECT_EQ(WithSpectralNormalization(std::move(program), graph).get(), own) << model;
  }
}

}  // namespace
}  // namespace cairn
