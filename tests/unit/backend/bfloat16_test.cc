// Goal: compute_dtype BFLOAT16 gives the gradients of FLOAT32 within its precision, the same bits each time, and an
// error that says what it needs if the processor lacks it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "common/model/initializer.h"
#include "tests/unit/model/model_text.h"
#include "worker/backend/onednn/onednn_backend.h"

namespace cairn {
namespace {

constexpr int64_t kExamples = 24;

std::shared_ptr<const Graph> Model() {
  const auto model = FromText<v1::Model>(R"(
    layers { input { shape: [16, 16, 3] } } layers { conv2d { filters: 32 kernel_size: 3 activation: RELU } }
    layers { conv2d { filters: 32 kernel_size: 3 strides: 2 padding: SAME } } layers { batch_normalization {} }
    layers { activation { activation: RELU } } layers { conv2d { filters: 48 kernel_size: 3 use_bias: false } }
    layers { depthwise_conv2d { kernel_size: 3 } } layers { global_average_pooling2d {} }
    layers { dense { units: 10 activation: SOFTMAX } })");
  return std::make_shared<const Graph>(Graph::Build(model).value());
}

absl::StatusOr<std::unique_ptr<Program>> Compiled(v1::DataType compute) {
  ProgramOptions options;
  options.batch_max = kExamples;
  options.loss.set_kind(v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
  options.compute = compute;
  return MakeOnednnBackend()->Compile(Model(), options);
}

Batch Examples() {
  Batch b;
  b.examples = kExamples;
  b.inputs = Buffer::Allocate(kExamples * 768 * sizeof(float));
  b.labels = Buffer::Allocate(kExamples * sizeof(float));
  for (int64_t i = 0; i < kExamples * 768; ++i) b.inputs.mutable_floats()[i] = std::sin(static_cast<float>(i) * 0.37f);
  for (int64_t i = 0; i < kExamples; ++i) b.labels.mutable_floats()[i] = static_cast<float>(i % 10);
  return b;
}

struct Result {
  double loss = 0;
  std::vector<float> gradient;
};

Result Gradient(Program& program) {
  const auto graph = Model();
  std::vector<float> values(graph->space_size());
  InitializeRange(*graph, 3, 0, absl::MakeSpan(values));
  Result r;
  r.gradient.resize(values.size());
  const auto sums = program.TrainStep(Examples(), {}, values, absl::MakeSpan(r.gradient), [](int64_t, int64_t) {});
  EXPECT_TRUE(sums.ok()) << sums.status();
  r.loss = sums.ok() ? sums->loss : NAN;
  return r;
}

TEST(Bfloat16, GradientsOfFloat32WithinItsPrecision) {
  auto short_program = Compiled(v1::BFLOAT16);
  if (absl::IsUnimplemented(short_program.status())) {
    EXPECT_NE(std::string(short_program.status().message()).find("BFLOAT16 needs AVX-512 BF16 or AMX; use FLOAT32"),
              std::string::npos);
    GTEST_SKIP() << short_program.status().message();
  }
  ASSERT_TRUE(short_program.ok()) << short_program.status();
  auto exact_program = Compiled(v1::FLOAT32);
  ASSERT_TRUE(exact_program.ok());
  const Result exact = Gradient(**exact_program), rounded = Gradient(**short_program);
  EXPECT_NEAR(rounded.loss, exact.loss, 0.01 * exact.loss);
  const auto graph = Model();
  bool differs = false;
  for (const Variable& v : graph->variables()) {
    double norm = 0, difference = 0;
    for (int64_t i = v.offset; i < v.offset + v.size; ++i) {
      norm += double{exact.gradient[i]} * exact.gradient[i];
      difference += std::pow(double{rounded.gradient[i]} - exact.gradient[i], 2);
    }
    differs = differs || difference > 0;
    // Eight bits, amplified by activations that switch and by the normalization. A bias before a normalization has a
    // gradient of 0.
    if (norm > 1e-4) {
      EXPECT_LT(std::sqrt(difference / norm), 0.15) << v.name;
    }
  }
  EXPECT_TRUE(differs) << "nothing was computed in bfloat16";
  const Result again = Gradient(**short_program);
  EXPECT_EQ(std::memcmp(again.gradient.data(), rounded.gradient.data(), again.gradient.size() * sizeof(float)), 0);
}

// With the eight bits of bfloat16, 257 would be read as 256 and 999 as 1000.
TEST(Bfloat16, IdsOfAnEmbeddingAreReadAsTheyAre) {
  const auto model = FromText<v1::Model>(R"(
    layers { input { shape: [4] } } layers { embedding { input_dim: 1000 output_dim: 4 } }
    layers { flatten {} } layers { dense { units: 3 activation: SOFTMAX } })");
  const auto graph = std::make_shared<const Graph>(Graph::Build(model).value());
  ProgramOptions options;
  options.batch_max = 1;
  options.loss.set_kind(v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
  options.compute = v1::BFLOAT16;
  auto program = MakeOnednnBackend()->Compile(graph, options);
  if (absl::IsUnimplemented(program.status())) GTEST_SKIP() << program.status().message();
  ASSERT_TRUE(program.ok()) << program.status();
  const std::vector<float> ids = {257, 999, 511, 3};
  Batch batch;
  batch.examples = 1;
  batch.inputs = Buffer::CopyOf(ids.data(), ids.size() * sizeof(float));
  batch.labels = Buffer::Zeros(sizeof(float));
  std::vector<float> values(graph->space_size(), 0.1f), gradient(graph->space_size());
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
  ASSERT_TRUE((*program)->TrainStep(batch, {}, values, absl::MakeSpan(gradient), nullptr).ok());
  const Variable& table = graph->variables()[0];
  for (int64_t row = 0; row < 1000; ++row) {
    const bool read = std::find(ids.begin(), ids.end(), static_cast<float>(row)) != ids.end();
    EXPECT_EQ(gradient[table.offset + row * 4] != 0, read) << "row " << row;
  }
}

TEST(Bfloat16, OtherTypesAreRefused) {
  const auto program = Compiled(v1::FLOAT16);
  EXPECT_EQ(program.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(std::string(program.status().message()).find("compute_dtype: FLOAT16 is not computed by this worker ("), 0u)
      << program.status();
  EXPECT_NE(std::string(program.status().message()).find("); FLOAT16 needs a GPU; use FLOAT32"), std::string::npos)
      << program.status();
}

}  // namespace
}  // namespace cairn
