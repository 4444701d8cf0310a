// Goal: the GPU's kernels for normalizations compute what the reference computes, in every type, for wide and odd
// shapes, with the same bits in any order of blocks.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/unit/backend/kernels_testing.h"
#include "worker/backend/reference/reference_ops.h"

namespace cairn::cudnn::kernels {
namespace {

class Normalizations : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Kernels, Normalizations, testing::ValuesIn(kAllTypes), TypeName);

// One of the two tensors that a launch normalizes, with the reference's results.
struct OfBatch {
  int64_t channels;
  Tensor x, gamma, beta, mean, variance;
  std::vector<double> y, dx, dgamma, dbeta;
  static constexpr float kEpsilon = 1e-3f;

  OfBatch(int64_t ch, int seed, const std::vector<float>& statistics, const std::vector<float>& numbers, DType type)
      : channels(ch),
        x(numbers, type),
        gamma(Random(ch, seed + 3, 0.5, 2)),
        beta(Random(ch, seed + 4)),
        mean({statistics.begin(), statistics.begin() + ch}),
        variance({statistics.begin() + ch, statistics.end()}),
        y(numbers.size()) {
    reference::BatchNormalization(x.exact(), OfReference(), absl::MakeSpan(y));
  }
  reference::Normalizer OfReference() const {
    return {.mean = mean.exact(),
            .variance = variance.exact(),
            .epsilon = kEpsilon,
            .gamma = gamma.exact(),
            .beta = beta.exact()};
  }
  Normalized normalized() const {
    return {x.data(), mean.floats(), variance.floats(), gamma.floats(), beta.floats(), kEpsilon};
  }
  // With `constant`, mean and variance are not functions of x.
  void Backward(const std::vector<double>& d, bool constant) {
    dx.assign(y.size(), 0.0);
    dgamma.assign(channels, 0.0);
    dbeta.assign(channels, 0.0);
    reference::BatchNormalizationBackward(
        x.exact(), OfReference(), d,
        {.x = absl::MakeSpan(dx), .gamma = absl::MakeSpan(dgamma), .beta = absl::MakeSpan(dbeta)});
    if (!constant) return;
    for (size_t i = 0; i < d.size(); ++i) {
      const size_t c = i % channels;
      dx[i] = d[i] * gamma.exact()[c] / std::sqrt(variance.exact()[c] + kEpsilon);
    }
  }
};

// Alone, with a residual, and two at once; each with and without relu.
TEST_P(Normalizations, BatchNormalization) {
  for (auto [rows, channels] :
       {std::pair<int64_t, int64_t>{1, 3}, {2, 1}, {70, 5}, {5000, 24}, {333, 520}, {9000, 7}}) {
    const int64_t r = rows, ch = channels, n = rows * channels;
    SCOPED_TRACE(absl::StrCat(rows, " x ", channels));
    Memory scratch(BatchStatisticsScratch(r, ch) * 4);
    auto* const floats = static_cast<float*>(scratch.data());
    const Tensor bias(Random(ch, 30)), dy(Random(n, 21), type()), residual(Coarse(n, 22), type());
    const auto make = [&](int seed) {
      // Far from 0, as after a convolution with a large bias: a plain sum of squares would lose these digits.
      const std::vector<float> numbers = Random(n, seed, 2, 4);
      const Tensor x(numbers, type());
      const reference::BatchStatistics exact = reference::Statistics(ch, x.exact());
      const std::vector<float> got = Launched(4 * ch, DType::kFloat32, [&](void* out) {
        float* mean = static_cast<float*>(out);
        return BatchStatistics(nullptr, r, ch, x.data(), mean, mean + ch,
                               {3, bias.floats(), mean + 2 * ch, mean + 3 * ch}, floats, type());
      });
      const auto part = [&](int64_t i) { return std::vector<float>(got.begin() + i * ch, got.begin() + (i + 1) * ch); };
      ExpectNear(part(0), exact.mean, 2e-6, "mean");
      ExpectNear(part(1), exact.variance, 5e-6, "variance");
      std::vector<double> moving_mean = Sum(exact.mean, bias.exact()), moving_variance = exact.variance;
      for (auto* moving : {&moving_mean, &moving_variance}) {
        for (double& v : *moving) v *= 3;
      }
      ExpectNear(part(2), moving_mean, 2e-6, "moving mean");
      ExpectNear(part(3), moving_variance, 5e-6, "moving variance");
      return OfBatch(ch, seed, {got.begin(), got.begin() + 2 * ch}, numbers, type());
    };
    OfBatch a = make(20), b = make(40);

    enum Join { kAlone, kResidual, kTwo };
    for (const Join join : {kAlone, kResidual, kTwo}) {
      for (const bool relu : {false, true}) {
        SCOPED_TRACE(absl::StrCat("join ", join, relu ? " relu" : ""));
        const Normalized of_a = a.normalized(), of_b = join == kTwo ? b.normalized() : Normalized();
        const void* const added = join == kResidual ? residual.data() : nullptr;
        std::vector<double> y = join == kAlone ? a.y : Sum(a.y, join == kTwo ? b.y : residual.exact());
        if (relu) {
          for (double& v : y) v = std::max(v, 0.0);
        }
        Memory bits(PassedBytes(r, ch));
        auto* const passed = relu && join != kAlone ? static_cast<uint8_t*>(bits.data()) : nullptr;
        const std::vector<float> got = Launched(n, type(), [&](void* out) {
          return kernels::BatchNormalization(nullptr, r, ch, of_a, of_b, added, relu, out, passed, type());
        });
        ExpectNear(got, y, 2 * precision(), "normalized");

        std::vector<double> d = dy.exact();
        for (int64_t i = 0; i < n; ++i) d[i] = !relu || got[i] > 0 ? d[i] : 0;
        const std::vector<float> sums = Launched((join == kTwo ? 4 : 2) * ch, DType::kFloat32, [&](void* out) {
          float* to = static_cast<float*>(out);
          return BatchNormalizationSums(nullptr, r, ch, of_a, of_b, relu, passed, dy.data(), {to, to + ch},
                                        {to + 2 * ch, to + 3 * ch}, floats, type());
        });
        const auto part = [&](int64_t i) {
          return std::vector<float>(sums.begin() + i * ch, sums.begin() + (i + 1) * ch);
        };
        for (const bool constant : {false, true}) {
          a.Backward(d, constant);
          b.Backward(d, constant);
          ExpectNear(part(0), a.dgamma, 1e-5, "dgamma");
          ExpectNear(part(1), a.dbeta, 1e-5, "dbeta");
          if (join == kTwo) {
            ExpectNear(part(2), b.dgamma, 1e-5, "dgamma of the other");
            EXPECT_EQ(part(3), part(1));
          }
          const Tensor all(sums);
          auto* const sum = const_cast<float*>(all.floats());
          Memory other(n * SizeOf(WireType(type())));
          const double bound = rows == 1 ? 0.02 : 1e-5 + 2 * precision();
          ExpectBoth(a.dx, type(), bound, "dx", [&](void* out, bool add) {
            const NormalizedGradient to_a{sum, sum + ch, out, add},
                to_b{sum + 2 * ch, sum + 3 * ch, other.data(), false};
            return BatchNormalizationBackward(nullptr, r, ch, of_a, of_b, relu, passed, dy.data(), to_a, to_b, constant,
                                              join == kResidual ? other.data() : nullptr, false, type());
          });
          if (join == kResidual) ExpectNear(Decoded(other.Get(), type()), d, 0, "dresidual");
          if (join == kTwo) ExpectNear(Decoded(other.Get(), type()), b.dx, bound, "dx of the other");
        }
      }
    }
  }
}

TEST(BatchStatistics, OfNumbersFarFromZero) {
  const int64_t rows = 4000, channels = 9;
  std::vector<float> numbers = Random(rows * channels, 25, -1, 1);
  for (float& v : numbers) v += 3000;
  const Tensor x(numbers);
  const reference::BatchStatistics exact = reference::Statistics(channels, x.exact());
  Memory scratch(BatchStatisticsScratch(rows, channels) * 4);
  const std::vector<float> got = Launched(2 * channels, DType::kFloat32, [&](void* out) {
    float* mean = static_cast<float*>(out);
    return BatchStatistics(nullptr, rows, channels, x.data(), mean, mean + channels, {},
                           static_cast<float*>(scratch.data()), DType::kFloat32);
  });
  ExpectNear({got.begin(), got.begin() + channels}, exact.mean, 1e-6, "mean");
  ExpectNear({got.begin() + channels, got.end()}, exact.variance, 1e-3,
             "variance");  // E[x^2] - E[x]^2 has no digit left
}

TEST_P(Normalizations, GroupNormalization) {
  struct Case {
    int64_t examples, positions, channels, groups;
  };
  for (const Case& c : {Case{3, 1, 1, 1}, Case{40, 1, 24, 1}, Case{300, 1, 7, 1}, Case{2, 30, 12, 3},
                        Case{3, 50, 64, 8}, Case{2, 10, 16, 16}, Case{5, 1, 3000, 1}}) {
    const int64_t n = c.examples * c.positions * c.channels, groups = c.examples * c.groups;
    const Tensor x(Random(n, 26, -1, 3), type()), dy(Random(n, 27), type()), gamma(Random(c.channels, 28, 0.5, 2)),
        beta(Random(c.channels, 29));
    const double epsilon = 1e-3;
    for (bool with : {true, false}) {
      const std::vector<double> of_gamma = with ? gamma.exact() : std::vector<double>(),
                                of_beta = with ? beta.exact() : std::vector<double>();
      const float* g = with ? gamma.floats() : nullptr;
      std::vector<double> y(n), dx(n, 0.0), dgamma(c.channels, 0.0), dbeta(c.channels, 0.0);
      const reference::ChannelGroups shape{
          .examples = c.examples, .channels = c.channels, .groups = c.groups, .epsilon = epsilon};
      reference::GroupNormalization(shape, x.exact(), of_gamma, of_beta, absl::MakeSpan(y));
      reference::GroupNormalizationBackward(
          shape, x.exact(), of_gamma, dy.exact(),
          {.x = absl::MakeSpan(dx), .gamma = absl::MakeSpan(dgamma), .beta = absl::MakeSpan(dbeta)});
      Memory mean(groups * 4), factor(groups * 4);
      auto* means = static_cast<float*>(mean.data());
      auto* factors = static_cast<float*>(factor.data());
      ExpectNear(Launched(n, type(),
                          [&](void* out) {
                            return kernels::GroupNormalization(nullptr, c.examples, c.positions, c.channels, c.groups,
                                                               true, 1e-3f, x.data(), g, with ? beta.floats() : nullptr,
                                                               out, means, factors, type());
                          }),
                 y, 2 * precision(), "normalized");
      Memory scratch(GroupNormalizationScratch(c.examples, c.positions, c.channels) * 4);
      const auto backward = [&](void* to, float* gamma_to, float* beta_to, bool add) {
        return GroupNormalizationBackward(nullptr, c.examples, c.positions, c.channels, c.groups, true, x.data(), g,
                                          means, factors, dy.data(), to, gamma_to, beta_to,
                                          static_cast<float*>(scratch.data()), type(), add);
      };
      ExpectBoth(dx, type(), 1e-5 + 2 * precision(), "dx",
                 [&](void* to, bool add) { return backward(to, nullptr, nullptr, add); });
      const std::vector<float> sums = Launched(2 * c.channels, DType::kFloat32, [&](void* to) {
        return backward(nullptr, static_cast<float*>(to), static_cast<float*>(to) + c.channels, false);
      });
      ExpectNear({sums.begin(), sums.begin() + c.channels}, dgamma, 1e-5, "dgamma");
      ExpectNear({sums.begin() + c.channels, sums.end()}, dbeta, 1e-5, "dbeta");
    }
  }
}

}  // namespace
}  // namespace cairn::cudnn::kernels
