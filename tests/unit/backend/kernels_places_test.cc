// Goal: the GPU's kernels for parts of tensors, factors by place, noise and penalties compute what the CPU's own code
// says, in every type, wide and odd shapes, with the same bits in any order of blocks; what layers draw has the CPU's
// bits.
#include <algorithm>
#include <cmath>
#include <vector>

#include "common/base/random.h"
#include "tests/unit/backend/kernels_axes.h"
#include "tests/unit/backend/kernels_testing.h"
#include "worker/backend/cudnn/kernels/recurrent.h"
#include "worker/backend/dropout.h"
#include "worker/backend/noise.h"

namespace cairn::cudnn::kernels {
namespace {

class ByPlace : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Kernels, ByPlace, testing::ValuesIn(kAllTypes), TypeName);

TEST_P(ByPlace, Parts) {
  const Dims dims = DimsOf({3, 2, 8});
  Strides from, to;
  from.begin = 15, to.begin = 1;
  for (int i = 0; i < 3; ++i) {
    from.of[2 + i] = std::vector<int64_t>{64, 32, -1}[i];
    to.of[2 + i] = std::vector<int64_t>{20, 9, 1}[i];
  }
  const Tensor x(Random(3 * 64, 5), type());
  const std::vector<float> before = Coarse(64, 6);
  for (const bool add : {false, true}) {
    std::vector<double> want(before.begin(), before.end());
    for (int64_t i = 0; i < dims.Count(); ++i) {
      double& at = want[PlaceAlong(dims, to, i)];
      at = (add ? at : 0) + x.exact()[PlaceAlong(dims, from, i)];
    }
    ExpectNear(
        Launched(
            64, type(), [&](void* y) { return CopyPart(nullptr, dims, from, x.data(), to, y, type(), add); }, before),
        want, precision(), "part");
  }
  ExpectNear(Launched(13, type(), [&](void* y) { return Fill(nullptr, 13, 0.5f, y, type()); }),
             std::vector<double>(13, 0.5), 0, "fill");
}

TEST_P(ByPlace, FactorsByPlace) {
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{4, 1, 8}, {4, 6, 1}, {1, 1, 5}}) {
    const Dims dims = DimsOf({3, std::max<int64_t>(sizes[0], 2), std::max<int64_t>(sizes[1], 2), sizes[2]});
    const int64_t n = dims.Count(), count = Count(sizes);
    const Tensor x(Random(n, 1), type()), shift(Random(count, 2)), scale(Random(count, 3)), offset(Random(count, 4));
    PlaceFactors f{dims, Along(dims, sizes), shift.floats(), scale.floats(), offset.floats()};
    std::vector<double> want(n), dx(n);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t of = PlaceAlong(dims, f.strides, i);
      want[i] = (x.exact()[i] - shift.exact()[of]) * scale.exact()[of] + offset.exact()[of];
      dx[i] = x.exact()[i] * scale.exact()[of];
    }
    ExpectNear(Launched(n, type(), [&](void* y) { return ScaleByPlace(nullptr, f, x.data(), y, type(), false); }), want,
               precision(), "factors");
    f.shift = f.offset = nullptr;
    ExpectBoth(dx, type(), precision(), "factors backward",
               [&](void* out, bool add) { return ScaleByPlace(nullptr, f, x.data(), out, type(), add); });
  }
}

// ---- noise ----

StepKey KeyOf(const StepInfo& info) {
  const auto stream = StreamKey(info.seed, RandomStream::kDropout);
  StepKey key;
  for (int i = 0; i < 2; ++i) {
    key.key[i] = stream[i];
    key.step[i] = static_cast<uint32_t>(info.step >> 32 * i);
    key.seed[i] = static_cast<uint32_t>(info.seed >> 32 * i);
  }
  key.replica = info.replica;
  return key;
}

constexpr StepInfo kInfo{.seed = 0x123456789abcdefull, .step = 0x1ffffffffull, .replica = 5};

TEST_P(ByPlace, NoiseHasTheBitsOfTheCpu) {
  const StepKey key = KeyOf(kInfo);
  Memory on_device(sizeof(key));
  on_device.Put(&key, sizeof(key));
  const Dims dims = DimsOf({3, 5, 6});
  const int64_t n = dims.Count();
  for (const cairn::NoiseKind kind : {cairn::NoiseKind::kDropout, cairn::NoiseKind::kAlphaDropout,
                                      cairn::NoiseKind::kGaussianNoise, cairn::NoiseKind::kGaussianDropout}) {
    for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{3, 5, 6}, {3, 1, 6}, {3, 5, 1}}) {
      const LayerNoise of{kind, 0.3f, 1234567890123, Shape(sizes.begin() + 1, sizes.end())};
      std::vector<float> factors(Count(sizes)), offsets(factors.size(), 0.0f);
      FillNoise(kInfo, 17, of, absl::MakeSpan(factors), absl::MakeSpan(offsets));
      const AlphaFactors alpha = AlphaFactorsOf(of.rate);
      Noise noise;
      noise.kind = static_cast<NoiseKind>(kind);
      noise.draw = {17, of.rate, of.seed};
      const bool drops = kind == cairn::NoiseKind::kDropout;
      noise.kept = drops ? 1 / (1 - of.rate) : static_cast<float>(alpha.a);
      noise.kept_offset = drops ? 0 : static_cast<float>(alpha.b);
      noise.dropped_offset = drops ? 0 : static_cast<float>(alpha.a * kAlphaDropped + alpha.b);
      noise.spread = kind == cairn::NoiseKind::kGaussianNoise ? static_cast<double>(of.rate)
                                                              : std::sqrt(static_cast<double>(of.rate) / (1 - of.rate));
      noise.dims = dims;
      noise.strides = Along(dims, sizes);
      const Tensor x(Random(n, 2), type());
      std::vector<double> want(n), dx(n);
      for (int64_t i = 0; i < n; ++i) {
        const int64_t at = PlaceAlong(dims, noise.strides, i);
        dx[i] = x.exact()[i] * factors[at];
        want[i] = dx[i] + offsets[at];
      }
      const auto* const k = static_cast<const StepKey*>(on_device.data());
      ExpectNear(Launched(n, type(), [&](void* y) { return AddNoise(nullptr, noise, k, x.data(), y, type()); }), want,
                 precision(), "noise");
      ExpectBoth(dx, type(), precision(), "noise backward",
                 [&](void* out, bool add) { return AddNoiseBackward(nullptr, noise, k, x.data(), out, type(), add); });
    }
  }
}

