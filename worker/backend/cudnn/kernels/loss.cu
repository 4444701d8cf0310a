// Losses with their gradients, and metrics: one block a row. Formulas: worker/backend/class_loss.h; the losses of
// worker/backend/row_loss.h have a thread a row, and their metrics are counted on the host.
#include <cmath>

#include "worker/backend/cudnn/kernels/activation.h"
#include "worker/backend/cudnn/kernels/places.h"

namespace cairn::cudnn::kernels {
namespace {

// v1::Loss::Kind and v1::Metric::Kind.
enum LossKind { kSparseCategorical = 1, kCategorical = 2, kBinary = 3, kMeanSquared = 4 };
enum MetricKind { kAccuracy = 1, kTopK = 2, kMeanAbsolute = 3, kRootMeanSquared = 4 };

// keras.config.epsilon(): probabilities are clipped to [epsilon, 1 - epsilon] before a logarithm.
constexpr float kLow = 1e-7f, kHigh = static_cast<float>(1 - 1e-7);
CAIRN_DEVICE float Clip(float p) { return p < kLow ? kLow : (p > kHigh ? kHigh : p); }
CAIRN_DEVICE bool Clipped(float p) { return p < kLow || p > kHigh; }

// The first largest number of a row.
struct Largest {
  float value;
  int32_t place;
};

template <int threads>
struct LossOfExample {
  static constexpr int kThreads = threads;
  static constexpr int kSharedBytes = threads * 8;
  LossArguments a;
  const float *outputs, *labels, *class_weights;
  const StepKey* key;  // may be null
  float* gradients;
  double* results;

  // A row: an example, or a position of one.
  struct Row {
    const float *x, *t;
    int32_t n;
    int32_t label;  // where the label is a class number, else -1
    float smoothing, share;
    CAIRN_DEVICE float Target(int32_t i) const { return label >= 0 ? (i == label ? 1.0f : 0.0f) : t[i]; }
    CAIRN_DEVICE float Smoothed(int32_t i) const {
      return smoothing > 0 ? Target(i) * (1 - smoothing) + share : Target(i);
    }
  };

  template <class B, class Fn>
  CAIRN_DEVICE static double SumOf(B& block, int32_t n, Fn fn) {
    double* values = block.template Shared<double>();
    block.ForEachThread([&](int thread) {
      double sum = 0;
      for (int32_t i = thread; i < n; i += kThreads) sum += fn(i);
      values[thread] = sum;
    });
    return block.Reduce(values, [](double p, double q) { return p + q; });
  }

  template <class B, class Fn>
  CAIRN_DEVICE static Largest LargestOf(B& block, int32_t n, Fn fn) {
    Largest* values = block.template Shared<Largest>();
    block.ForEachThread([&](int thread) {
      Largest best{-INFINITY, n};
      for (int32_t i = thread; i < n; i += kThreads) {
        const float v = fn(i);
        if (best.place == n || v > best.value) best = {v, i};
      }
      values[thread] = best;
    });
    return block.Reduce(values, [n](const Largest& p, const Largest& q) {
      if (p.place == n || q.place == n) return p.place == n ? q : p;
      return q.value > p.value || (q.value == p.value && q.place < p.place) ? q : p;
    });
  }

  template <class B, class Fn>
  CAIRN_DEVICE static void ForEachOutput(B& block, int32_t n, Fn fn) {
    block.ForEachThread([&](int thread) {
      for (int32_t i = thread; i < n; i += kThreads) fn(i);
    });
  }

