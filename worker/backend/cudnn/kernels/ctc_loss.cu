// Connectionist temporal classification: the logarithms of the softmax's sums, a block for each example that goes
// forward and backward through its steps, then the gradients.
#include <cmath>

#include "worker/backend/cudnn/kernels/batch_loss.h"
#include "worker/backend/cudnn/kernels/numbers.h"

namespace cairn::cudnn::kernels {
namespace {

// Labels with blanks around each of them; there are at most as many labels as steps.
int64_t PlacesMax(const CtcArguments& a) { return 2 * (a.label_size < a.steps ? a.label_size : a.steps) + 1; }

// One block a step of an example.
struct LogSumOfStep {
  static constexpr int kThreads = 32;
  static constexpr int kSharedBytes = kThreads * 8;
  int64_t classes;
  const float* outputs;
  double* log_sums;
  template <class B>
  CAIRN_DEVICE void operator()(B& block) const {
    double* values = block.template Shared<double>();
    const float* const x = outputs + block.index() * classes;
    block.ForEachThread([&](int thread) {
      double most = -INFINITY;
      for (int64_t k = thread; k < classes; k += kThreads) most = most < x[k] ? x[k] : most;
      values[thread] = most;
    });
    const double most = block.Reduce(values, [](double p, double q) { return p < q ? q : p; });
    block.ForEachThread([&](int thread) {
      double sum = 0;
      for (int64_t k = thread; k < classes; k += kThreads) sum += exp(static_cast<double>(x[k]) - most);
      values[thread] = sum;
    });
    const double sum = block.Reduce(values, [](double p, double q) { return p + q; });
    block.ForEachThread([&](int thread) {
      if (thread == 0) log_sums[block.index()] = most + log(sum);
    });
  }
};

// What the launches share, in scratch.
struct CtcPlaces {
  int64_t places_max;
  double* log_sums;  // [examples, steps]
  double* counts;    // [examples]: labels
  double* ways;      // [examples, steps, places_max]: the logarithm of all ways there, then the share of the alignments
  double* to_end;    // [examples, 2, places_max]: the logarithm of all ways from there
};

// One block an example, a thread for each place.
struct WaysOfExample {
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kSharedBytes = kThreads * 4;
  CtcArguments a;
  CtcPlaces p;
  const float *outputs, *labels;
  bool training;
  double* results;

  // The labels, the outputs and the steps of the block's example.
  struct Example {
    const float *labels, *x;
    const double* log_sums;
    int64_t classes;
    CAIRN_DEVICE int64_t ClassAt(int64_t s) const { return s % 2 == 0 ? 0 : static_cast<int64_t>(labels[s / 2]); }
    // Whether an alignment may go from place s - 2 to s.
    CAIRN_DEVICE bool Skips(int64_t s) const { return s % 2 == 1 && s > 1 && labels[s / 2] != labels[s / 2 - 1]; }
    CAIRN_DEVICE double LogP(int64_t t, int64_t s) const {
      return static_cast<double>(x[t * classes + ClassAt(s)]) - log_sums[t];
    }
  };

  // Behind the labels there are only 0.
  template <class B>
  CAIRN_DEVICE int32_t CountLabels(B& block, const float* own) const {
    int32_t* values = block.template Shared<int32_t>();
    block.ForEachThread([&](int thread) {
      int32_t count = 0;
      for (int64_t i = thread; i < a.label_size; i += kThreads) count += own[i] != 0 ? 1 : 0;
      values[thread] = count;
    });
    return block.Reduce(values, [](int32_t p, int32_t q) { return p + q; });
  }

  // Returns the logarithm of the probability of all alignments.
  template <class B>
  CAIRN_DEVICE double Forward(B& block, const Example& e, int64_t places, double* ways) const {
    for (int64_t t = 0; t < a.steps; ++t) {
      double* const now = ways + t * p.places_max;
      const double* const before = now - p.places_max;
      block.ForEachThread([&](int thread) {
        for (int64_t s = thread; s < places; s += kThreads) {
          double sum = -INFINITY;
          if (t == 0) {
            sum = s < 2 ? 0 : -INFINITY;
          } else {
            sum = before[s];
            if (s > 0) sum = AddLogs(sum, before[s - 1]);
            if (e.Skips(s)) sum = AddLogs(sum, before[s - 2]);
          }
          now[s] = sum + e.LogP(t, s);
        }
      });
    }
    const double* const last = ways + (a.steps - 1) * p.places_max;
    return places == 1 ? last[0] : AddLogs(last[places - 1], last[places - 2]);
  }

