// Goal: the GPU's kernels that join tensors (sums as nodes of the tree, maximum, product), for dropout and embeddings
// compute what the reference and the CPU's own code compute, in every type, with the same bits in any order of blocks.
#include <algorithm>

#include "common/base/random.h"
#include "common/tensor/summation_tree.h"
#include "tests/unit/backend/kernels_testing.h"
#include "worker/backend/cudnn/kernels/philox.h"
#include "worker/backend/dropout.h"
#include "worker/backend/reference/reference_ops.h"

namespace cairn::cudnn::kernels {
namespace {

class Joins : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Kernels, Joins, testing::ValuesIn(kAllTypes), TypeName);

// Bit by bit, except for NaN, whose bits differ between processors and GPUs.
void ExpectSameBits(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::isnan(actual[i]) && std::isnan(expected[i])) continue;
    EXPECT_EQ(std::memcmp(&actual[i], &expected[i], sizeof(float)), 0) << i << ": " << actual[i] << ", " << expected[i];
  }
}

TEST_P(Joins, RoundedSumIsANodeOfTheTree) {
  const auto wire = WireType(type());
  for (const int64_t n : {5, 2056}) {
    for (const auto& [factor, shift] : {std::pair{1.0f, 0}, {0x1p-6f, 0}, {1.0f, 5}, {0x1p-3f, 11}}) {
      std::vector<float> left = Random(static_cast<size_t>(n), 40), right = Random(static_cast<size_t>(n), 41);
      left[1] = 70000;  // beyond float16
      right[2] = NAN;
      const Tensor x(left, DType::kFloat32), y(right, DType::kFloat32);
      const auto launched = [&](const Inputs& in) {
        return Launched(n, DType::kFloat32, [&](void* out) {
          return RoundedSum(nullptr, n, in, factor, static_cast<float*>(out), type(), shift);
        });
      };
      const std::vector<float> leaf = launched({1, {x.data()}}), sum = launched({2, {x.data(), y.data()}});
      for (float& f : left) f *= factor;
      for (float& f : right) f *= factor;
      const std::vector<GradientSum> leaves = {{absl::MakeSpan(left), 1}, {absl::MakeSpan(right), 1}};
      const GradientLayout layout = {shift, {}};
      const GradientRounding rounding = {wire, 0, 0, 0, &layout};
      RoundGradient(rounding, {0, 1}, absl::MakeSpan(left));
      ExpectSameBits(leaf, left);
      SumSubtree({0, 2}, leaves, rounding);
      ExpectSameBits(sum, left);
    }
  }
}

TEST_P(Joins, SumAndMaximum) {
  for (int64_t n : {5, 2056}) {
    std::vector<std::unique_ptr<Tensor>> x;
    Inputs in;
    in.count = 3;
    for (int k = 0; k < 3; ++k) {
      x.push_back(std::make_unique<Tensor>(Coarse(n, 40 + k), type()));
      in.x[k] = x[k]->data();
    }
    const Tensor dy(Random(n, 44), type());
    std::vector<double> sum(n), max(n), dx(n);
    for (int64_t i = 0; i < n; ++i) {
      sum[i] = (x[0]->exact()[i] + x[1]->exact()[i] + x[2]->exact()[i]) / 3;
      max[i] = std::max({x[0]->exact()[i], x[1]->exact()[i], x[2]->exact()[i]});
    }
    ExpectNear(Launched(n, type(), [&](void* y) { return kernels::Sum(nullptr, n, in, 1.0f / 3, y, type()); }), sum,
               precision(), "average");
    ExpectNear(Launched(n, type(), [&](void* y) { return Maximum(nullptr, n, in, y, type()); }), max, 0, "maximum");
    for (int which = 0; which < 3; ++which) {
      for (int64_t i = 0; i < n; ++i) {
        int first = 0;
        while (x[first]->exact()[i] != max[i]) ++first;
        dx[i] = first == which ? dy.exact()[i] : 0;
      }
      ExpectBoth(dx, type(), precision(), "maximum backward", [&](void* out, bool add) {
        return MaximumBackward(nullptr, n, in, which, dy.data(), out, type(), add);
      });
    }
  }
}

TEST_P(Joins, Multiply) {
  const int64_t examples = 3;
  const std::vector<std::vector<Shape>> cases = {{{4, 5, 6}, {1, 1, 6}},
                                                 {{3, 4, 8}, {3, 4, 8}},
                                                 {{3, 4, 8}, {1, 1, 8}},
                                                 {{5, 7, 3}, {5, 7, 1}, {1, 7, 3}},
                                                 {{6}, {1}},
                                                 {{9, 2}, {9, 1}}};
  for (const std::vector<Shape>& shapes : cases) {
    const Shape& output = shapes[0];
    const int64_t n = examples * NumElements(output);
    Broadcast b;
    b.dims[0] = examples;
    std::copy(output.begin(), output.end(), b.dims + 4 - output.size());
    std::vector<std::unique_ptr<Tensor>> x;
    std::vector<std::vector<int64_t>> places;
    Inputs in;
    in.count = static_cast<int>(shapes.size());
    for (int k = 0; k < in.count; ++k) {
      x.push_back(std::make_unique<Tensor>(Random(examples * NumElements(shapes[k]), 50 + k), type()));
      in.x[k] = x[k]->data();
      places.push_back(reference::BroadcastPlaces(examples, shapes[k], output));
      int64_t stride = 1;
      for (size_t d = 0; d < output.size(); ++d) {
        const int64_t dim = shapes[k][shapes[k].size() - 1 - d];
        if (dim != 1) b.strides[k][3 - d] = stride;
        stride *= dim;
      }
      b.strides[k][0] = stride;
    }
    const Tensor dy(Random(n, 60), type());
    std::vector<double> want(n, 1.0);
    for (int64_t i = 0; i < n; ++i) {
      for (int k = 0; k < in.count; ++k) want[i] *= x[k]->exact()[places[k][i]];
    }
    ExpectNear(Launched(n, type(), [&](void* y) { return Multiply(nullptr, b, in, y, type()); }), want, precision(),
               "multiply");
    for (int which = 0; which < in.count; ++which) {
      std::vector<double> dx(x[which]->size(), 0.0);
      for (int64_t i = 0; i < n; ++i) {
        double product = dy.exact()[i];
        for (int k = 0; k < in.count; ++k) product *= k == which ? 1 : x[k]->exact()[places[k][i]];
        dx[places[which][i]] += product;
      }
      ExpectBoth(dx, type(), precision(), "multiply backward", [&](void* out, bool add) {
        return MultiplyBackward(nullptr, b, in, which, dy.data(), out, type(), add);
      });
    }
  }
}

