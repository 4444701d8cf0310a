// Goal: the promises of backend.h beyond numbers: the same bits from run to run, from program to program and beside
// another program on another thread; several batch sizes in one program; bad batches are refused; names say what
// computes.
#include "worker/backend/onednn/onednn_backend.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/backend/layer_cases.h"
#include "worker/backend/dropout.h"
#include "worker/backend/onednn/depthwise_gradient.h"
#include "worker/backend/onednn/kernels.h"

namespace cairn {
namespace {

const char kModel[] =
    "layers { input { shape: [12, 12, 3] } } layers { rescaling { scale: 0.5 } } "
    "layers { conv2d { filters: 32 kernel_size: 3 activation: RELU } } layers { max_pooling2d {} } "
    "layers { conv2d { filters: 20 kernel_size: 3 use_bias: false } } layers { batch_normalization {} } "
    "layers { activation { activation: RELU } } layers { flatten {} } layers { dropout { rate: 0.5 } } "
    "layers { dense { units: 10 activation: SOFTMAX } }";

class OnednnBackendTest : public testing::Test {
 protected:
  OnednnBackendTest() {
    options_.batch_max = 16;
    options_.loss = FromText<v1::Loss>("kind: SPARSE_CATEGORICAL_CROSSENTROPY");
    options_.metrics = {FromText<v1::Metric>("kind: ACCURACY")};
  }

  std::unique_ptr<Program> Compile() const { return backend_->Compile(graph_, options_).value(); }
  Batch MakeBatch(int64_t examples, uint32_t seed = 1) const {
    return CaseBatch(*graph_, options_.loss, examples, seed);
  }
  // The bytes of the gradients and of the loss.
  std::string Step(Program& program, const Batch& batch, uint64_t step = 1) const {
    std::vector<float> gradients(graph_->space_size(), -1.0f);
    const auto sums = program.TrainStep(batch, {.seed = 1, .step = step}, values_, absl::MakeSpan(gradients), nullptr);
    EXPECT_TRUE(sums.ok()) << sums.status();
    std::string bytes(reinterpret_cast<const char*>(gradients.data()), gradients.size() * sizeof(float));
    if (sums.ok()) bytes.append(reinterpret_cast<const char*>(&sums->loss), sizeof(sums->loss));
    return bytes;
  }

