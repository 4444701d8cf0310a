// Goal: a step in pieces adds the pieces' gradients in order, announces each number once, with the last piece, draws
// different random numbers for each piece, and needs the memory of one; a step of one piece is the program's own
// gradient.
#include "worker/train/accumulate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include "tests/unit/model/model_text.h"
#include "tests/unit/worker/fake_backend.h"
#include "worker/node/backend_select.h"
#include "worker/train/compute_pool.h"

namespace cairn {
namespace {

StepPlan PlanOf(int64_t examples, int32_t batch_size, int32_t replicas, int32_t pieces) {
  v1::JobSpec spec;
  spec.set_batch_size(batch_size);
  spec.set_replicas(replicas);
  spec.set_epochs(1);
  spec.set_accumulate_steps(pieces);
  return StepPlan::Of(spec, examples);
}

// The gradient of number i: 1e8 for the first example and 1 for the others, so that the order of additions shows, plus
// i.
class PiecesProgram : public IdleProgram {
 public:
  absl::StatusOr<BatchSums> TrainStep(const Batch& batch, const StepInfo& info, absl::Span<const float>,
                                      absl::Span<float> gradients, const GradientReady& ready) override {
    steps.push_back(info.step);
    examples.push_back(batch.examples);
    for (size_t i = 0; i < gradients.size(); ++i) {
      gradients[i] = (steps.size() == 1 ? 1e8f : 3.0f * static_cast<float>(batch.examples)) + static_cast<float>(i);
    }
    for (int64_t begin = static_cast<int64_t>(gradients.size()) - 16; begin >= 0; begin -= 16) ready(begin, begin + 16);
    return BatchSums{static_cast<uint64_t>(batch.examples), 2.0, {1.0}};
  }
  std::vector<uint64_t> steps;
  std::vector<int64_t> examples;
};

struct Outcome {
  PiecesProgram program;
  std::vector<float> gradient;
  std::vector<int> announced;
  absl::StatusOr<BatchSums> sums;
};

Outcome Train(const StepPlan& plan, int64_t step, int32_t replica) {
  Outcome o;
  o.gradient.assign(64, -1.0f);
  o.announced.assign(64, 0);
  StepInfo info;
  info.step = static_cast<uint64_t>(step);
  info.replica = static_cast<uint32_t>(replica);
  const auto batch = [&](int32_t piece) -> absl::StatusOr<Batch> {
    Batch b;
    b.examples = plan.Piece(step, ReplicaId(replica), piece).size();
    return b;
  };
  const std::vector<float> values(64);
  o.sums =
      TrainPieces(o.program, {plan, batch, info}, values, absl::MakeSpan(o.gradient), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          ++o.announced[i];
          EXPECT_NE(o.gradient[i], -1.0f);
        }
      });
  return o;
}

TEST(Accumulate, OnePieceIsTheProgramsOwn) {
  const Outcome o = Train(PlanOf(64, 16, 2, 1), 3, 1);
  EXPECT_EQ(o.program.steps, std::vector<uint64_t>{3});
  EXPECT_EQ(o.gradient[5], 1e8f + 5);
  EXPECT_EQ(o.announced, std::vector<int>(64, 1));
  EXPECT_EQ(o.sums->examples, 8u);
}

TEST(Accumulate, PiecesAreAddedInOrderAndToldOnce) {
  const StepPlan plan = PlanOf(64, 16, 2, 3);  // steps of 48 and 16
  const Outcome o = Train(plan, 0, 1);
  EXPECT_EQ(o.program.steps, (std::vector<uint64_t>{0, 1, 2}));
  EXPECT_EQ(o.program.examples, (std::vector<int64_t>{8, 8, 8}));
  for (size_t i = 0; i < 64; ++i) {
    const float n = static_cast<float>(i);
    EXPECT_EQ(o.gradient[i], ((1e8f + n) + (24.0f + n)) + (24.0f + n)) << i;
  }
  EXPECT_EQ(o.announced, std::vector<int>(64, 1));
  EXPECT_EQ(o.sums->examples, 24u);
  EXPECT_EQ(o.sums->loss, 6.0);
  EXPECT_EQ(o.sums->metrics[0], 3.0);
  // The short step: 8 examples in pieces of 3, 3 and 2. No number of another step is left in it.
  const Outcome short_one = Train(plan, 1, 0);
  EXPECT_EQ(short_one.program.steps, (std::vector<uint64_t>{3, 4, 5}));
  EXPECT_EQ(short_one.program.examples, (std::vector<int64_t>{3, 3, 2}));
}

// The program adds the pieces: it is told which piece is the first and which the last, and announces numbers of the
// last only.
class JoiningProgram : public PiecesProgram {
 public:
  absl::StatusOr<BatchSums> TrainJoined(const Batch& batch, const StepInfo& info, absl::Span<const float>,
                                        const std::shared_ptr<GradientJoin>&, uint32_t leaf,
                                        const GradientReady& ready) override {
    EXPECT_EQ(leaf, 1u);
    steps.push_back(info.step);
    pieces += info.first_piece ? info.last_piece ? "[o]" : "[" : info.last_piece ? "]" : ".";
    if (ready) ready(0, 16);
    return BatchSums{static_cast<uint64_t>(batch.examples), 2.0, {1.0}};
  }
  std::string pieces;
};

