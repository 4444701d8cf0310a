// Goal: losses, their gradients and metrics of the GPU's kernels are those of worker/backend/loss.h, for every kind of
// loss, activation before it, kind of label, smoothing and class weight: in float64, but for probabilities, where
// clipping to 1 - 1e-7 is rounded, in float32. So are the losses of batches, of any length and number of pairs.
#include <algorithm>
#include <functional>
#include <tuple>

#include "common/model/data_check.h"
#include "tests/unit/backend/kernels_testing.h"
#include "tests/unit/model/model_text.h"
#include "worker/backend/batch_loss.h"
#include "worker/backend/cudnn/kernels/batch_loss.h"
#include "worker/backend/loss.h"

namespace cairn::cudnn::kernels {
namespace {

struct LossCase {
  v1::Loss::Kind kind;
  bool fused, from_logits, class_numbers;
  float smoothing;
  int64_t outputs;
  bool weights;
};

std::vector<LossCase> LossCases() {
  std::vector<LossCase> cases;
  for (float smoothing : {0.0f, 0.1f}) {
    for (bool weights : {false, true}) {
      for (int64_t outputs : {2, 10, 700}) {
        for (int how = 0; how < 3; ++how) {  // fused, from logits, from probabilities
          const bool fused = how == 0, logits = how == 1;
          cases.push_back(
              {v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY, fused, logits, true, smoothing, outputs, weights});
          cases.push_back({v1::Loss::CATEGORICAL_CROSSENTROPY, fused, logits, true, smoothing, outputs, weights});
          cases.push_back({v1::Loss::CATEGORICAL_CROSSENTROPY, fused, logits, false, smoothing, outputs, weights});
        }
      }
      for (int64_t outputs : {1, 3, 600}) {
        for (int how = 0; how < 3; ++how)
          cases.push_back({v1::Loss::BINARY_CROSSENTROPY, how == 0, how == 1, false, smoothing, outputs, weights});
        if (smoothing == 0) cases.push_back({v1::Loss::MEAN_SQUARED_ERROR, false, false, false, 0, outputs, weights});
      }
    }
  }
  return cases;
}

TEST(Loss, IsThatOfTheCpu) {
  const int64_t examples = 13;
  std::vector<v1::Metric> metrics(5);
  metrics[0].set_kind(v1::Metric::ACCURACY);
  metrics[1].set_kind(v1::Metric::TOP_K_ACCURACY);
  metrics[1].set_k(1);
  metrics[2].set_kind(v1::Metric::TOP_K_ACCURACY);
  metrics[2].set_k(5);
  metrics[3].set_kind(v1::Metric::MEAN_ABSOLUTE_ERROR);
  metrics[4].set_kind(v1::Metric::ROOT_MEAN_SQUARED_ERROR);
  uint32_t seed = 100;
  for (const LossCase& c : LossCases()) {
    v1::Loss loss;
    loss.set_kind(c.kind);
    loss.set_from_logits(c.from_logits);
    loss.set_label_smoothing(c.smoothing);
    LossPlan plan;
    plan.fused = c.fused;
    plan.softmax = c.kind == v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY || c.kind == v1::Loss::CATEGORICAL_CROSSENTROPY;
    if (c.weights) plan.class_weights = {0.5f, 3.0f};
    const bool logits = c.fused || c.from_logits || c.kind == v1::Loss::MEAN_SQUARED_ERROR;
    std::vector<float> outputs =
        logits ? Random(examples * c.outputs, ++seed, -4, 4) : Random(examples * c.outputs, ++seed, 0.01f, 0.99f);
    for (float& v : outputs) v = std::round(v * 256) / 256;  // some are equal
    if (logits) {
      outputs[0] = 40;  // rounding must not overflow
    } else {
      outputs[0] = 0;  // clipped
      outputs[examples * c.outputs - 1] = 1;
    }
    const int64_t label_size = c.class_numbers ? 1 : c.outputs;
    std::vector<float> labels = Random(examples * label_size, ++seed, 0, 1);
    if (c.class_numbers) {
      for (float& l : labels) l = std::floor(l * static_cast<float>(c.outputs));
    } else if (plan.softmax && (c.smoothing > 0 || !logits)) {  // else labels are no distribution: their sum counts
      for (int64_t e = 0; e < examples; ++e) {
        float sum = 0;
        for (int64_t i = 0; i < c.outputs; ++i) sum += labels[e * c.outputs + i];
        for (int64_t i = 0; i < c.outputs; ++i) labels[e * c.outputs + i] /= sum;
      }
    }
    LossArguments a;
    a.kind = c.kind;
    a.softmax = plan.softmax;
    a.fused = c.fused;
    a.from_logits = c.from_logits;
    a.label_smoothing = c.smoothing;
    a.examples = examples;
    a.outputs = c.outputs;
    a.label_size = label_size;
    a.metrics = static_cast<int32_t>(metrics.size());
    for (size_t m = 0; m < metrics.size(); ++m) {
      a.metric_kind[m] = metrics[m].kind();
      a.metric_k[m] = metrics[m].k();
    }
    a.weights = static_cast<int64_t>(plan.class_weights.size());
    const Tensor x(outputs), t(labels), weights(c.weights ? plan.class_weights : std::vector<float>{1.0f});
    for (bool training : {true, false}) {
      const std::string what = v1::Loss::Kind_Name(c.kind) +
                               (c.fused         ? " fused "
                                : c.from_logits ? " logits "
                                                : " ") +
                               std::to_string(c.outputs) + " outputs, smoothing " + std::to_string(c.smoothing) +
                               (c.weights ? ", weights" : "") + (c.class_numbers ? ", class numbers" : "") +
                               (training ? "" : ", evaluation");
      SCOPED_TRACE(what);
      std::vector<double> want(training ? x.size() : 0);
      BatchSums sums;
      if (logits) {
        ASSERT_TRUE(LossAndMetrics<double>(loss, plan, metrics, {examples, x.exact(), labels, label_size},
                                           absl::MakeSpan(want), &sums)
                        .ok());
      } else {
        std::vector<float> short_want(want.size());
        ASSERT_TRUE(LossAndMetrics<float>(loss, plan, metrics, {examples, outputs, labels, label_size},
                                          absl::MakeSpan(short_want), &sums)
                        .ok());
        want.assign(short_want.begin(), short_want.end());
      }
      StepKey key;
      key.loss_scale = 4;
      Memory scale(sizeof(key));  // a device reads its own memory only
      scale.Put(&key, sizeof(key));
      if (c.weights) {
        for (double& g : want) g *= key.loss_scale;
      }
      const int64_t columns = 1 + a.metrics;
      std::vector<uint8_t> results;
      const auto launch = [&](float* gradients) {
        Memory out(examples * columns * 8);
        const Error error = kernels::Loss(nullptr, a, x.floats(), t.floats(), c.weights ? weights.floats() : nullptr,
                                          c.weights ? static_cast<const StepKey*>(scale.data()) : nullptr, gradients,
                                          static_cast<double*>(out.data()));
        const std::vector<uint8_t> bytes = out.Get();
        EXPECT_TRUE(results.empty() || results == bytes) << "the bits depend on the order of threads";
        results = bytes;
        return error;
      };
      if (training) {
        ExpectNear(Launched(x.size(), DType::kFloat32, [&](void* g) { return launch(static_cast<float*>(g)); }), want,
                   5e-6, "gradient");
      } else {
        EXPECT_EQ(launch(nullptr), 0);
      }
      std::vector<double> got(columns, 0.0);
      for (int64_t i = 0; i < examples * columns; ++i) {
        double value;
        std::memcpy(&value, results.data() + 8 * i, 8);
        got[i % columns] += value;
      }
      EXPECT_NEAR(got[0], sums.loss, 2e-6 * std::abs(sums.loss) + 1e-6);
      for (size_t m = 0; m < metrics.size(); ++m)
        EXPECT_NEAR(got[1 + m], sums.metrics[m], 3e-6 * std::abs(sums.metrics[m]) + 1e-7) << m;
    }
  }
}

// The losses of row_loss.h, each position a row, weighed: as LossAndMetrics has them.
TEST(Loss, OtherLossesAndPositionsAreThoseOfTheCpu) {
  const int64_t examples = 5, positions = 6, size = 3;
  uint32_t seed = 900;
  for (int kind = 1; kind <= v1::Loss::CATEGORICAL_GENERALIZED_CROSS_ENTROPY; ++kind) {
    if (!v1::Loss::Kind_IsValid(kind)) continue;
    for (bool weighted : {false, true}) {
      v1::Loss loss;
      loss.set_kind(static_cast<v1::Loss::Kind>(kind));
      SCOPED_TRACE(v1::Loss::Kind_Name(loss.kind()) + (weighted ? ", weighted" : ""));
      const bool sparse = kind == v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY;
      if (sparse && weighted) loss.set_ignore_class(7);
      LossPlan plan;
      plan.softmax = IsCategorical(loss.kind());
      const bool whole = kind == v1::Loss::DICE || kind == v1::Loss::TVERSKY;
      plan.positions = whole ? 1 : positions;
      plan.metric_rows = positions;
      plan.class_weights = plan.softmax && weighted ? std::vector<float>{0.5f, 3.0f} : std::vector<float>{};
      const int64_t numbers = examples * positions * size, label_size = sparse ? positions : positions * size;
      const std::vector<float> outputs = Random(numbers, ++seed, 0.05f, 0.95f);
      std::vector<float> labels = Random(examples * label_size, ++seed, 0, 1);
      for (float& l : labels) l = sparse ? std::floor(l * size) : std::round(l);
      if (sparse && weighted) labels[3] = 7;
      if (weighted) {
        for (int64_t e = 0; e < examples; ++e) labels.push_back(0.5f * static_cast<float>(e));
      }
      std::vector<float> want(static_cast<size_t>(numbers));
      BatchSums sums;
      const absl::Status status =
          LossAndMetrics<float>(loss, plan, {}, {examples, outputs, labels, label_size}, absl::MakeSpan(want), &sums);
      ASSERT_TRUE(status.ok()) << status;
      const std::vector<float> rows = RowWeights(loss, plan, examples, labels, label_size);
      EXPECT_EQ(rows.empty(), !weighted);
      const Tensor x(outputs), t(labels), row_weights(rows.empty() ? std::vector<float>{1.0f} : rows),
          weights(plan.class_weights.empty() ? std::vector<float>{1.0f} : plan.class_weights);
      LossArguments a;
      a.kind = kind;
      a.softmax = plan.softmax;
      a.examples = examples * plan.positions;
      a.outputs = numbers / a.examples;
      a.label_size = label_size / plan.positions;
      a.share = 1 / static_cast<float>(plan.positions);
      a.row_weights = rows.empty() ? nullptr : row_weights.floats();
      a.other = SettingsOf(loss);
      a.weights = static_cast<int64_t>(plan.class_weights.size());
      std::vector<double> got(static_cast<size_t>(a.examples));
      ExpectNear(Launched(numbers, DType::kFloat32,
                          [&](void* g) {
                            Memory out(a.examples * 8);
                            const Error error =
                                kernels::Loss(nullptr, a, x.floats(), t.floats(), weights.floats(), nullptr,
                                              static_cast<float*>(g), static_cast<double*>(out.data()));
                            std::memcpy(got.data(), out.Get().data(), got.size() * 8);
                            return error;
                          }),
                 std::vector<double>(want.begin(), want.end()), 5e-6, "gradient");
      double total = 0;
      for (double v : got) total += v;
      EXPECT_NEAR(total, sums.loss, 3e-6 * std::abs(sums.loss) + 1e-6);
    }
  }
}

// ---- losses of batches ----

struct BatchCase {
  v1::Loss loss;
  LossPlan plan;
  int64_t examples = 0, label_size = 1;
  std::vector<float> outputs, labels;
};

// What a launch reads and writes besides its arguments.
struct BatchMemory {
  const float *outputs, *labels, *weights;
  const StepKey* key;
  float* gradients;
  double* results;
};

// weighted: with weights of the examples and a loss scale.
void ExpectBatchLoss(const BatchCase& c, bool weighted, const std::function<Error(const BatchMemory&)>& launch) {
  std::vector<float> labels = c.labels, weights = Random(c.examples, 77, 0.25f, 2);
  weights[0] = 0;
  if (weighted) labels.insert(labels.end(), weights.begin(), weights.end());
  const Tensor x(c.outputs), t(labels), w(weights);
  std::vector<double> want(x.size());
  BatchSums sums;
  ASSERT_TRUE(LossAndMetrics<double>(c.loss, c.plan, {}, {c.examples, x.exact(), labels, c.label_size},
                                     absl::MakeSpan(want), &sums)
                  .ok());
  StepKey key;
  key.loss_scale = 4;
  Memory scale(sizeof(key));
  scale.Put(&key, sizeof(key));
  if (weighted) {
    for (double& g : want) g *= key.loss_scale;
  }
  std::vector<uint8_t> results;
  const auto run = [&](float* gradients) {
    Memory out(c.examples * 8);
    const Error error = launch({x.floats(), t.floats(), weighted ? w.floats() : nullptr,
                                weighted ? static_cast<const StepKey*>(scale.data()) : nullptr, gradients,
                                static_cast<double*>(out.data())});
    const std::vector<uint8_t> bytes = out.Get();
    EXPECT_TRUE(results.empty() || results == bytes) << "the bits depend on the order of threads, or on the gradients";
    results = bytes;
    return error;
  };
  ExpectNear(Launched(x.size(), DType::kFloat32, [&](void* g) { return run(static_cast<float*>(g)); }), want, 5e-6,
             "gradient");
  EXPECT_EQ(run(nullptr), 0);
  double total = 0;
  for (int64_t e = 0; e < c.examples; ++e) {
    double value;
    std::memcpy(&value, results.data() + 8 * e, 8);
    total += value;
  }
  EXPECT_NEAR(total, sums.loss, 1e-6 * std::abs(sums.loss) + 1e-6);
}

struct CtcShape {
  int64_t steps, classes, label_size;
};

// Few and many classes, more places than a block has threads, more labels' numbers than steps. One example has none.
TEST(Loss, OfSequencesIsThatOfTheCpu) {
  uint32_t seed = 300;
  for (const CtcShape& s : {CtcShape{9, 5, 6}, {1, 2, 1}, {30, 300, 12}, {320, 4, 150}, {4, 3, 7}}) {
    SCOPED_TRACE(std::to_string(s.steps) + " steps");
    BatchCase c;
    c.loss.set_kind(v1::Loss::CTC);
    c.plan.metric_rows = s.steps;
    c.examples = 3;
    c.label_size = s.label_size;
    c.outputs = Random(c.examples * s.steps * s.classes, ++seed, -6, 6);
    c.outputs[0] = 90;  // exp of it, or of the sums, must not overflow
    c.labels.assign(c.examples * s.label_size, 0.0f);
    const std::vector<float> draws = Random(c.examples * s.label_size, ++seed, 0, 1);
    for (int64_t e = 1; e < c.examples; ++e) {  // half of the steps are enough for labels that are all equal
      const int64_t count = std::min(s.label_size, (s.steps + 1) / 2) - (e == 1 ? 0 : 1);
      for (int64_t i = e * s.label_size; i < e * s.label_size + count; ++i)
        c.labels[i] = 1 + std::floor(draws[i] * static_cast<float>(s.classes - 1));
    }
    CtcArguments a;
    a.examples = c.examples;
    a.steps = s.steps;
    a.classes = s.classes;
    a.label_size = s.label_size;
    for (const bool weighted : {false, true}) {
      ExpectBatchLoss(c, weighted, [&](const BatchMemory& m) {
        Memory scratch(CtcScratch(a) * 4);
        a.weights = m.weights;
        return CtcLoss(nullptr, a, m.outputs, m.labels, m.key, m.gradients, m.results,
                       static_cast<float*>(scratch.data()));
      });
    }
  }
}

// More pairs of an example than a block has threads; classes with one example, one class alone, one example.
TEST(Loss, OfPairsIsThatOfTheCpu) {
  uint32_t seed = 400;
  for (const auto& [examples, size, classes] :
       {std::tuple<int64_t, int64_t, int>(7, 3, 3), {300, 5, 4}, {40, 64, 30}, {6, 2, 1}, {1, 4, 2}}) {
    for (const char* text : {"", "gamma: 5 margin: 0.25", "gamma: 5 remove_diagonal: false"}) {
      SCOPED_TRACE(std::to_string(examples) + " examples " + text);
      BatchCase c;
      c.loss = FromText<v1::Loss>(text);
      c.loss.set_kind(v1::Loss::CIRCLE);
      c.examples = examples;
      c.outputs = Random(examples * size, ++seed);
      for (int64_t e = 0; e < examples; ++e) {
        float squares = 0;
        for (int64_t k = 0; k < size; ++k) squares += c.outputs[e * size + k] * c.outputs[e * size + k];
        for (int64_t k = 0; k < size; ++k) c.outputs[e * size + k] /= std::sqrt(squares);
      }
      c.labels = Random(examples, ++seed, 0, static_cast<float>(classes));
      for (float& label : c.labels) label = std::floor(label);
      CircleArguments a;
      a.settings = CircleSettingsOf(c.loss);
      a.examples = examples;
      a.size = size;
      for (const bool weighted : {false, true}) {
        ExpectBatchLoss(c, weighted, [&](const BatchMemory& m) {
          Memory scratch(CircleScratch(a) * 4);
          a.weights = m.weights;
          return kernels::CircleLoss(nullptr, a, m.outputs, m.labels, m.key, m.gradients, m.results,
                                     static_cast<float*>(scratch.data()));
        });
      }
    }
  }
}

// A training that has diverged is seen by its loss: a largest score that is not a number is not "no pair". More pairs
// than a block has threads, so that threads and their largest scores are both joined.
TEST(Loss, OfPairsThatAreNoNumbersIsNone) {
  constexpr int64_t kExamples = 300, kSize = 4;
  std::vector<float> labels(kExamples);
  for (int64_t e = 0; e < kExamples; ++e) labels[e] = static_cast<float>(e % 2);
  const Tensor classes(labels);
  CircleArguments a;
  a.examples = kExamples;
  a.size = kSize;
  const auto loss_of = [&](const std::vector<float>& outputs) {
    const Tensor x(outputs);
    Memory scratch(CircleScratch(a) * 4), results(kExamples * 8);
    EXPECT_EQ(kernels::CircleLoss(nullptr, a, x.floats(), classes.floats(), nullptr, nullptr,
                                  static_cast<double*>(results.data()), static_cast<float*>(scratch.data())),
              0);
    const std::vector<uint8_t> bytes = results.Get();
    double total = 0;
    for (int64_t e = 0; e < kExamples; ++e) {
      double value;
      std::memcpy(&value, bytes.data() + 8 * e, 8);
      total += value;
    }
    return total;
  };
  const std::vector<float> finite = Random(kExamples * kSize, 500, -0.5f, 0.5f);
  EXPECT_TRUE(std::isfinite(loss_of(finite)));
  EXPECT_TRUE(std::isnan(loss_of(std::vector<float>(kExamples * kSize, NAN))));
  for (const int64_t row : {int64_t{0}, int64_t{7}, kExamples - 1}) {
    std::vector<float> one = finite;
    one[row * kSize] = NAN;
    EXPECT_TRUE(std::isnan(loss_of(one))) << "row " << row;
  }
}

}  // namespace
}  // namespace cairn::cudnn::kernels
