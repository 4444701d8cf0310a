#include "tests/unit/backend/beside_reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "tests/unit/backend/conv_lstm_cases.h"
#include "tests/unit/backend/frozen_cases.h"
#include "tests/unit/backend/recurrent_cases.h"
#include "tests/unit/backend/wide_cases.h"
#include "tests/unit/backend/wide_feature_cases.h"
#include "worker/backend/reference/reference_backend.h"

namespace cairn {
namespace {

constexpr StepInfo kInfo{.seed = 11, .step = 5, .replica = 3};

// What rounding to the type changes a number by on average, relative. TF32 has as many bits as FLOAT16; tensor cores
// cut the others off.
double Rounding(const ProgramOptions& options) {
  if (options.compute == v1::BFLOAT16) return 0x1p-9;
  if (options.compute == v1::FLOAT16) return 0x1p-12;
  return options.allow_tf32 ? 0x1p-11 : 0;
}

// Where two vectors first differ and where they differ most, for readers of the log.
std::string Furthest(absl::Span<const float> actual, absl::Span<const float> expected) {
  size_t first = actual.size(), most = 0, differ = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i]) continue;
    first = std::min(first, i);
    ++differ;
    if (!(std::abs(actual[i] - expected[i]) <= std::abs(actual[most] - expected[most]))) most = i;
  }
  if (differ == 0) return "";
  const auto at = [&](size_t i) { return absl::StrCat("[", i, "] is ", actual[i], ", not ", expected[i]); };
  return absl::StrCat("; ", differ, " of ", actual.size(), " differ, the first ", at(first), ", the most ", at(most));
}

}  // namespace

std::vector<LayerCase> AllCases() {
  std::vector<LayerCase> cases = LayerCases();
  for (const LayerCase& c : WideCases()) cases.push_back(c);
  for (const LayerCase& c : WideFeatureCases()) cases.push_back(c);
  for (const LayerCase& c : WideWindowCases()) cases.push_back(c);
  for (const LayerCase& c : FrozenCases()) cases.push_back(c);
  for (const LayerCase& c : InferenceCases()) cases.push_back(c);
  for (const LayerCase& c : RecurrentCases()) cases.push_back(c);
  for (const LayerCase& c : MaskCases()) cases.push_back(c);
  for (const LayerCase& c : ConvLstmCases()) cases.push_back(c);
  for (const LayerCase& c : ConvLstmMaskCases()) cases.push_back(c);
  for (const LayerCase& c : WideConvLstmCases()) cases.push_back(c);
  for (const LayerCase& c : HashingCases()) cases.push_back(c);
  for (const LayerCase& c : DistributedCases()) cases.push_back(c);
  for (const LayerCase& c : DistributedBatchCases()) cases.push_back(c);
  return cases;
}

double Norm(absl::Span<const float> x) {
  double sum = 0;
  for (float v : x) sum += double{v} * v;
  return std::sqrt(sum);
}

double Distance(absl::Span<const float> x, absl::Span<const float> y) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += (double{x[i]} - y[i]) * (double{x[i]} - y[i]);
  return std::sqrt(sum);
}

BesideReference::BesideReference(const LayerCase& c, int64_t batch_max, v1::DataType compute, bool tf32)
    : graph_(CaseGraph(c)) {
  options_.batch_max = batch_max;
  options_.loss = FromText<v1::Loss>(c.loss);
  options_.metrics = {FromText<v1::Metric>("kind: ACCURACY"), FromText<v1::Metric>("kind: MEAN_ABSOLUTE_ERROR")};
  reference_ = MakeReferenceBackend()->Compile(graph_, options_).value();
  options_.compute = compute;
  options_.allow_tf32 = tf32;
  values_ = CaseValues(*graph_, 5);
  // Kernels of the size that an initializer gives, so that wide layers do not saturate.
  for (const Variable& v : graph_->variables()) {
    if (v.fan_in < 8) continue;
    for (int64_t i = v.offset; i < v.offset + v.size; ++i) values_[i] *= 3.0f / std::sqrt(static_cast<float>(v.fan_in));
  }
}

void BesideReference::Make(const Compile& compile) {
  auto program = compile(graph_, options_);
  ASSERT_TRUE(program.ok()) << program.status();
  program_ = *std::move(program);
}

