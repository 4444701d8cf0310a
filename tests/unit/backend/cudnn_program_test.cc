// Goal: a program of the cuDNN backend computes what the reference computes in float64, for every layer, option and
// loss, frozen layers too: lowering, order of steps, places in the arena, what is announced when; and the same bits
// whenever its copies are done, however its values come and whatever was brought ahead. All but the GPU itself and
// NVIDIA's libraries: the kernels are their host build, products and convolutions are loops (cudnn_host_machine.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/unit/backend/beside_reference.h"
#include "tests/unit/backend/cudnn_host_machine.h"
#include "tests/unit/backend/cudnn_lacks.h"
#include "worker/backend/cudnn/plans.h"
#include "worker/backend/cudnn/program.h"

namespace cairn {
namespace {

using cudnn::HostMachine;

BesideReference::Compile OnHost(HostMachine::Copies copies) {
  return [copies](std::shared_ptr<const Graph> graph,
                  const ProgramOptions& options) -> absl::StatusOr<std::unique_ptr<Program>> {
    CAIRN_ASSIGN_OR_RETURN(const cudnn::Precision precision, cudnn::PrecisionOf(options));
    return cudnn::MakeProgram(std::move(graph), options, precision, std::make_unique<HostMachine>(precision, copies));
  };
}

constexpr StepInfo kInfo{.seed = 11, .step = 5, .replica = 3};

std::vector<float> Gradient(Program& program, const Graph& graph, const Batch& batch, absl::Span<const float> values,
                            const GradientReady& ready = nullptr) {
  std::vector<float> gradient(graph.space_size(), std::numeric_limits<float>::quiet_NaN());
  const auto sums = program.TrainStep(batch, kInfo, values, absl::MakeSpan(gradient), ready);
  EXPECT_TRUE(sums.ok()) << sums.status();
  return gradient;
}

bool Same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class CudnnProgramTest : public testing::TestWithParam<LayerCase> {
 protected:
  void SetUp() override {
    BesideReference beside(GetParam(), 1);
    const auto program = OnHost(HostMachine::Copies::kEarly)(beside.graph(), beside.options());
    if (!program.ok() && IsCudnnLack(program.status())) GTEST_SKIP() << program.status().message();
  }
};

TEST_P(CudnnProgramTest, Float32AsTheReference) {
  BesideReference beside(GetParam(), 9);
  beside.Make(OnHost(HostMachine::Copies::kEarly));
  if (HasFatalFailure()) return;
  for (int64_t examples : {9, 1}) {
    SCOPED_TRACE(testing::Message() << examples << " examples");
    beside.Training(examples, {.loss = 3e-5});
    beside.Inference(examples, {});
  }
}

// A copy out may be done only when the backward pass is over: its source must still be intact. A copy in, only when it
// is waited for.
TEST_P(CudnnProgramTest, CopiesMayBeLate) {
  BesideReference early(GetParam(), 3), late(GetParam(), 3);
  early.Make(OnHost(HostMachine::Copies::kEarly));
  late.Make(OnHost(HostMachine::Copies::kLate));
  if (HasFatalFailure()) return;
  const Batch batch = CaseBatch(*early.graph(), early.options().loss, 3, 7);
  for (int step = 0; step < 2; ++step) {
    EXPECT_TRUE(Same(Gradient(*late.program(), *late.graph(), batch, late.values()),
                     Gradient(*early.program(), *early.graph(), batch, early.values())));
  }
  const auto expected = early.program()->Predict(batch, early.values()),
             actual = late.program()->Predict(batch, late.values());
  ASSERT_TRUE(expected.ok() && actual.ok()) << expected.status() << actual.status();
  EXPECT_EQ(std::memcmp(actual->data(), expected->data(), expected->size()), 0);
}

// Coarse: it checks that nothing reads a number as another type. A gradient's error is measured over the whole space.
TEST_P(CudnnProgramTest, SixteenBitsNearTheReference) {
  for (const auto& [compute, tolerance, loss_scale] :
       {std::tuple(v1::BFLOAT16, 5e-2, 1.0f), std::tuple(v1::FLOAT16, 1e-2, 64.0f)}) {
    SCOPED_TRACE(v1::DataType_Name(compute));
    BesideReference beside(GetParam(), 9, compute);
    beside.Make(OnHost(HostMachine::Copies::kEarly));
    if (HasFatalFailure()) return;
    const Graph& graph = *beside.graph();
    const Batch batch = CaseBatch(graph, beside.options().loss, 9, 7);
    StepInfo info = kInfo;
    info.loss_scale = loss_scale;
    std::vector<float> expected(graph.space_size()),
        actual(graph.space_size(), std::numeric_limits<float>::quiet_NaN());
    const auto reference =
        beside.reference().TrainStep(batch, info, beside.values(), absl::MakeSpan(expected), nullptr);
    const auto sums = beside.program()->TrainStep(batch, info, beside.values(), absl::MakeSpan(actual), nullptr);
    ASSERT_TRUE(reference.ok() && sums.ok()) << reference.status() << sums.status();
    EXPECT_NEAR(sums->loss, reference->loss, tolerance * std::abs(reference->loss) + 1e-2);
    double bound = 3 * tolerance * Norm(expected);
    if (Distance(actual, expected) > bound) bound += beside.GradientMove(batch, expected);  // it has steps
    EXPECT_LE(Distance(actual, expected), bound);
  }
}

TEST_P(CudnnProgramTest, BytesAsTheirFloats) {
  for (const v1::DataType compute : {v1::FLOAT32, v1::BFLOAT16}) {
    BesideReference beside(GetParam(), 4, compute);
    beside.Make(OnHost(HostMachine::Copies::kLate));
    if (HasFatalFailure()) return;
    beside.BytesAsFloats(4);
    beside.BytesAsFloats(3);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, CudnnProgramTest, testing::ValuesIn(AllCases()),
                         [](const auto& info) { return info.param.name; });

// Exactly the cases of cudnn_lacks.h are refused, each by the layer's name.
TEST(CudnnRefusals, AreThoseThatAreListed) {
  std::set<std::string> lacks;
  for (const LayerCase& c : AllCases()) {
    BesideReference beside(c, 1);
    const auto program = OnHost(HostMachine::Copies::kEarly)(beside.graph(), beside.options());
    if (!program.ok()) lacks.insert(WhatCudnnLacks(program.status()));
  }
  const std::set<std::string> listed(CudnnLacks().begin(), CudnnLacks().end());
  for (const std::string& what : lacks) EXPECT_EQ(listed.count(what), 1u) << what << " is refused, but not listed";
  for (const std::string& what : listed) EXPECT_EQ(lacks.count(what), 1u) << what << " is listed, but not refused";
}

// Of shapes of four axes, with the examples' as a fifth.
TEST(CudnnVolumes, AreJoinedAsTheReferenceDoes) {
  for (const char* layers : {"layers { reduce { kind: STDDEV axis: [1, 3] } }",
                             "layers { slice { axes {} axes { begin: 1 } axes { step: -1 } axes { end: 2 } } }",
                             "layers { name: 'a' slice { axes {} axes { end: 1 } axes {} axes {} } } "
                             "layers { inputs: ['a', 'first'] concatenate { axis: 2 } }"}) {
    SCOPED_TRACE(layers);
    BesideReference beside(
        {"volume",
         "layers { input { shape: [2, 3, 4, 2] } } layers { name: 'first' conv3d { filters: "
         "3 kernel_size: 1 } } " +
             std::string(layers) + " layers { flatten {} } layers { dense { units: 4 activation: SOFTMAX } }"},
        5);
    beside.Make(OnHost(HostMachine::Copies::kEarly));
    if (testing::Test::HasFatalFailure()) return;
    beside.Training(5, {});
    beside.Inference(5, {});
  }
}

// A bias moves the mean that the normalization behind it keeps, also where another layer stands around.
TEST(CudnnBiases, OfLayersWithinOthersMoveTheMean) {
  for (const char* layer : {"time_distributed { layer { dense { units: 3 bias_initializer { kind: ONES } } } }",
                            "spectral_normalization { layer { conv1d { filters: 3 kernel_size: 2 } } }"}) {
    SCOPED_TRACE(layer);
    BesideReference beside({"bias", "layers { input { shape: [4, 2] } } layers { " + std::string(layer) +
                                        " } layers { batch_normalization {} } layers { flatten {} } layers { dense { "
                                        "units: 3 activation: SOFTMAX } }"},
                           5);
    beside.Make(OnHost(HostMachine::Copies::kEarly));
    if (testing::Test::HasFatalFailure()) return;
    beside.Training(5, {});
    beside.Inference(5, {});
  }
}

// Labels of masked steps may be anything; those of others are checked, though only once the mask is known.
TEST(CudnnMaskedLoss, LabelsOfMaskedStepsMayBeAnything) {
  BesideReference beside(
      {"masked",
       "layers { input { shape: 4 } } layers { embedding { input_dim: 5 output_dim: 3 mask_zero: true } } "
       "layers { lstm { units: 3 return_sequences: true } } layers { dense { units: 4 activation: SOFTMAX } }"},
      2);
  beside.Make(OnHost(HostMachine::Copies::kLate));
  if (HasFatalFailure()) return;
  Batch batch = CaseBatch(*beside.graph(), beside.options().loss, 2, 7);
  const std::vector<float> ids = {1, 2, 0, 0, 3, 0, 4, 1}, labels = {0, 3, -7, 99, 2, 50, 1, 1};
  std::copy(ids.begin(), ids.end(), batch.inputs.mutable_floats().begin());
  std::copy(labels.begin(), labels.end(), batch.labels.mutable_floats().begin());
  std::vector<float> expected(beside.graph()->space_size());
  const auto reference = beside.reference().TrainStep(batch, kInfo, beside.values(), absl::MakeSpan(expected), nullptr);
  ASSERT_TRUE(reference.ok()) << reference.status();
  const std::vector<float> actual = Gradient(*beside.program(), *beside.graph(), batch, beside.values());
  EXPECT_LE(Distance(actual, expected), 1e-4 * Norm(expected));
  batch.labels.mutable_floats()[1] = 4;
  std::vector<float> gradient(beside.graph()->space_size());
  EXPECT_TRUE(absl::IsInvalidArgument(
      beside.program()->TrainStep(batch, kInfo, beside.values(), absl::MakeSpan(gradient), nullptr).status()));
  batch.labels.mutable_floats()[1] = 3;
  EXPECT_TRUE(Same(Gradient(*beside.program(), *beside.graph(), batch, beside.values()), actual));
}

// ---- ids ----

// With the eight bits of bfloat16, 257 would be read as 256 and 999 as 1000.
TEST(CudnnEmbeddingTest, IdsAreReadAsTheyAreInBFloat16) {
  for (const char* between : {"", "layers { reshape { target_shape: [2, 3] } } layers { flatten {} }"}) {
    BesideReference beside(
        {"ids", absl::StrCat("layers { input { shape: [6] } } ", between,
                             " layers { embedding { input_dim: 1000 output_dim: 4 } } "
                             "layers { flatten {} } layers { dense { units: 3 activation: SOFTMAX } }")},
        2, v1::BFLOAT16);
    beside.Make(OnHost(HostMachine::Copies::kEarly));
    if (HasFatalFailure()) return;
    Batch batch = CaseBatch(*beside.graph(), beside.options().loss, 2, 7);
    const std::vector<float> ids = {257, 511, 513, 999, 3, 258, 255, 997, 769, 0, 260, 301};
    std::copy(ids.begin(), ids.end(), batch.inputs.mutable_floats().begin());
    const std::vector<float> gradient = Gradient(*beside.program(), *beside.graph(), batch, beside.values());
    const Variable& table = beside.graph()->variables()[0];
    for (int64_t row = 0; row < 1000; ++row) {
      const bool read = std::find(ids.begin(), ids.end(), static_cast<float>(row)) != ids.end();
      EXPECT_EQ(Norm(absl::MakeConstSpan(gradient).subspan(table.offset + row * 4, 4)) > 0, read) << "row " << row;
    }
  }
}

// ---- values by segments, batches ahead ----

// 2.2 million numbers: in three segments.
constexpr char kWide[] =
    "layers { input { shape: [6] } } layers { dense { units: 1100 activation: RELU } } layers { dense { units: 1000 "
    "activation: RELU } } "
    "layers { dense { units: 1100 activation: RELU } } layers { dense { units: 4 activation: SOFTMAX } }";

// Shows the values of what was acquired, NaN elsewhere.
class Shown : public WeightSource {
 public:
  explicit Shown(const std::vector<float>& values)
      : values_(values), shown(values.size(), std::numeric_limits<float>::quiet_NaN()) {}
  void Prefetch(int64_t begin, int64_t end) override { prefetched_ = {begin, end}; }
  absl::Status Acquire(int64_t begin, int64_t end) override {
    if (acquired > 0) {
      EXPECT_EQ(prefetched_, std::pair(begin, end)) << "what was said to come next";
    }
    if (++acquired == fail_at) return absl::CancelledError("stopped");
    std::copy(values_.begin() + begin, values_.begin() + end, shown.begin() + begin);
    return absl::OkStatus();
  }
  void Release(int64_t begin, int64_t end) override {
    std::fill(shown.begin() + begin, shown.begin() + end, std::numeric_limits<float>::quiet_NaN());
    ++released;
  }

 private:
  const std::vector<float>& values_;
  std::pair<int64_t, int64_t> prefetched_;

 public:
  std::vector<float> shown;
  int acquired = 0, released = 0, fail_at = 0;
};

TEST(CudnnSegmentsTest, ValuesOfASourceAreReadWhileTheyAreThere) {
  for (const auto copies : {HostMachine::Copies::kEarly, HostMachine::Copies::kLate}) {
    BesideReference beside({"wide", kWide}, 2);
    beside.Make(OnHost(copies));
    if (HasFatalFailure()) return;
    const Graph& graph = *beside.graph();
    const Batch batch = CaseBatch(graph, beside.options().loss, 2, 7);
    Shown source(beside.values());
    ASSERT_TRUE(beside.program()->UseWeightSource(&source).ok());
    const std::vector<float> by_source = Gradient(*beside.program(), graph, batch, source.shown);
    EXPECT_EQ(source.acquired, 3);
    EXPECT_EQ(source.released, 3);
    // The result is not wanted any more while the first segment is under way. The next step is not affected.
    source.acquired = 0;
    source.fail_at = 2;
    std::vector<float> gradient(graph.space_size());
    EXPECT_TRUE(absl::IsCancelled(
        beside.program()->TrainStep(batch, kInfo, source.shown, absl::MakeSpan(gradient), nullptr).status()));
    ASSERT_TRUE(beside.program()->UseWeightSource(nullptr).ok());
    for (int step = 0; step < 3; ++step)
      EXPECT_TRUE(Same(Gradient(*beside.program(), graph, batch, beside.values()), by_source));
  }
}

// ---- a device that is full ----

class FullMachine : public HostMachine {
 public:
  using HostMachine::HostMachine;
  absl::StatusOr<cudnn::Block> Allocate(int64_t bytes) override {
    if (bytes > most) return absl::ResourceExhaustedError("full");
    return HostMachine::Allocate(bytes);
  }
  int64_t most = std::numeric_limits<int64_t>::max();
};

// The old arena is freed before a larger one is requested.
TEST(CudnnPlansTest, WhereALargerArenaIsRefusedNoKeptPlanRunsWithoutOne) {
  const Graph graph = Graph::Build(FromText<v1::Model>(kWide)).value();
  cudnn::LoweringOptions options;
  options.loss = FromText<v1::Loss>("kind: SPARSE_CATEGORICAL_CROSSENTROPY");
  options.loss_plan = PlanLoss(graph, options.loss);
  FullMachine machine(options.precision);
  cudnn::Plans plans(graph, options, machine);
  for (const int64_t examples : {1, 2})
    ASSERT_TRUE(plans.Find(cudnn::Mode::kTrain, examples, 1, false, Element::kFloat).ok());
  machine.most = plans.arena().bytes();
  EXPECT_TRUE(absl::IsResourceExhausted(plans.Find(cudnn::Mode::kTrain, 64, 1, false, Element::kFloat).status()));
  for (const int64_t examples : {1, 2}) {
    const auto kept = plans.Find(cudnn::Mode::kTrain, examples, 1, false, Element::kFloat);
    ASSERT_TRUE(kept.ok()) << kept.status();
    EXPECT_GE(plans.arena().bytes(), (*kept)->plan->arena_bytes()) << examples;
  }
}

TEST(CudnnPrefetchTest, TheNextBatchIsThere) {
  for (const auto copies : {HostMachine::Copies::kEarly, HostMachine::Copies::kLate}) {
    BesideReference beside({"conv", Between("")}, 4);
    beside.Make(OnHost(copies));
    if (HasFatalFailure()) return;
    const Graph& graph = *beside.graph();
    Program& program = *beside.program();
    const auto batch = [&](int64_t examples, uint32_t seed) {
      return CaseBatch(graph, beside.options().loss, examples, seed);
    };
    const Batch first = batch(4, 1), last = batch(2, 3);
    Batch second = batch(4, 2);
    const std::vector<float> of_second = Gradient(program, graph, second, beside.values());
    const std::vector<float> of_last = Gradient(program, graph, last, beside.values());
    int calls = 0;
    Gradient(program, graph, first, beside.values(), [&](int64_t, int64_t) {
      if (calls++ == 0) program.Prefetch(second);
    });
    EXPECT_GT(calls, 0);
    // Writing to the inputs now shows that they were read before.
    std::fill(second.inputs.mutable_floats().begin(), second.inputs.mutable_floats().end(), 0.25f);
    EXPECT_TRUE(Same(Gradient(program, graph, second, beside.values()), of_second));
    EXPECT_FALSE(Same(Gradient(program, graph, second, beside.values()), of_second))
        << "brought ahead for one step only";
    // A batch comes that was not announced, a short one; then one that nobody announced.
    program.Prefetch(first);
    EXPECT_TRUE(Same(Gradient(program, graph, last, beside.values()), of_last));
    program.Prefetch(last);
    EXPECT_TRUE(Same(Gradient(program, graph, last, beside.values()), of_last));
    program.Prefetch(batch(4, 9));
    ASSERT_TRUE(program.Evaluate(first, beside.values()).ok());
    EXPECT_TRUE(Same(Gradient(program, graph, last, beside.values()), of_last));
    program.Prefetch({});
  }
}

// Bytes and floats alternate, prefetched and not; and a program that was told to expect bytes has no room for floats
// until some come.
TEST(CudnnPrefetchTest, BytesAndFloatsInTurns) {
  for (const auto copies : {HostMachine::Copies::kEarly, HostMachine::Copies::kLate}) {
    BesideReference beside({"conv", Between("")}, 4);
    const ProgramOptions plain = beside.options();
    ProgramOptions options = plain;
    options.inputs = Element::kByte;
    const auto program = OnHost(copies)(beside.graph(), options), floats = OnHost(copies)(beside.graph(), plain);
    ASSERT_TRUE(program.ok() && floats.ok()) << program.status() << floats.status();
    const uint64_t bytes_alone = (*program)->memory_bytes();
    const Batch wide = WholeNumbers(CaseBatch(*beside.graph(), options.loss, 4, 1));
    const Batch narrow = AsBytes(wide);
    const std::vector<float> right = Gradient(**floats, *beside.graph(), wide, beside.values());
    for (int turn = 0; turn < 3; ++turn) {
      (*program)->Prefetch(narrow);
      EXPECT_TRUE(Same(Gradient(**program, *beside.graph(), narrow, beside.values()), right));
      EXPECT_TRUE(Same(Gradient(**program, *beside.graph(), narrow, beside.values()), right));
      (*program)->Prefetch(turn == 0 ? narrow : wide);
      EXPECT_TRUE(Same(Gradient(**program, *beside.graph(), wide, beside.values()), right));
    }
    EXPECT_GT((*program)->memory_bytes(), bytes_alone);
  }
}

}  // namespace
}  // namespace cairn