TEST(Accumulate, PiecesOfASumOfTheProgram) {
  for (const auto& [pieces, told] : {std::pair(1, "[o]"), std::pair(2, "[]"), std::pair(4, "[..]")}) {
    const StepPlan plan = PlanOf(640, 16, 2, pieces);
    JoiningProgram program;
    StepInfo info;
    info.step = 3;
    info.replica = 1;
    int announced = 0;
    const auto batch = [&](int32_t piece) -> absl::StatusOr<Batch> {
      Batch b;
      b.examples = plan.Piece(3, ReplicaId(1), piece).size();
      return b;
    };
    const auto sums = TrainPiecesJoined(program, {plan, batch, info}, std::vector<float>(64), nullptr, 1,
                                        [&](int64_t, int64_t) { ++announced; });
    ASSERT_TRUE(sums.ok()) << sums.status();
    EXPECT_EQ(program.pieces, told);
    EXPECT_EQ(program.steps.front(), static_cast<uint64_t>(3 * pieces));
    EXPECT_EQ(sums->examples, static_cast<uint64_t>(8 * pieces));
    EXPECT_EQ(sums->loss, 2.0 * pieces);
    EXPECT_EQ(announced, 1);
  }
}

TEST(Accumulate, EmptyPiecesAreLeftOut) {
  const StepPlan plan = PlanOf(50, 16, 1, 3);  // the second step has 2 examples for 3 pieces
  const Outcome o = Train(plan, 1, 0);
  EXPECT_EQ(o.program.examples, (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(o.announced, std::vector<int>(64, 1));
}

// The real backend: a step of 128 examples in 4 pieces has the gradient of the whole step (up to rounding) and needs a
// quarter of its activations.
TEST(Accumulate, MemoryIsThatOfOnePiece) {
  const auto backend = SelectBackend("cpu");
  ASSERT_TRUE(backend.ok()) << backend.status();
  const auto program = [&](int32_t batch_size, int32_t pieces) {
    v1::JobSpec spec;
    *spec.mutable_model() = FromText<v1::Model>(R"(
      layers { input { shape: [28, 28, 1] } } layers { conv2d { filters: 16 kernel_size: 3 activation: RELU } }
      layers { conv2d { filters: 16 kernel_size: 3 activation: RELU } } layers { flatten {} }
      layers { dense { units: 10 activation: SOFTMAX } })");
    spec.mutable_loss()->set_kind(v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
    spec.set_batch_size(batch_size);
    spec.set_accumulate_steps(pieces);
    spec.set_replicas(1);
    const auto model = MakeJobModel(spec).value();
    return std::pair((*backend)->Compile(model->graph, model->options).value(), model->graph->space_size());
  };
  auto [whole, size] = program(128, 1);
  auto [pieces, same_size] = program(32, 4);
  const auto examples = [](int64_t begin, int64_t n) {
    Batch b;
    b.examples = n;
    b.inputs = Buffer::Allocate(static_cast<size_t>(n) * 784 * sizeof(float));
    b.labels = Buffer::Allocate(static_cast<size_t>(n) * sizeof(float));
    for (int64_t i = 0; i < n * 784; ++i)
      b.inputs.mutable_floats()[i] = static_cast<float>((begin * 784 + i) % 17) / 17;
    for (int64_t i = 0; i < n; ++i) b.labels.mutable_floats()[i] = static_cast<float>((begin + i) % 10);
    return b;
  };
  std::vector<float> values(size), one(size), summed(size);
  for (int64_t i = 0; i < size; ++i) values[i] = static_cast<float>((i * 7919) % 31 - 15) / 300;
  const GradientReady nobody = [](int64_t, int64_t) {};
  ASSERT_TRUE(whole->TrainStep(examples(0, 128), {}, values, absl::MakeSpan(one), nobody).ok());
  const StepPlan plan = PlanOf(128, 32, 1, 4);
  ASSERT_TRUE(TrainPieces(*pieces, {plan, [&](int32_t p) { return absl::StatusOr<Batch>(examples(32 * p, 32)); }, {}},
                          values, absl::MakeSpan(summed), nobody)
                  .ok());
  for (int64_t i = 0; i < size; ++i) ASSERT_NEAR(summed[i], one[i], 1e-3 * (1 + std::abs(one[i]))) << i;
  std::printf("memory of a program: %.1f MiB for 128 examples at once, %.1f MiB for 4 pieces of 32\n",
              static_cast<double>(whole->memory_bytes()) / (1 << 20),
              static_cast<double>(pieces->memory_bytes()) / (1 << 20));
  EXPECT_LT(pieces->memory_bytes() * 3, whole->memory_bytes());
}

}  // namespace
}  // namespace cairn