void BesideReference::Training(int64_t examples, const Tolerance& tolerance) {
  ASSERT_NE(program_, nullptr);
  const Batch batch = CaseBatch(*graph_, options_.loss, examples, 7);
  std::vector<float> expected(graph_->space_size()),
      actual(graph_->space_size(), std::numeric_limits<float>::quiet_NaN());
  const auto reference = reference_->TrainStep(batch, kInfo, values_, absl::MakeSpan(expected), nullptr);
  ASSERT_TRUE(reference.ok()) << reference.status();
  std::vector<int> announced(graph_->space_size() / 16, 0);
  const auto sums = program_->TrainStep(batch, kInfo, values_, absl::MakeSpan(actual), [&](int64_t begin, int64_t end) {
    EXPECT_EQ(begin % 16, 0);
    EXPECT_EQ(end % 16, 0);
    for (int64_t i = begin; i < end; ++i)
      EXPECT_FALSE(std::isnan(actual[i])) << "announced before it was written: " << i;
    for (int64_t i = begin / 16; i < end / 16; ++i) ++announced[i];
  });
  ASSERT_TRUE(sums.ok()) << sums.status();
  ExpectSums(batch, *reference, *sums, tolerance.loss);
  EXPECT_EQ(std::count(announced.begin(), announced.end(), 1), static_cast<int64_t>(announced.size()));
  ExpectGradients(batch, expected, actual, tolerance);
  for (int again = 0; again < 2; ++again) {  // on a GPU what was recorded
    std::vector<float> repeated(graph_->space_size(), 1.0f);
    ASSERT_TRUE(program_->TrainStep(batch, kInfo, values_, absl::MakeSpan(repeated), nullptr).ok());
    EXPECT_EQ(std::memcmp(repeated.data(), actual.data(), actual.size() * sizeof(float)), 0)
        << "other bits the next time" << Furthest(repeated, actual);
  }
}

// How far the reference's own gradient moves when every value and every input moves by a few roundings: each layer
// rounds anew, and a rounding behind a flat activation is several before it. A maximum of two numbers that round to the
// same one sends its gradient to either, so that models with max pooling have steps there: what is far off in the type
// may be as exact as it can be.
double BesideReference::Unsteadiness(const Variable& v, const Batch& batch, absl::Span<const float> expected) const {
  return FurthestMove(batch, [&](const Batch& moved, absl::Span<const float> values) {
    std::vector<float> gradient(values_.size());
    if (!reference_->TrainStep(moved, kInfo, values, absl::MakeSpan(gradient), nullptr).ok()) return 0.0;
    return Distance(absl::MakeConstSpan(gradient).subspan(v.offset, v.size), expected.subspan(v.offset, v.size));
  });
}

double BesideReference::GradientMove(const Batch& batch, absl::Span<const float> expected) const {
  return FurthestMove(batch, [&](const Batch& moved, absl::Span<const float> values) {
    std::vector<float> gradient(values_.size());
    if (!reference_->TrainStep(moved, kInfo, values, absl::MakeSpan(gradient), nullptr).ok()) return 0.0;
    return Distance(gradient, expected);
  });
}

// The largest of what `distance` says of moved inputs and values.
double BesideReference::FurthestMove(
    const Batch& batch, const std::function<double(const Batch&, absl::Span<const float>)>& distance) const {
  constexpr int kTries = 16;
  constexpr double kRoundings = 8;
  const auto rounding = static_cast<float>(kRoundings * Rounding(options_));
  if (rounding == 0) return 0;
  double furthest = 0;
  std::mt19937 random(3);
  const auto move = [&](absl::Span<float> numbers) {
    for (float& number : numbers) number *= 1 + rounding * ((random() & 1) != 0 ? 1.0f : -1.0f);
  };
  const bool ids = graph_->nodes()[1].kind == LayerKind::kEmbedding;
  for (int i = 0; i < kTries; ++i) {
    std::vector<float> values = values_;
    Batch moved = batch;
    moved.inputs = Buffer::CopyOf(batch.inputs.data(), batch.inputs.size());
    move(absl::MakeSpan(values));
    if (!ids) move(moved.inputs.mutable_floats());
    furthest = std::max(furthest, distance(moved, values));
  }
  return furthest;
}

void BesideReference::ExpectGradients(const Batch& batch, absl::Span<const float> expected,
                                      absl::Span<const float> actual, const Tolerance& tolerance) const {
  const double all = Norm(expected);
  int64_t end = 0;
  const auto expect_padding = [&](int64_t to, const std::string& where) {
    for (int64_t i = end; i < to; ++i) EXPECT_EQ(actual[i], 0) << "padding " << where;
  };
  for (const Variable& v : graph_->variables()) {
    expect_padding(v.offset, "before " + v.name);
    end = v.offset + v.size;
    const auto a = actual.subspan(v.offset, v.size), e = expected.subspan(v.offset, v.size);
    double bound = tolerance.gradient * std::max(Norm(e), tolerance.share * all);
    const double distance = Distance(a, e);
    if (distance > bound) bound += Unsteadiness(v, batch, expected);
    EXPECT_LE(distance, bound) << v.name << ", norm " << Norm(e) << Furthest(a, e);
  }
  expect_padding(graph_->space_size(), "at the end");
}