TEST(Noise, KeyWithinALayerIsTheCpus) {
  const StepKey key = KeyOf(kInfo), want = KeyOf(WithinLayer(kInfo, 31));
  Memory from(sizeof(key)), to(sizeof(key));
  from.Put(&key, sizeof(key));
  ASSERT_EQ(KeyWithin(nullptr, static_cast<const StepKey*>(from.data()), 31, static_cast<StepKey*>(to.data())), 0);
  const std::vector<uint8_t> got = to.Get();
  EXPECT_EQ(std::memcmp(got.data(), &want, sizeof(want)), 0);
}

// ---- penalties ----

TEST_P(ByPlace, Penalties) {
  const int64_t examples = 5, numbers = 301;
  const Tensor x(Coarse(examples * numbers, 1), type()), dy(Random(examples * numbers, 2), type());
  std::vector<double> want(examples, 0.0), dx;
  for (int64_t i = 0; i < examples * numbers; ++i) {
    const double v = x.exact()[i];
    want[i / numbers] += 0.25 * std::abs(v) + 0.5 * v * v;
    dx.push_back(dy.exact()[i] + 4 * (0.25 * (v > 0 ? 1 : v < 0 ? -1 : 0) + v));
  }
  Memory penalties(examples * sizeof(double)), total(sizeof(double));
  const double before = 3;
  total.Put(&before, sizeof(before));
  ASSERT_EQ(
      ActivityPenalty(nullptr, examples, numbers, 0.25, 0.5, x.data(), static_cast<double*>(penalties.data()), type()),
      0);
  ASSERT_EQ(
      AddDoubles(nullptr, examples, static_cast<const double*>(penalties.data()), static_cast<double*>(total.data())),
      0);
  const std::vector<uint8_t> bytes = total.Get();
  double sum = 0, expected = before;
  std::memcpy(&sum, bytes.data(), sizeof(sum));
  for (const double v : want) expected += v;
  EXPECT_NEAR(sum, expected, 1e-9 * expected);
  StepKey key;
  key.loss_scale = 4;
  Memory on_device(sizeof(key));
  on_device.Put(&key, sizeof(key));
  ExpectBoth(dx, type(), precision(), "penalties backward", [&](void* out, bool add) {
    return ActivityBackward(nullptr, examples * numbers, 0.25f, 0.5f, static_cast<const StepKey*>(on_device.data()),
                            x.data(), dy.data(), out, type(), add);
  });
}

// ---- masked rows of the loss ----

TEST(MaskedRows, StandForAllRowsOfTheBatch) {
  const Tensor mask(std::vector<float>{1, 0, 1, 1, 0, 1});  // two examples of three steps, each of two rows
  const Tensor given(std::vector<float>{2, 2, 5, 5, 2, -1, 3, 3, 3, 3, -1, 3});
  const MaskedRows m{2, 12, 6, mask.floats()};
  const auto weights = [&](const float* of) {
    return Launched(12, DType::kFloat32,
                    [&](void* y) { return MaskedRowWeights(nullptr, m, of, static_cast<float*>(y)); });
  };
  EXPECT_EQ(weights(nullptr), (std::vector<float>{0.25f, 0.25f, 0, 0, 0.25f, 0.25f, 0.25f, 0.25f, 0, 0, 0.25f, 0.25f}));
  const float each = 2.0f / 6;
  EXPECT_EQ(weights(given.floats()),
            (std::vector<float>{2 * each, 2 * each, 0, 0, 2 * each, 0, 3 * each, 3 * each, 0, 0, 0, 3 * each}));
  std::vector<double> results(12, 7.0);
  Memory of_rows(results.size() * sizeof(double));
  of_rows.Put(results.data(), results.size() * sizeof(double));
  EXPECT_EQ(Launched(
                12, DType::kFloat32,
                [&](void* y) {
                  return ClearMaskedRows(nullptr, m, 1, static_cast<float*>(y), 1,
                                         static_cast<double*>(of_rows.data()));
                },
                std::vector<float>(12, 3)),
            (std::vector<float>{3, 3, 0, 0, 3, 3, 3, 3, 0, 0, 3, 3}));
  const std::vector<uint8_t> bytes = of_rows.Get();
  std::memcpy(results.data(), bytes.data(), bytes.size());
  EXPECT_EQ(results, (std::vector<double>{7, 7, 0, 0, 7, 7, 7, 7, 0, 0, 7, 7}));
}

}  // namespace
}  // namespace cairn::cudnn::kernels