// ---- dropout, embedding ----

TEST_P(Joins, DropoutHasTheMaskOfTheCpu) {
  const StepInfo info{.seed = 0x123456789abcdefull, .step = 0x1ffffffffull, .replica = 5};
  StepKey key;
  const auto stream = StreamKey(info.seed, RandomStream::kDropout);
  key = {
      {stream[0], stream[1]}, {static_cast<uint32_t>(info.step), static_cast<uint32_t>(info.step >> 32)}, info.replica};
  Memory on_device(sizeof(key));
  on_device.Put(&key, sizeof(key));
  const auto* k = static_cast<const StepKey*>(on_device.data());
  const int node = 17;
  const float rate = 0.3f;
  for (int64_t n : {3, 4096, 5001}) {
    std::vector<float> mask(n);
    DropoutMask(info, node, rate).Fill(0, absl::MakeSpan(mask));
    const Tensor ones(std::vector<float>(n, 1.0f), type());
    EXPECT_EQ(Launched(n, DType::kFloat32,
                       [&](void* y) {
                         const Tensor x(std::vector<float>(n, 1.0f));
                         return Dropout(nullptr, n, k, node, rate, x.data(), y, DType::kFloat32, false);
                       }),
              mask);
    const Tensor x(Random(n, 70), type());
    std::vector<double> want = x.exact();
    for (int64_t i = 0; i < n; ++i) want[i] *= mask[i];
    ExpectBoth(want, type(), precision(), "dropout",
               [&](void* y, bool add) { return Dropout(nullptr, n, k, node, rate, x.data(), y, type(), add); });
  }
  for (int64_t channels : {3, 16}) {
    const int64_t examples = 5, positions = 6, n = examples * positions * channels;
    std::vector<float> mask(examples * channels);
    DropoutMask(info, node, rate).Fill(0, absl::MakeSpan(mask));
    const Tensor x(Random(n, 71), type());
    std::vector<double> want = x.exact();
    for (int64_t i = 0; i < n; ++i) want[i] *= mask[i / (positions * channels) * channels + i % channels];
    ExpectBoth(want, type(), precision(), "spatial dropout", [&](void* y, bool add) {
      return SpatialDropout(nullptr, examples, positions, channels, k, node, rate, x.data(), y, type(), add);
    });
  }
}

#ifndef CAIRN_KERNELS_ON_DEVICE
TEST(DropoutFactors, FarIntoALayer) {
  const StepInfo info{.seed = 3, .step = 9, .replica = 1023};
  const auto stream = StreamKey(info.seed, RandomStream::kDropout);
  const StepKey key{{stream[0], stream[1]}, {9, 0}, info.replica};
  for (int64_t block : {int64_t{0}, int64_t{1} << 31, int64_t{1} << 32, (int64_t{1} << 41) + 12345}) {
    std::vector<float> mask(4);
    DropoutMask(info, 4095, 0.5f).Fill(block * 4, absl::MakeSpan(mask));
    const Factors factors = DropoutFactors(key, 4095, 0.5f, 2.0f, block);
    EXPECT_EQ(std::memcmp(mask.data(), factors.at, sizeof(factors)), 0) << block;
  }
}
#endif

TEST_P(Joins, Embedding) {
  for (auto [count, rows, width] :
       {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1}, {700, 50, 24}, {300, 5, 3}, {1000, 100, 40}}) {
    std::vector<float> ids = Random(count, 80, 0, static_cast<float>(rows));
    for (float& id : ids) id = std::floor(std::abs(id)) >= 1 ? std::floor(id) : 0;  // id 0 stands for padding: often
    const Tensor on_device(ids), table(Random(rows * width, 81)), dy(Random(count * width, 82), type());
    std::vector<double> want(count * width), dtable(rows * width, 0.0);
    for (int64_t i = 0; i < count * width; ++i) {
      const int64_t at = static_cast<int64_t>(ids[i / width]) * width + i % width;
      want[i] = table.exact()[at];
      dtable[at] += dy.exact()[i];
    }
    ExpectNear(Launched(count * width, type(),
                        [&, count = count, width = width](void* y) {
                          return kernels::Embedding(nullptr, count, width, on_device.floats(), table.floats(), y,
                                                    type());
                        }),
               want, precision(), "embedding");
    ExpectNear(Launched(rows * width, DType::kFloat32,
                        [&, count = count, rows = rows, width = width](void* out) {
                          return EmbeddingBackward(nullptr, count, rows, width, on_device.floats(), dy.data(),
                                                   static_cast<float*>(out), nullptr, type());
                        }),
               dtable, 3e-6, "embedding backward");
  }
}

}  // namespace
}  // namespace cairn::cudnn::kernels