void BesideReference::Inference(int64_t examples, const Tolerance& tolerance) {
  ASSERT_NE(program_, nullptr);
  const Batch batch = CaseBatch(*graph_, options_.loss, examples, 9);
  const auto expected = reference_->Predict(batch, values_), actual = program_->Predict(batch, values_);
  ASSERT_TRUE(expected.ok() && actual.ok()) << expected.status() << actual.status();
  ASSERT_EQ(actual->size(), expected->size());
  double bound = tolerance.forward * Norm(expected->floats());
  if (Distance(actual->floats(), expected->floats()) > bound) {  // as gradients do
    bound += FurthestMove(batch, [&](const Batch& moved, absl::Span<const float> values) {
      const auto there = reference_->Predict(moved, values);
      return there.ok() ? Distance(there->floats(), expected->floats()) : 0;
    });
  }
  EXPECT_LE(Distance(actual->floats(), expected->floats()), bound)
      << "predictions" << Furthest(actual->floats(), expected->floats());
  const auto reference = reference_->Evaluate(batch, values_), sums = program_->Evaluate(batch, values_);
  ASSERT_TRUE(reference.ok() && sums.ok()) << reference.status() << sums.status();
  ExpectSums(batch, *reference, *sums, tolerance.loss);
}

double BesideReference::LossMove(const Batch& batch, const BatchSums& expected) const {
  return FurthestMove(batch, [&](const Batch& moved, absl::Span<const float> values) {
    const auto there = reference_->Evaluate(moved, values);
    return there.ok() ? std::abs(there->loss - expected.loss) : 0;
  });
}

void BesideReference::BytesAsFloats(int64_t examples) {
  ASSERT_NE(program_, nullptr);
  const Batch floats = WholeNumbers(CaseBatch(*graph_, options_.loss, examples, 8)), bytes = AsBytes(floats);
  for (Program* const program : {reference_.get(), program_.get()}) {
    const auto compute = [&](const Batch& batch) {
      std::vector<float> all(graph_->space_size(), std::numeric_limits<float>::quiet_NaN());
      const auto trained = program->TrainStep(batch, kInfo, values_, absl::MakeSpan(all), nullptr),
                 evaluated = program->Evaluate(batch, values_);
      const auto predicted = program->Predict(batch, values_);
      EXPECT_TRUE(trained.ok() && evaluated.ok() && predicted.ok())
          << trained.status() << evaluated.status() << predicted.status();
      if (!trained.ok() || !evaluated.ok() || !predicted.ok()) return all;
      for (const BatchSums& sums : {*trained, *evaluated}) {
        all.push_back(static_cast<float>(sums.loss));
        all.insert(all.end(), sums.metrics.begin(), sums.metrics.end());
      }
      all.insert(all.end(), predicted->floats().begin(), predicted->floats().end());
      return all;
    };
    const std::vector<float> right = compute(floats);
    for (int again = 0; again < 3; ++again) {  // on a GPU what was recorded
      const std::vector<float> got = compute(bytes);
      EXPECT_EQ(std::memcmp(got.data(), right.data(), right.size() * sizeof(float)), 0) << Furthest(got, right);
    }
    EXPECT_EQ(compute(floats).size(), right.size());
    Batch cut = bytes;
    cut.inputs = bytes.inputs.Slice(0, bytes.inputs.size() - 1);
    EXPECT_EQ(program->Evaluate(cut, values_).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

void BesideReference::ExpectSums(const Batch& batch, const BatchSums& expected, const BatchSums& actual,
                                 double tolerance) const {
  EXPECT_EQ(actual.examples, expected.examples);
  double bound = tolerance * std::abs(expected.loss) + 1e-6;
  if (std::abs(actual.loss - expected.loss) > bound) bound += LossMove(batch, expected);
  EXPECT_NEAR(actual.loss, expected.loss, bound);
  ASSERT_EQ(actual.metrics.size(), expected.metrics.size());
  if (tolerance > 1e-4) return;  // an accuracy may jump
  for (size_t m = 0; m < actual.metrics.size(); ++m) {
    EXPECT_NEAR(actual.metrics[m], expected.metrics[m], 1e-4 * std::abs(expected.metrics[m]) + 1e-6);
  }
}

}  // namespace cairn