  template <class B>
  CAIRN_DEVICE void operator()(B& block) const {
    const int64_t example = block.index();
    const int32_t n = static_cast<int32_t>(a.outputs);
    const bool logits = a.fused || a.from_logits;
    const bool class_number = a.kind == kSparseCategorical || (a.softmax && a.label_size == 1);
    Row row{outputs + example * a.outputs,
            labels + example * a.label_size,
            n,
            -1,
            a.label_smoothing,
            a.softmax ? a.label_smoothing / static_cast<float>(n) : a.label_smoothing / 2};
    const float part = a.row_weights != nullptr ? a.row_weights[example] : a.share;
    bool known = true;  // false: the label is ignored, and no class
    if (class_number) {
      row.label = static_cast<int32_t>(row.t[0]);
      known = row.label >= 0 && row.label < n;
      if (!known) row.label = 0;
    }

    // Shared by losses and metrics.
    const Largest most = LargestOf(block, n, [&](int32_t i) { return row.x[i]; });
    const int32_t own = class_number ? row.label : LargestOf(block, n, [&](int32_t i) { return row.Target(i); }).place;
    float sum = 1;  // of exp(x - max)
    if (a.softmax && logits)
      sum = static_cast<float>(SumOf(block, n, [&](int32_t i) { return expf(row.x[i] - most.value); }));

    float weight = 1;
    if (a.weights > 0 && gradients != nullptr) {
      const int32_t of = n == 1 ? (row.Target(0) > 0.5f ? 1 : 0) : own;
      if (of < a.weights) weight = class_weights[of];
    }
    if (part != 1) weight *= part;
    const double loss =
        LossOf(block, row, own, most.value, sum, gradients == nullptr ? nullptr : gradients + example * a.outputs,
               key == nullptr ? weight : weight * key->loss_scale);
    double* result = results + example * (1 + a.metrics);
    block.ForEachThread([&](int thread) {
      if (thread == 0) result[0] = weight == 1 ? loss : static_cast<double>(weight) * loss;
    });
    for (int32_t m = 0; m < a.metrics; ++m) {
      double value = MetricOf(block, row, m, most, own, sum);
      if (!known && (a.metric_kind[m] == kAccuracy || a.metric_kind[m] == kTopK)) value = 0;
      if (a.share != 1) value *= static_cast<double>(a.share);
      block.ForEachThread([&](int thread) {
        if (thread == 0) result[1 + m] = value;
      });
    }
  }

  // Writes the gradient, times weight, to g if it is not null.
  template <class B>
  CAIRN_DEVICE double LossOf(B& block, const Row& row, int32_t own, float max, float sum, float* g,
                             float weight) const {
    const int32_t n = row.n;
    const bool logits = a.fused || a.from_logits;
    if (a.softmax && logits) {
      const float log_sum = max + logf(sum);
      const float total = static_cast<float>(SumOf(block, n, [&](int32_t i) { return row.Smoothed(i); }));
      if (g != nullptr) {
        ForEachOutput(block, n,
                      [&](int32_t i) { g[i] = (total * (expf(row.x[i] - max) / sum) - row.Smoothed(i)) * weight; });
      }
      return SumOf(block, n, [&](int32_t i) {
        const float t = row.Smoothed(i);
        return t != 0 ? t * (log_sum - row.x[i]) : 0.0f;
      });
    }
    if (a.kind == kSparseCategorical && a.label_smoothing == 0) {
      const float clipped_sum = static_cast<float>(SumOf(block, n, [&](int32_t i) { return Clip(row.x[i]); }));
      if (g != nullptr) {
        ForEachOutput(block, n, [&](int32_t i) {
          if (Clipped(row.x[i])) {
            g[i] = 0;
          } else {
            g[i] = (1 / clipped_sum - (i == own ? 1 / row.x[i] : 0.0f)) * weight;
          }
        });
      }
      return logf(clipped_sum) - logf(Clip(row.x[own]));
    }
    if (a.softmax) {
      const float whole = static_cast<float>(SumOf(block, n, [&](int32_t i) { return row.x[i]; }));
      const float weighted = static_cast<float>(
          SumOf(block, n, [&](int32_t i) { return Clipped(row.x[i] / whole) ? 0.0f : -row.Smoothed(i); }));
      if (g != nullptr) {
        ForEachOutput(block, n, [&](int32_t i) {
          const float p = row.x[i] / whole;
          g[i] = ((Clipped(p) ? 0.0f : -row.Smoothed(i) / p) - weighted) / whole * weight;
        });
      }
      return SumOf(block, n, [&](int32_t i) {
        const float t = row.Smoothed(i);
        return t != 0 ? -t * logf(Clip(row.x[i] / whole)) : 0.0f;
      });
    }
    return ElementwiseLossOf(block, row, g, weight);
  }

  // The same for binary cross-entropy and the squared error.
  template <class B>
  CAIRN_DEVICE double ElementwiseLossOf(B& block, const Row& row, float* g, float weight) const {
    const int32_t n = row.n;
    const bool logits = a.fused || a.from_logits;
    const float mean = 1.0f / static_cast<float>(n);
    if (a.kind == kBinary) {
      if (g != nullptr) {
        ForEachOutput(block, n, [&](int32_t i) {
          const float x = row.x[i], t = row.Smoothed(i), p = Clip(x);
          const float d = logits ? Sigmoid(x) - t : (Clipped(x) ? 0.0f : (p - t) / (p * (1 - p)));
          g[i] = d * mean * weight;
        });
      }
      return mean * SumOf(block, n, [&](int32_t i) {
               const float x = row.x[i], t = row.Smoothed(i), p = Clip(x);
               return logits ? (x > 0 ? x : 0.0f) - x * t + log1pf(expf(-fabsf(x)))
                             : -(t * logf(p) + (1 - t) * logf(1 - p));
             });
    }
    if (g != nullptr)
      ForEachOutput(block, n, [&](int32_t i) { g[i] = 2 * (row.x[i] - row.Smoothed(i)) * mean * weight; });
    return mean * SumOf(block, n, [&](int32_t i) {
             const float error = row.x[i] - row.Smoothed(i);
             return error * error;
           });
  }

