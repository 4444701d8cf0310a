// Goal: losses of training and evaluation hold the penalty for each example, the same bits whether the values are all
// there or come layer by layer; gradients and outputs are the program's own; without regularizers the program is not
// wrapped.
#include "worker/train/penalized_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/model/penalty.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

const char kModel[] = R"(layers { input { shape: 3 } }
                         layers { dense { units: 2 kernel_regularizer { l1: 0.5 l2: 0.25 } } }
                         layers { trainable: false dense { units: 2 kernel_regularizer { l2: 100 } } }
                         layers { dense { units: 4 kernel_regularizer { l2: 2 } bias_regularizer { l1: 1 } } })";

// Asks for the layers' values as a backend does, forward and backward, where it has a source.
class FakeProgram : public Program {
 public:
  explicit FakeProgram(const Graph& graph) : graph_(graph) {}
  absl::StatusOr<BatchSums> TrainStep(const Batch& batch, const StepInfo&, absl::Span<const float>,
                                      absl::Span<float> gradients, const GradientReady&) override {
    CAIRN_RETURN_IF_ERROR(Ask());
    CAIRN_RETURN_IF_ERROR(Ask());
    gradients[0] = 5;
    return BatchSums{static_cast<uint64_t>(batch.examples), 10, {1}};
  }
  absl::StatusOr<BatchSums> Evaluate(const Batch& batch, absl::Span<const float>) override {
    CAIRN_RETURN_IF_ERROR(Ask());
    return BatchSums{static_cast<uint64_t>(batch.examples), 20, {1}};
  }
  absl::StatusOr<Buffer> Predict(const Batch&, absl::Span<const float>) override {
    CAIRN_RETURN_IF_ERROR(Ask());
    return Buffer::Zeros(4);
  }
  absl::Status UseWeightSource(WeightSource* source) override {
    source_ = source;
    return absl::OkStatus();
  }
  void Prefetch(const Batch& next) override { prefetched = next.examples; }
  uint64_t memory_bytes() const override { return 77; }
  int64_t prefetched = 0;

 private:
  absl::Status Ask() {
    if (source_ == nullptr) return absl::OkStatus();
    for (const Node& node : graph_.nodes()) {
      if (node.variables.empty()) continue;
      const Variable& first = graph_.variables()[static_cast<size_t>(node.variables.front())];
      const Variable& last = graph_.variables()[static_cast<size_t>(node.variables.back())];
      CAIRN_RETURN_IF_ERROR(source_->Acquire(first.offset, last.offset + last.size));
      source_->Release(first.offset, last.offset + last.size);
    }
    return absl::OkStatus();
  }
  const Graph& graph_;
  WeightSource* source_ = nullptr;
};

// Puts values where they are asked for and takes them away afterwards.
class FakeSource : public WeightSource {
 public:
  FakeSource(const std::vector<float>& all, std::vector<float>& here) : all_(all), here_(here) {}
  void Prefetch(int64_t, int64_t) override {}
  absl::Status Acquire(int64_t begin, int64_t end) override {
    if (fails) return absl::CancelledError("gone");
    std::copy(all_.begin() + begin, all_.begin() + end, here_.begin() + begin);
    return absl::OkStatus();
  }
  void Release(int64_t begin, int64_t end) override {
    std::fill(here_.begin() + begin, here_.begin() + end, std::numeric_limits<float>::quiet_NaN());
  }
  bool fails = false;

 private:
  const std::vector<float>& all_;
  std::vector<float>& here_;
};

class PenalizedProgramTest : public testing::Test {
 protected:
  void SetUp() override {
    graph_ = Graph::Build(FromText<v1::Model>(kModel)).value();
    values_.resize(static_cast<size_t>(graph_.space_size()));
    for (size_t i = 0; i < values_.size(); ++i) values_[i] = i % 2 == 0 ? 0.5f : -0.25f;
    for (const Variable& v : graph_.variables()) {
      if (v.kind != VariableKind::kTrainable) continue;
      for (int64_t i = v.offset; i < v.offset + v.size; ++i) {
        const double w = values_[static_cast<size_t>(i)];
        penalty_ += v.l1 * std::abs(w) + v.l2 * w * w;  // exact: powers of two
      }
    }
    batch_.examples = 4;
    program_ = WithPenalty(std::make_unique<FakeProgram>(graph_), graph_);
  }
  Graph graph_;
  std::vector<float> values_;
  double penalty_ = 0;
  Batch batch_;
  std::unique_ptr<Program> program_;
};

TEST_F(PenalizedProgramTest, EachExamplesLossHasIt) {
  std::vector<float> gradients(values_.size());
  const auto trained =
      program_->TrainStep(batch_, StepInfo(), values_, absl::MakeSpan(gradients), [](int64_t, int64_t) {});
  ASSERT_TRUE(trained.ok());
  EXPECT_GT(penalty_, 0);
  EXPECT_EQ(trained->loss, 10 + 4 * penalty_);
  EXPECT_EQ(trained->metrics[0], 1);
  EXPECT_EQ(gradients[0], 5);
  EXPECT_EQ(program_->Evaluate(batch_, values_)->loss, 20 + 4 * penalty_);
  EXPECT_EQ(program_->Predict(batch_, values_)->size(), 4u);
  EXPECT_EQ(program_->memory_bytes(), 77u);
}

TEST_F(PenalizedProgramTest, AlsoWhereValuesComeLayerByLayer) {
  std::vector<float> here(values_.size(), std::numeric_limits<float>::quiet_NaN()), gradients(values_.size());
  FakeSource source(values_, here);
  ASSERT_TRUE(program_->UseWeightSource(&source).ok());
  for (int i = 0; i < 2; ++i) {  // nothing of the step before is left
    EXPECT_EQ(program_->TrainStep(batch_, StepInfo(), here, absl::MakeSpan(gradients), [](int64_t, int64_t) {})->loss,
              10 + 4 * penalty_);
    EXPECT_EQ(program_->Evaluate(batch_, here)->loss, 20 + 4 * penalty_);
    for (float& v : values_) v *= 2;
    double doubled = 0;
    for (const PenaltyRange& range : PenaltyRangesOf(graph_, 0, graph_.space_size()))
      doubled += PenaltyOf(range, values_);
    penalty_ = doubled;
  }
  source.fails = true;
  EXPECT_EQ(program_->Evaluate(batch_, here).status().code(), absl::StatusCode::kCancelled);
  ASSERT_TRUE(program_->UseWeightSource(nullptr).ok());
  EXPECT_EQ(program_->Evaluate(batch_, values_)->loss, 20 + 4 * penalty_);
}

TEST_F(PenalizedProgramTest, TheNextBatchIsToldToTheProgram) {
  auto own = std::make_unique<FakeProgram>(graph_);
  const FakeProgram& inner = *own;
  const std::unique_ptr<Program> program = WithPenalty(std::move(own), graph_);
  program->Prefetch(batch_);
  EXPECT_EQ(inner.prefetched, 4);
}

TEST_F(PenalizedProgramTest, AModelWithoutRegularizersKeepsItsProgram) {
  const Graph plain =
      Graph::Build(FromText<v1::Model>("layers { input { shape: 3 } } layers { dense { units: 2 } }")).value();
  auto own = std::make_unique<FakeProgram>(plain);
  Program* const address = own.get();
  EXPECT_EQ(WithPenalty(std::move(own), plain).get(), address);
}

}  // namespace
}  // namespace cairn
