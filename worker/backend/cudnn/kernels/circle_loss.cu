// The circle loss of a batch: the distances of all pairs, then a block for each example, then the gradients.
#include <cmath>

#include "worker/backend/cudnn/kernels/batch_loss.h"
#include "worker/backend/cudnn/kernels/numbers.h"

namespace cairn::cudnn::kernels {
namespace {

// 1 - the product of two embeddings, in the order of their numbers.
struct PairDistance {
  Divider examples;
  int64_t size;
  const float* x;
  double* pairs;
  template <int V>
  CAIRN_DEVICE void Do(int64_t pair) const {
    int64_t i;
    const int64_t j = examples.Split(pair, &i);
    double dot = 0;
    for (int64_t k = 0; k < size; ++k) {
      dot += static_cast<double>(x[i * size + k]) * static_cast<double>(x[j * size + k]);
    }
    pairs[pair] = 1 - dot;
  }
};

// One block an example: its loss, without its weight; its distances become the derivatives with respect to them.
struct PairsOfExample {
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kSharedBytes = kThreads * 8;
  CircleArguments a;
  const float* classes;
  double *pairs, *losses;

  // 0: of the same class; 1: of another one; -1: no pair.
  CAIRN_DEVICE int SideOf(int64_t i, int64_t j) const {
    if (classes[j] != classes[i]) return 1;
    return a.settings.remove_diagonal && j == i ? -1 : 0;
  }
  CAIRN_DEVICE Sloped ScoreOf(int64_t i, int64_t j) const {
    const double raw = pairs[i * a.examples + j];
    return CircleScore(a.settings, classes[j] == classes[i], raw < 0 ? 0 : raw);
  }

  // The logarithm of the sum over the pairs of a side; -infinity: it has none; NaN: the score of one is.
  template <class B>
  CAIRN_DEVICE double LogOf(B& block, int side) const {
    const int64_t i = block.index();
    double* values = block.template Shared<double>();
    block.ForEachThread([&](int thread) {
      double most = -INFINITY;
      for (int64_t j = thread; j < a.examples; j += kThreads) {
        if (SideOf(i, j) == side) most = LargerOrNan(most, ScoreOf(i, j).value);
      }
      values[thread] = most;
    });
    const double most = block.Reduce(values, [](double p, double q) { return LargerOrNan(p, q); });
    if (most == -INFINITY) return most;
    block.ForEachThread([&](int thread) {
      double sum = 0;
      for (int64_t j = thread; j < a.examples; j += kThreads) {
        if (SideOf(i, j) == side) sum += exp(ScoreOf(i, j).value - most);
      }
      values[thread] = sum;
    });
    return most + log(block.Reduce(values, [](double p, double q) { return p + q; }));
  }

  template <class B>
  CAIRN_DEVICE void operator()(B& block) const {
    const int64_t i = block.index();
    const double same = LogOf(block, 0), other = LogOf(block, 1);
    Sloped loss{0, 0};
    if (same != -INFINITY && other != -INFINITY) loss = CircleOf(same + other);
    const bool counts = static_cast<float>(loss.value) != 0;
    const double weight = a.weights == nullptr ? 1 : a.weights[i];
    block.ForEachThread([&](int thread) {
      if (thread == 0) losses[i] = loss.value;
      for (int64_t j = thread; j < a.examples; j += kThreads) {
        double& pair = pairs[i * a.examples + j];
        const int side = SideOf(i, j);
        const Sloped score = ScoreOf(i, j);
        const bool counted = counts && pair > 0 && side >= 0 && loss.slope != 0;
        pair = counted ? weight * (loss.slope * exp(score.value - (side == 0 ? same : other)) * score.slope) : 0;
      }
    });
  }
};

// One block: the examples whose loss is not 0 stand for all.
struct WeighExamples {
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kSharedBytes = kThreads * 4;
  int64_t examples;
  const float* weights;  // may be null
  double *losses, *scale;
  template <class B>
  CAIRN_DEVICE void operator()(B& block) const {
    int32_t* values = block.template Shared<int32_t>();
    block.ForEachThread([&](int thread) {
      int32_t count = 0;
      for (int64_t i = thread; i < examples; i += kThreads) count += static_cast<float>(losses[i]) != 0 ? 1 : 0;
      values[thread] = count;
    });
    const int32_t counted = block.Reduce(values, [](int32_t p, int32_t q) { return p + q; });
    const double each = static_cast<double>(examples) / static_cast<double>(counted > 1 ? counted : 1);
    block.ForEachThread([&](int thread) {
      if (thread == 0) *scale = each;
      for (int64_t i = thread; i < examples; i += kThreads) {
        const double loss = losses[i], weight = weights == nullptr ? 1 : weights[i];
        losses[i] = static_cast<float>(loss) != 0 ? each * (weight * loss) : 0;
      }
    });
  }
};

// One thread a number of an embedding.
struct EmbeddingGradient {
  int64_t examples;
  Divider size;
  const float* x;
  const double *pairs, *scale;
  const StepKey* key;  // may be null
  float* gradients;
  template <int V>
  CAIRN_DEVICE void Do(int64_t number) const {
    int64_t i;
    const int64_t k = size.Split(number, &i);
    double sum = 0;
    for (int64_t j = 0; j < examples; ++j) {
      const double slope = -(pairs[i * examples + j] + pairs[j * examples + i]);
      sum += slope * static_cast<double>(x[j * size.divisor() + k]);
    }
    const float gradient = static_cast<float>(*scale * sum);
    gradients[number] = key == nullptr ? gradient : gradient * key->loss_scale;
  }
};

}  // namespace

int64_t CircleScratch(const CircleArguments& a) { return 2 * (a.examples * a.examples + 1); }

Error CircleLoss(Stream stream, const CircleArguments& a, const float* outputs, const float* classes,
                 const StepKey* key, float* gradients, double* results, float* scratch) {
  const int64_t n = a.examples * a.examples, numbers = a.examples * a.size;
  double *const pairs = reinterpret_cast<double*>(scratch), *const scale = pairs + n;
  Error error = LaunchForEach(stream, n, false, PairDistance{Divider(a.examples, n), a.size, outputs, pairs});
  if (error == 0) error = Launch(stream, a.examples, PairsOfExample{a, classes, pairs, results});
  if (error == 0) error = Launch(stream, 1, WeighExamples{a.examples, a.weights, results, scale});
  if (error != 0 || gradients == nullptr) return error;
  return LaunchForEach(stream, numbers, false,
                       EmbeddingGradient{a.examples, Divider(a.size, numbers), outputs, pairs, scale, key, gradients});
}

}  // namespace cairn::cudnn::kernels