  template <class B>
  CAIRN_DEVICE double MetricOf(B& block, const Row& row, int32_t m, const Largest& most, int32_t own, float sum) const {
    const int32_t n = row.n;
    const bool logits = a.fused || a.from_logits;
    switch (a.metric_kind[m]) {
      case kAccuracy: {
        if (a.kind != kBinary && !(a.kind == kMeanSquared && n == 1)) return most.place == own ? 1 : 0;
        const float threshold = a.kind == kBinary && logits ? 0.0f : 0.5f;  // the logit of 0.5 is 0
        return SumOf(block, n,
                     [&](int32_t i) { return (row.x[i] > threshold) == (row.Target(i) > 0.5f) ? 1.0f : 0.0f; }) /
               n;
      }
      case kTopK: {
        const float of_own = row.x[own];
        return SumOf(block, n, [&](int32_t i) { return !(row.x[i] <= of_own) ? 1.0f : 0.0f; }) < a.metric_k[m] ? 1 : 0;
      }
      case kMeanAbsolute:
      case kRootMeanSquared: {
        const bool square = a.metric_kind[m] == kRootMeanSquared;
        return SumOf(block, n,
                     [&](int32_t i) {
                       float p = row.x[i];
                       if (a.fused) p = a.softmax ? expf(p - most.value) / sum : Sigmoid(p);
                       const double error = p - row.Target(i);
                       return square ? error * error : fabs(error);
                     }) /
               n;
      }
      default: return 0;
    }
  }
};

// The other losses.
struct OtherLoss {
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kSharedBytes = 0;
  LossArguments a;
  const float *outputs, *labels, *class_weights;
  const StepKey* key;  // may be null
  float* gradients;
  double* results;

  template <class B>
  CAIRN_DEVICE void operator()(B& block) const {
    block.ForEachThread([&](int thread) {
      const int64_t row = block.index() * kThreads + thread;
      if (row < a.examples) OfRow(row);
    });
  }

  CAIRN_DEVICE void OfRow(int64_t row) const {
    const int64_t n = a.outputs;
    const float *const x = outputs + row * n, *const t = labels + row * a.label_size;
    const bool class_number = a.softmax && a.label_size == 1;
    const int64_t label = class_number ? static_cast<int64_t>(t[0]) : -1;
    const bool smooth = a.label_smoothing > 0;
    const float share = a.softmax ? a.label_smoothing / static_cast<float>(n) : a.label_smoothing / 2;
    const auto plain = [&](int64_t i) { return class_number ? (i == label ? 1.0f : 0.0f) : t[i]; };
    const auto target = [&](int64_t i) { return smooth ? plain(i) * (1 - a.label_smoothing) + share : plain(i); };
    float weight = a.row_weights != nullptr ? a.row_weights[row] : a.share;
    if (a.weights > 0 && gradients != nullptr) {
      int64_t of = 0;
      if (n == 1) {
        of = plain(0) > 0.5f ? 1 : 0;
      } else {
        for (int64_t i = 1; i < n; ++i) of = plain(i) > plain(of) ? i : of;
      }
      if (of < a.weights) weight *= class_weights[of];
    }
    const float scale = key == nullptr ? weight : weight * key->loss_scale;
    const auto write = [&](int64_t i, float g) { gradients[row * n + i] = g * scale; };
    double loss = 0;
    if (gradients == nullptr) {
      loss = RowLoss<float, false, decltype(target), decltype(write)>(a.other, x, n, target, write).Compute();
    } else {
      loss = RowLoss<float, true, decltype(target), decltype(write)>(a.other, x, n, target, write).Compute();
    }
    results[row] = static_cast<double>(weight) * loss;
  }
};

}  // namespace

Error Loss(Stream stream, const LossArguments& a, const float* outputs, const float* labels, const float* class_weights,
           const StepKey* key, float* gradients, double* results) {
  if (a.kind > kMeanSquared) {
    return Launch(stream, CeilDivide(a.examples, kBlockThreads),
                  OtherLoss{a, outputs, labels, class_weights, key, gradients, results});
  }
  if (a.outputs <= kWarpOutputsMax) {
    return Launch(stream, a.examples, LossOfExample<32>{a, outputs, labels, class_weights, key, gradients, results});
  }
  return Launch(stream, a.examples,
                LossOfExample<kBlockThreads>{a, outputs, labels, class_weights, key, gradients, results});
}

}  // namespace cairn::cudnn::kernels