  template <class B>
  CAIRN_DEVICE void Backward(B& block, const Example& e, int64_t places, double log_probability, double* ways) const {
    double *now = p.to_end + block.index() * 2 * p.places_max, *earlier = now + p.places_max;
    block.ForEachThread([&](int thread) {
      for (int64_t s = thread; s < places; s += kThreads) now[s] = s + 2 < places ? -INFINITY : 0;
    });
    for (int64_t t = a.steps - 1; t >= 0; --t) {
      block.ForEachThread([&](int thread) {
        const auto from = [&](int64_t s) { return now[s] + e.LogP(t, s); };
        for (int64_t s = thread; s < places; s += kThreads) {
          double& way = ways[t * p.places_max + s];
          const double whole = way + now[s];
          way = whole == -INFINITY ? 0 : exp(whole - log_probability);
          double sum = from(s);
          if (s + 1 < places) sum = AddLogs(sum, from(s + 1));
          if (s + 2 < places && e.Skips(s + 2)) sum = AddLogs(sum, from(s + 2));
          earlier[s] = sum;
        }
      });
      double* const swapped = now;
      now = earlier;
      earlier = swapped;
    }
  }

  template <class B>
  CAIRN_DEVICE void operator()(B& block) const {
    const int64_t example = block.index();
    const Example e{labels + example * a.label_size, outputs + example * a.steps * a.classes,
                    p.log_sums + example * a.steps, a.classes};
    const int32_t count = CountLabels(block, e.labels);
    const int64_t places = 2 * static_cast<int64_t>(count) + 1;
    double* const ways = p.ways + example * a.steps * p.places_max;
    const double log_probability = Forward(block, e, places, ways);
    block.ForEachThread([&](int thread) {
      if (thread != 0) return;
      const float weight = a.weights == nullptr ? 1 : a.weights[example];
      results[example] = weight == 0 ? 0 : static_cast<double>(weight) * -log_probability;
      p.counts[example] = count;
    });
    if (training) Backward(block, e, places, log_probability, ways);
  }
};

// The softmax of a logit less the share of the alignments that take its class there: one thread a logit.
struct LogitGradient {
  CtcArguments a;
  CtcPlaces p;
  Divider classes, steps;
  const float *outputs, *labels;
  const StepKey* key;  // may be null
  float* gradients;
  template <int V>
  CAIRN_DEVICE void Do(int64_t number) const {
    int64_t row, example;
    const int64_t k = classes.Split(number, &row);
    steps.Split(row, &example);
    const float* const own = labels + example * a.label_size;
    const double* const shares = p.ways + row * p.places_max;
    const int64_t places = 2 * static_cast<int64_t>(p.counts[example]) + 1;
    double share = 0;
    for (int64_t s = k == 0 ? 0 : 1; s < places; s += 2) {
      if (k == 0 || own[s / 2] == static_cast<float>(k)) share += shares[s];
    }
    const float weight = a.weights == nullptr ? 1 : a.weights[example];
    const float gradient = static_cast<float>(exp(static_cast<double>(outputs[number]) - p.log_sums[row]) - share);
    gradients[number] = weight == 0 ? 0 : gradient * (key == nullptr ? weight : weight * key->loss_scale);
  }
};

}  // namespace

int64_t CtcScratch(const CtcArguments& a) { return 2 * a.examples * (a.steps + 1 + (a.steps + 2) * PlacesMax(a)); }

Error CtcLoss(Stream stream, const CtcArguments& a, const float* outputs, const float* labels, const StepKey* key,
              float* gradients, double* results, float* scratch) {
  const int64_t rows = a.examples * a.steps, numbers = rows * a.classes;
  CtcPlaces p{PlacesMax(a), reinterpret_cast<double*>(scratch), nullptr, nullptr, nullptr};
  p.counts = p.log_sums + rows;
  p.ways = p.counts + a.examples;
  p.to_end = p.ways + rows * p.places_max;
  Error error = Launch(stream, rows, LogSumOfStep{a.classes, outputs, p.log_sums});
  if (error == 0)
    error = Launch(stream, a.examples, WaysOfExample{a, p, outputs, labels, gradients != nullptr, results});
  if (error != 0 || gradients == nullptr) return error;
  return LaunchForEach(
      stream, numbers, false,
      LogitGradient{a, p, Divider(a.classes, numbers), Divider(a.steps, rows), outputs, labels, key, gradients});
}

}  // namespace cairn::cudnn::kernels
