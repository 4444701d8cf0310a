// Goal: a program that requests its values layer by layer reads nothing before it was granted and nothing after it was
// returned, and computes the same bits: values that it may not read are NaN here.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "tests/unit/backend/layer_cases.h"
#include "worker/backend/onednn/onednn_backend.h"

namespace cairn {
namespace {

constexpr char kConvolutions[] =
    "layers { input { shape: [12, 12, 3] } } layers { rescaling { scale: 0.5 } } "
    "layers { conv2d { filters: 32 kernel_size: 3 activation: RELU } } layers { max_pooling2d {} } "
    "layers { depthwise_conv2d { kernel_size: 3 } } "
    "layers { conv2d { filters: 20 kernel_size: 3 use_bias: false } } layers { batch_normalization {} } "
    "layers { activation { activation: RELU } } layers { flatten {} } layers { dropout { rate: 0.5 } } "
    "layers { dense { units: 30 activation: TANH } } layers { dense { units: 10 activation: SOFTMAX } }";

constexpr char kResidual[] =
    "layers { input { shape: [8, 8, 4] } } "
    "layers { name: \"a\" conv2d { filters: 8 kernel_size: 3 padding: SAME } } layers { name: \"n\" "
    "batch_normalization {} } "
    "layers { name: \"b\" conv2d { filters: 8 kernel_size: 1 } inputs: \"a\" } layers { name: \"s\" add {} inputs: "
    "[\"n\", \"b\"] } "
    "layers { global_average_pooling2d {} } layers { dense { units: 10 activation: SOFTMAX } }";

// Fine-tuning: only the last layer is trained.
constexpr char kFrozen[] =
    "layers { input { shape: [12, 12, 3] } } "
    "layers { trainable: false conv2d { filters: 32 kernel_size: 3 use_bias: false } } "
    "layers { trainable: false batch_normalization {} } layers { activation { activation: RELU } } "
    "layers { trainable: false conv2d { filters: 20 kernel_size: 3 } } layers { global_average_pooling2d {} } "
    "layers { dense { units: 10 activation: SOFTMAX } }";

class Poisoned : public WeightSource {
 public:
  explicit Poisoned(const std::vector<float>& values)
      : real_(values), shown(values.size(), std::numeric_limits<float>::quiet_NaN()) {}

  void Prefetch(int64_t begin, int64_t end) override { prefetched_ = {begin, end}; }
  absl::Status Acquire(int64_t begin, int64_t end) override {
    hits += std::exchange(prefetched_, {-1, -1}) == std::pair(begin, end);
    ++acquired;
    if (acquired == fail_at) return absl::CancelledError("stopped");
    std::copy(real_.begin() + begin, real_.begin() + end, shown.begin() + begin);
    most_ = std::max(most_, end - begin);
    ++held;
    return absl::OkStatus();
  }
  void Release(int64_t begin, int64_t end) override {
    std::fill(shown.begin() + begin, shown.begin() + end, std::numeric_limits<float>::quiet_NaN());
    --held;
  }
  int64_t most() const { return most_; }

 private:
  const std::vector<float>& real_;
  std::pair<int64_t, int64_t> prefetched_ = {-1, -1};
  int64_t most_ = 0;

 public:
  std::vector<float> shown;
  int held = 0, acquired = 0, hits = 0, fail_at = 0;
};

struct Result {
  std::vector<float> gradients;
  double loss = 0, evaluated = 0;
};

class WeightSourceTest : public testing::TestWithParam<const char*> {
 protected:
  WeightSourceTest() {
    options_.batch_max = 16;
    options_.loss = FromText<v1::Loss>("kind: SPARSE_CATEGORICAL_CROSSENTROPY");
  }
  Result Run(Program& program, const std::vector<float>& values, const Batch& batch) {
    Result result;
    result.gradients.assign(graph_->space_size(), -1.0f);
    const auto sums =
        program.TrainStep(batch, {.seed = 1, .step = 3}, values, absl::MakeSpan(result.gradients), nullptr);
    EXPECT_TRUE(sums.ok()) << sums.status();
    const auto evaluated = program.Evaluate(batch, values);
    EXPECT_TRUE(evaluated.ok()) << evaluated.status();
    if (sums.ok()) result.loss = sums->loss;
    if (evaluated.ok()) result.evaluated = evaluated->loss;
    return result;
  }

  const std::shared_ptr<const Graph> graph_ = CaseGraph({"Model", GetParam()});
  const std::unique_ptr<Backend> backend_ = MakeOnednnBackend();
  ProgramOptions options_;
};

class FrozenWeightSourceTest : public testing::Test {
 protected:
  FrozenWeightSourceTest() {
    options_.batch_max = 16;
    options_.loss = FromText<v1::Loss>("kind: SPARSE_CATEGORICAL_CROSSENTROPY");
  }
  const std::shared_ptr<const Graph> graph_ = CaseGraph({"Model", kFrozen});
  ProgramOptions options_;
};

TEST_P(WeightSourceTest, SameBitsFromWhatWasAcquired) {
  const std::unique_ptr<Program> program = backend_->Compile(graph_, options_).value();
  const std::vector<float> values = CaseValues(*graph_, 3);
  const Batch batch = CaseBatch(*graph_, options_.loss, 7, 1);
  const Result plain = Run(*program, values, batch);
  Poisoned source(values);
  ASSERT_TRUE(program->UseWeightSource(&source).ok());
  const Result by_layer = Run(*program, source.shown, batch);
  EXPECT_EQ(std::memcmp(plain.gradients.data(), by_layer.gradients.data(), plain.gradients.size() * sizeof(float)), 0);
  EXPECT_EQ(plain.loss, by_layer.loss);
  EXPECT_EQ(plain.evaluated, by_layer.evaluated);
  EXPECT_EQ(source.held, 0);
  EXPECT_GT(source.acquired, 3);
  EXPECT_EQ(source.hits, source.acquired - 2) << "all but the first of each pass were announced before";
  EXPECT_LT(source.most(), graph_->space_size()) << "never the whole model";

  // The result is not wanted any more: the program stops there, and can be used again.
  source.fail_at = source.acquired + 3;
  std::vector<float> gradients(graph_->space_size());
  EXPECT_TRUE(absl::IsCancelled(
      program->TrainStep(batch, {.seed = 1, .step = 3}, source.shown, absl::MakeSpan(gradients), nullptr).status()));
  ASSERT_TRUE(program->UseWeightSource(nullptr).ok());
  EXPECT_EQ(Run(*program, values, batch).loss, plain.loss);
}

INSTANTIATE_TEST_SUITE_P(Models, WeightSourceTest, testing::Values(kConvolutions, kResidual, kFrozen));

TEST_F(FrozenWeightSourceTest, NothingBelowWhatIsTrainedIsReadOnTheWayBack) {
  const std::unique_ptr<Program> program = MakeOnednnBackend()->Compile(graph_, options_).value();
  const std::vector<float> values = CaseValues(*graph_, 3);
  Poisoned source(values);
  ASSERT_TRUE(program->UseWeightSource(&source).ok());
  std::vector<float> gradients(graph_->space_size(), -1.0f);
  ASSERT_TRUE(program
                  ->TrainStep(CaseBatch(*graph_, options_.loss, 7, 1), {.seed = 1, .step = 3}, source.shown,
                              absl::MakeSpan(gradients), nullptr)
                  .ok());
  EXPECT_EQ(source.acquired, 5) << "four layers forward, the last one backward";
  EXPECT_EQ(source.hits, 4);
}

}  // namespace
}  // namespace cairn