  const std::shared_ptr<const Graph> graph_ = CaseGraph({"Model", kModel});
  const std::unique_ptr<Backend> backend_ = MakeOnednnBackend();
  ProgramOptions options_;
  const std::vector<float> values_ = CaseValues(*graph_, 3);
};

TEST_F(OnednnBackendTest, TheSameBitsWhateverWasComputedBefore) {
  const Batch batch = MakeBatch(16), other = MakeBatch(16, 50), shorter = MakeBatch(5);
  const std::unique_ptr<Program> program = Compile();
  const std::string first = Step(*program, batch);
  const std::string first_short = Step(*program, shorter);
  Step(*program, other);
  ASSERT_TRUE(program->Evaluate(batch, values_).ok());
  ASSERT_TRUE(program->Predict(shorter, values_).ok());
  EXPECT_EQ(Step(*program, batch), first);
  EXPECT_EQ(Step(*program, shorter), first_short);
  const std::unique_ptr<Program> fresh = Compile();
  EXPECT_EQ(Step(*fresh, shorter), first_short);
  EXPECT_EQ(Step(*fresh, batch), first);
  EXPECT_NE(Step(*fresh, batch, 2), first) << "another step drops other numbers";
}

TEST_F(OnednnBackendTest, TheSameBitsBesideOtherPrograms) {
  constexpr int kThreads = 4, kSteps = 8;
  std::vector<std::string> alone;
  const std::unique_ptr<Program> program = Compile();
  for (int s = 0; s < kSteps; ++s) alone.push_back(Step(*program, MakeBatch(16 - s % 3, s), s));
  std::vector<std::vector<std::string>> together(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const std::unique_ptr<Program> own = Compile();
      for (int s = 0; s < kSteps; ++s) together[t].push_back(Step(*own, MakeBatch(16 - s % 3, s), s));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < kThreads; ++t) EXPECT_TRUE(together[t] == alone) << "thread " << t;
}

TEST_F(OnednnBackendTest, TheSameBitsOnAnotherThreadAndWithTwoThreads) {
  options_.threads = 2;
  const Batch batch = MakeBatch(16);
  const std::unique_ptr<Program> program = Compile();
  const std::string here = Step(*program, batch);
  std::string there;
  std::thread([&] { there = Step(*program, batch); }).join();
  EXPECT_EQ(here, there);
}

TEST(DepthwiseGradientTest, TheSameBitsForAnyNumberOfThreads) {
  onednn::DepthwiseShape shape{.examples = 2, .channels = 72, .rows = 9, .columns = 8};
  shape.out_rows = 5, shape.out_columns = 4;
  shape.row_stride = shape.column_stride = shape.pad_top = shape.pad_left = 2;
  for (const int64_t kernel : {5, 7}) {
    shape.kernel = kernel;
    const int64_t padded = 80, taps = kernel * kernel;
    Buffer x = Buffer::Allocate(2 * 9 * 8 * padded * sizeof(float)), dy = Buffer::Allocate(2 * 5 * 4 * padded * 4);
    Buffer scratch = Buffer::Allocate(onednn::DepthwiseScratchNumbers(shape) * sizeof(float));
    uint32_t random = 1;
    for (Buffer* buffer : {&x, &dy}) {
      for (float& v : buffer->mutable_floats()) v = 1e-7f * static_cast<float>((random = random * 1664525 + 1) >> 8);
    }
    std::vector<float> one(taps * 72), three(taps * 72);
    const int before = omp_get_max_threads();
    for (auto [threads, to] : {std::pair(1, &one), std::pair(3, &three)}) {
      omp_set_num_threads(threads);
      onednn::DepthwiseKernelGradient(shape, x.floats().data(), dy.floats().data(), scratch.mutable_floats().data(),
                                      to->data());
    }
    omp_set_num_threads(before);
    EXPECT_EQ(one, three);
  }
}

TEST_F(OnednnBackendTest, ManyBatchSizesInTurn) {
  const std::unique_ptr<Program> program = Compile();
  std::vector<std::string> first;
  for (int64_t n = 1; n <= 16; ++n) first.push_back(Step(*program, MakeBatch(n)));
  const uint64_t memory = program->memory_bytes();
  for (int64_t n = 16; n >= 1; --n) EXPECT_EQ(Step(*program, MakeBatch(n)), first[n - 1]) << n << " examples";
  EXPECT_EQ(program->memory_bytes(), memory);
}

TEST_F(OnednnBackendTest, ValuesAndGradientsMayMove) {
  const std::unique_ptr<Program> program = Compile();
  const Batch batch = MakeBatch(16);
  const std::string expected = Step(*program, batch);
  for (int i = 0; i < 3; ++i) {
    const std::vector<float> moved = values_;
    std::vector<float> gradients(graph_->space_size());
    ASSERT_TRUE(program->TrainStep(batch, {.seed = 1, .step = 1}, moved, absl::MakeSpan(gradients), nullptr).ok());
    EXPECT_EQ(std::memcmp(gradients.data(), expected.data(), gradients.size() * sizeof(float)), 0);
  }
}

TEST_F(OnednnBackendTest, BadBatchesAreRefused) {
  const std::unique_ptr<Program> program = Compile();
  std::vector<float> gradients(graph_->space_size());
  const auto code = [&](const Batch& batch, absl::Span<const float> values, absl::Span<float> out) {
    return program->TrainStep(batch, {}, values, out, nullptr).status().code();
  };
  const absl::Span<float> out = absl::MakeSpan(gradients);
  Batch batch = MakeBatch(16);
  EXPECT_EQ(code(MakeBatch(17), values_, out), absl::StatusCode::kInvalidArgument);
  batch.labels.mutable_floats()[3] = 10;
  EXPECT_EQ(code(batch, values_, out), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(program->Evaluate(batch, values_).status().code(), absl::StatusCode::kInvalidArgument);
  batch = MakeBatch(16);
  batch.inputs = batch.inputs.Slice(0, batch.inputs.size() - 4);
  EXPECT_EQ(code(batch, values_, out), absl::StatusCode::kInvalidArgument);
  batch = MakeBatch(16);
  batch.examples = 0;
  EXPECT_EQ(code(batch, values_, out), absl::StatusCode::kInvalidArgument);
  batch = MakeBatch(16);
  EXPECT_EQ(code(batch, absl::MakeSpan(values_).subspan(16), out), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(batch, values_, out.subspan(16)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(batch, values_, out), absl::StatusCode::kOk);
}

TEST_F(OnednnBackendTest, BadOptionsAreRefused) {
  options_.batch_max = 0;
  EXPECT_EQ(backend_->Compile(graph_, options_).status().code(), absl::StatusCode::kInvalidArgument);
  options_.batch_max = 1;
  options_.threads = 0;
  EXPECT_EQ(backend_->Compile(graph_, options_).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(OnednnBackendTest, SaysWhatComputes) {
  EXPECT_EQ(backend_->name(), "onednn");
  EXPECT_EQ(backend_->device().rfind("cpu: ", 0), 0u) << backend_->device();
  EXPECT_EQ(backend_->fingerprint().rfind("onednn 2.", 0), 0u) << backend_->fingerprint();
  EXPECT_GT(Compile()->memory_bytes(), 0u);
}

// ---- loops of our own ----

TEST(OnednnKernels, DropoutIsTheSharedMask) {
  for (int64_t count : {1, 127, 128, 1000, 100003}) {
    const StepInfo info{.seed = 77, .step = (uint64_t{3} << 32) + 9, .replica = 5};
    std::vector<float> expected(count), actual(count, -1.0f);
    DropoutMask(info, 12, 0.3f).Fill(0, absl::MakeSpan(expected));
    onednn::DropoutFactors(info, 12, 0.3f, count, actual.data());
    EXPECT_TRUE(actual == expected) << count;
  }
}

TEST(OnednnKernels, ReluKeepsNaN) {
  float y[3] = {std::nanf(""), -1, 2};
  onednn::BiasActivation({v1::RELU, 0}, nullptr, y, 1, 3);
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], 0);
  EXPECT_EQ(y[2], 2);
}

}  // namespace
}  // namespace cairn
