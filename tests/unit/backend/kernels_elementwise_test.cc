// Goal: the GPU's kernels for copies, conversions, activations and sums compute what the
// reference and the CPU's own code compute, in every type, wide and odd shapes, with the same bits in any order of
// blocks.
#include <algorithm>

#include "common/base/random.h"
#include "common/tensor/summation_tree.h"
#include "tests/unit/backend/kernels_testing.h"
#include "worker/backend/reference/reference_ops.h"

namespace cairn::cudnn::kernels {
namespace {

class Elementwise : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Kernels, Elementwise, testing::ValuesIn(kAllTypes), TypeName);

std::vector<float> FloatsOfBits(const std::vector<uint32_t>& bits) {
  std::vector<float> out(bits.size());
  std::memcpy(out.data(), bits.data(), bits.size() * 4);
  return out;
}

// As bits, so that NaN and signed zeros count.
std::vector<uint8_t> Converted(const std::vector<uint8_t>& from, DType from_type, DType to_type) {
  const size_t n = from.size() / SizeOf(WireType(from_type));
  Memory in(from.size()), out(n * SizeOf(WireType(to_type)));
  in.Put(from.data(), from.size());
  EXPECT_EQ(Affine(nullptr, n, 1, 0, in.data(), from_type, out.data(), to_type, false), 0);
  return out.Get();
}

TEST(Conversion, IsThatOfTheWireBitForBit) {
  std::vector<uint32_t> bits;
  std::mt19937 random(7);
  for (int i = 0; i < 200000; ++i) bits.push_back(static_cast<uint32_t>(random()));
  for (uint32_t high = 0; high < 0x10000; ++high) {  // near every short number, and on the ties between two
    for (uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xfffu, 0x1000u, 0x1001u}) bits.push_back(high << 16 | low);
  }
  const std::vector<float> numbers = FloatsOfBits(bits);
  for (DType type : {DType::kBFloat16, DType::kFloat16}) {
    EXPECT_TRUE(Converted(Encoded(numbers, DType::kFloat32), DType::kFloat32, type) == Encoded(numbers, type));
    std::vector<uint8_t> all(2 * 0x10000);
    for (uint32_t i = 0; i < 0x10000; ++i) {
      all[2 * i] = static_cast<uint8_t>(i);
      all[2 * i + 1] = static_cast<uint8_t>(i >> 8);
    }
    EXPECT_TRUE(Converted(all, type, DType::kFloat32) == Encoded(Decoded(all, type), DType::kFloat32));
  }
}

TEST_P(Elementwise, Affine) {
  for (int64_t n : {1, 7, 8, 2049, 5000}) {
    const Tensor x(Random(n, 1), type());
    std::vector<double> want;
    for (double v : x.exact()) want.push_back(v * 0.25 - 0.5);
    ExpectBoth(want, type(), precision(), "affine",
               [&](void* y, bool add) { return Affine(nullptr, n, 0.25f, -0.5f, x.data(), type(), y, type(), add); });
    ExpectNear(Launched(n, DType::kFloat32,
                        [&](void* y) {
                          return Affine(nullptr, n, 0.25f, -0.5f, x.data(), type(), y, DType::kFloat32, false);
                        }),
               want, 1e-6, "to float32");
  }
}

TEST_P(Elementwise, AffineOfBytes) {
  for (int64_t n : {1, 7, 8, 2049, 5000}) {
    std::vector<uint8_t> bytes(n);
    for (int64_t i = 0; i < n; ++i) bytes[i] = static_cast<uint8_t>(i * 37 + 11);
    const Tensor floats(std::vector<float>(bytes.begin(), bytes.end()));
    Memory from(n);
    from.Put(bytes.data(), bytes.size());
    for (auto [scale, offset] : {std::pair(1.0f, 0.0f), {1 / 127.5f, -1.0f}, {0.3f, 7.0f}}) {
      const auto launched = [&](const auto& launch) { return Launched(n, type(), [&](void* y) { return launch(y); }); };
      const std::vector<float> got = launched([&, scale = scale, offset = offset](void* y) {
        return AffineOfBytes(nullptr, n, scale, offset, static_cast<const uint8_t*>(from.data()), y, type());
      });
      const std::vector<float> want = launched([&, scale = scale, offset = offset](void* y) {
        return Affine(nullptr, n, scale, offset, floats.data(), DType::kFloat32, y, type(), false);
      });
      EXPECT_EQ(got, want) << n << " numbers * " << scale << " + " << offset;
      if (scale == 1) {
        for (int64_t i = 0; i < n; ++i) ASSERT_EQ(got[i], bytes[i]);
      }
    }
  }
}

TEST_P(Elementwise, Transpose) {
  for (auto [rows, columns] : {std::pair<int64_t, int64_t>{1, 1}, {33, 65}, {100, 7}, {64, 32}, {1, 300}}) {
    const Tensor x(Random(rows * columns, 2), type());
    std::vector<double> want(rows * columns);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) want[c * rows + r] = x.exact()[r * columns + c];
    }
    ExpectNear(Launched(rows * columns, DType::kFloat32,
                        [&, rows = rows, columns = columns](void* y) {
                          return Transpose(nullptr, rows, columns, x.data(), type(), y, DType::kFloat32);
                        }),
               want, 0, "transpose");
  }
}

TEST_P(Elementwise, CopyColumns) {
  struct Case {
    int64_t rows, width, from_width, from_begin, to_width, to_begin;
  };
  for (const Case& c :
       {Case{5, 3, 7, 2, 4, 1}, Case{9, 16, 32, 8, 24, 8}, Case{1, 1, 1, 0, 1, 0}, Case{300, 8, 12, 4, 8, 0}}) {
    const Tensor x(Random(c.rows * c.from_width, 3), type());
    const std::vector<float> before = Coarse(c.rows * c.to_width, 4);
    for (bool add : {false, true}) {
      std::vector<double> want(before.begin(), before.end());
      for (int64_t r = 0; r < c.rows; ++r) {
        for (int64_t k = 0; k < c.width; ++k) {
          double& to = want[r * c.to_width + c.to_begin + k];
          to = (add ? to : 0) + x.exact()[r * c.from_width + c.from_begin + k];
        }
      }
      ExpectNear(Launched(
                     c.rows * c.to_width, type(),
                     [&](void* y) {
                       return CopyColumns(nullptr, c.rows, c.width, x.data(), c.from_width, c.from_begin, y, c.to_width,
                                          c.to_begin, type(), add);
                     },
                     before),
                 want, precision(), "columns");
    }
  }
}

TEST_P(Elementwise, Permute) {
  const int64_t examples = 3;
  struct Case {
    Shape input;
    std::vector<int32_t> dims;
  };
  for (const Case& c :
       {Case{{4, 5}, {2, 1}}, Case{{3, 4, 8}, {2, 1, 3}}, Case{{3, 4, 5}, {3, 1, 2}}, Case{{6, 16}, {1, 2}}}) {
    const int64_t n = examples * NumElements(c.input);
    const Tensor x(Random(n, 5), type());
    std::vector<double> want;
    for (int64_t place : reference::PermutedPlaces(examples, c.input, c.dims)) want.push_back(x.exact()[place]);
    int64_t of_input[3] = {0, 0, 0}, stride = 1, dims[kAxesMax] = {examples, 1, 1, 1, 1, 1},
            strides[kAxesMax] = {n / examples};
    for (size_t i = c.input.size(); i-- > 0; stride *= c.input[i]) of_input[i] = stride;
    for (size_t i = 0; i < c.dims.size(); ++i) {
      dims[kAxesMax - c.dims.size() + i] = c.input[c.dims[i] - 1];
      strides[kAxesMax - c.dims.size() + i] = of_input[c.dims[i] - 1];
    }
    ExpectBoth(want, type(), precision(), "permute",
               [&](void* y, bool add) { return Permute(nullptr, dims, strides, x.data(), y, type(), add); });
  }
}

TEST_P(Elementwise, Activations) {
  std::vector<Act> all;
  for (int f = v1::LINEAR; f <= v1::SPARSE_SIGMOID; ++f) {
    if (f != v1::SOFTMAX && f != v1::LOG_SOFTMAX) all.push_back(static_cast<Act>(f));
  }
  const int64_t rows = 37;
  for (int64_t columns : {5, 16}) {
    std::vector<float> numbers = Random(rows * columns, 6, -8, 8);
    numbers[0] = 0;
    numbers[1] = 6;
    numbers[2] = type() == DType::kFloat16 ? 10 : 60;  // whose exponential it still has
    numbers[3] = -60;
    const Tensor x(numbers, type()), dy(Random(rows * columns, 7), type()), bias(Random(columns, 8));
    for (Act f : all) {
      const auto kind = static_cast<v1::Activation>(f);
      const std::string what = v1::Activation_Name(kind);
      const float alpha = f == Act::kRelu6 ? 6.0f : 0.3f;
      std::vector<double> shifted = x.exact(), want(x.size());
      for (size_t i = 0; i < shifted.size(); ++i) shifted[i] += bias.exact()[i % columns];
      reference::Activate({kind, alpha, columns}, shifted, absl::MakeSpan(want));
      ExpectNear(Launched(rows * columns, type(),
                          [&](void* y) {
                            return BiasActivation(nullptr, f, alpha, rows, columns, x.data(), bias.floats(), y, type());
                          }),
                 want, precision(), what);
      reference::Activate({kind, alpha, columns}, x.exact(), absl::MakeSpan(want));
      const std::vector<float> y_numbers = Launched(rows * columns, type(), [&](void* y) {
        return BiasActivation(nullptr, f, alpha, 1, rows * columns, x.data(), nullptr, y, type());
      });
      ExpectNear(y_numbers, want, precision(), what + " without bias");

      // From the rounded y, which the reference gets too.
      const Tensor y(y_numbers, type());
      const bool from_x = !TellsDerivative(f);
      std::vector<double> dx(x.size());
      reference::ActivateBackward({kind, alpha, columns}, x.exact(), y.exact(), dy.exact(), absl::MakeSpan(dx));
      const double loose = from_x ? precision() : 3 * precision();
      ExpectBoth(dx, type(), loose, what + " backward", [&](void* out, bool add) {
        return ActivationBackward(nullptr, f, alpha, rows * columns, from_x ? x.data() : nullptr,
                                  from_x ? nullptr : y.data(), dy.data(), out, type(), add);
      });
    }
  }
}

// 0.7 is 0.69921875 in bfloat16: below the limit, but clipped all the same.
TEST_P(Elementwise, AClippedReluHasNoGradientWhereItsLimitIsRounded) {
  const Tensor x(std::vector<float>{-1, 0.25f, 0.7f, 0.75f, 2, 60}, type()), dy(std::vector<float>(6, 1.0f), type());
  const Tensor y(Launched(6, type(),
                          [&](void* out) {
                            return BiasActivation(nullptr, Act::kRelu6, 0.7f, 1, 6, x.data(), nullptr, out, type());
                          }),
                 type());
  const std::vector<float> dx = Launched(6, type(), [&](void* out) {
    return ActivationBackward(nullptr, Act::kRelu6, 0.7f, 6, nullptr, y.data(), dy.data(), out, type(), false);
  });
  EXPECT_EQ(dx, (std::vector<float>{0, 1, 0, 0, 0, 0}));
}

TEST_P(Elementwise, LogSoftmax) {
  for (int64_t columns : {1, 10, 33, 1000}) {
    const int64_t rows = 7, n = rows * columns;
    const Tensor x(Random(n, 9, -9, 9), type()), dy(Random(n, 10), type());
    std::vector<double> want(x.size()), dx(x.size());
    reference::Activate({v1::LOG_SOFTMAX, 0, columns}, x.exact(), absl::MakeSpan(want));
    const std::vector<float> got =
        Launched(n, type(), [&](void* y) { return LogSoftmax(nullptr, rows, columns, x.data(), y, type()); });
    ExpectNear(got, want, precision(), "log softmax");
    const Tensor y(got, type());
    reference::ActivateBackward({v1::LOG_SOFTMAX, 0, columns}, x.exact(), y.exact(), dy.exact(), absl::MakeSpan(dx));
    ExpectBoth(dx, type(), 2 * precision(), "log softmax backward", [&](void* out, bool add) {
      return LogSoftmaxBackward(nullptr, rows, columns, y.data(), dy.data(), out, type(), add);
    });
  }
}

TEST_P(Elementwise, NaNIsNotLost) {
  const std::vector<float> numbers = {NAN, 1, -1, NAN, 2, 3, 4, 5, NAN};
  const Tensor x(numbers, type()), zeros(std::vector<float>(9, 0.0f)), ones(std::vector<float>(9, 1.0f));
  const auto expect_nan = [&](const std::vector<float>& y, const std::string& what) {
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), std::isnan(numbers[i])) << what << " " << i;
  };
  for (int f = static_cast<int>(Act::kLinear); f <= static_cast<int>(Act::kSparseSigmoid); ++f) {
    if (f == v1::SOFTMAX || f == v1::LOG_SOFTMAX) continue;
    expect_nan(Launched(9, type(),
                        [&](void* y) {
                          return BiasActivation(nullptr, static_cast<Act>(f), 0.3f, 1, 9, x.data(), nullptr, y, type());
                        }),
               v1::Activation_Name(static_cast<v1::Activation>(f)));
  }
  expect_nan(Launched(9, type(),
                      [&](void* y) {
                        return BatchNormalization(nullptr, 1, 9, {x.data(), zeros.floats(), ones.floats()}, {}, nullptr,
                                                  true, y, nullptr, type());
                      }),
             "batch normalization and relu");
}

TEST_P(Elementwise, Softmax) {
  for (int64_t columns : {1, 10, 33, 1000}) {
    for (int64_t queries : {0, 4}) {
      const int64_t rows = 12;
      std::vector<float> numbers = Random(rows * columns, 9, -90, 90);
      for (float& v : numbers) v = std::round(v * 4) / 4;
      const Tensor x(numbers, type()), dy(Random(rows * columns, 10), type());
      std::vector<double> want(x.size(), 0.0), dx(x.size());
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t seen = queries > 0 ? std::min(r % queries + 1, columns) : columns;
        reference::Activate({v1::SOFTMAX, 0, seen}, absl::MakeSpan(x.exact()).subspan(r * columns, seen),
                            absl::MakeSpan(want).subspan(r * columns, seen));
      }
      const std::vector<float> got = Launched(rows * columns, type(), [&](void* y) {
        return Softmax(nullptr, rows, columns, queries, x.data(), y, type());
      });
      ExpectNear(got, want, precision(), "softmax");
      const Tensor y(got, type());
      reference::ActivateBackward({v1::SOFTMAX, 0, columns}, x.exact(), y.exact(), dy.exact(), absl::MakeSpan(dx));
      ExpectBoth(dx, type(), 3 * precision(), "softmax backward", [&](void* out, bool add) {
        return SoftmaxBackward(nullptr, rows, columns, y.data(), dy.data(), out, type(), add);
      });
    }
  }
}

TEST_P(Elementwise, ColumnSums) {
  for (auto [rows, columns] :
       {std::pair<int64_t, int64_t>{1, 1}, {3, 5}, {1000, 8}, {5000, 72}, {300, 300}, {20000, 3}, {7, 4096}}) {
    const Tensor x(Random(rows * columns, 11), type());
    std::vector<double> want(columns, 0.0);
    for (size_t i = 0; i < x.size(); ++i) want[i % columns] += x.exact()[i];
    Memory scratch(ColumnSumsScratch(rows, columns) * 4);
    ExpectNear(Launched(columns, DType::kFloat32,
                        [&, rows = rows, columns = columns](void* sums) {
                          return ColumnSums(nullptr, rows, columns, x.data(), static_cast<float*>(sums),
                                            static_cast<float*>(scratch.data()), type());
                        }),
               want, 3e-6, "sums");
  }
}

TEST(Sums, OfDoubles) {
  const int64_t rows = 1000, columns = 3;
  std::vector<double> in, want(columns, 0.0);
  for (float v : Random(rows * columns, 12)) in.push_back(v);
  for (size_t i = 0; i < in.size(); ++i) want[i % columns] += in[i];
  Memory from(in.size() * 8), to(columns * 8);
  from.Put(in.data(), in.size() * 8);
  ASSERT_EQ(
      SumDoubles(nullptr, rows, columns, static_cast<const double*>(from.data()), static_cast<double*>(to.data())), 0);
  const std::vector<uint8_t> bytes = to.Get();
  for (int64_t c = 0; c < columns; ++c) {
    double sum;
    std::memcpy(&sum, bytes.data() + 8 * c, 8);
    EXPECT_NEAR(sum, want[c], 1e-11);
  }
}

TEST(Sums, ReplicasInTheTreeOfTheCpu) {
  const int64_t n = 1037;
  for (uint32_t replicas : {1u, 2u, 3u, 5u, 8u}) {
    std::vector<std::vector<float>> gradients;
    std::vector<std::unique_ptr<Tensor>> on_device;
    std::vector<GradientSum> leaves;
    for (uint32_t r = 0; r < replicas; ++r) {
      gradients.push_back(Random(n, 20 + r));
      on_device.push_back(std::make_unique<Tensor>(gradients.back()));
    }
    for (auto& g : gradients) leaves.push_back({absl::MakeSpan(g), 1});
    const std::function<const void*(const TreeNode&)> sum = [&](const TreeNode& node) -> const void* {
      if (node.count == 1) return on_device[node.first]->data();
      Inputs in;
      in.count = 2;
      in.x[0] = sum(LeftChild(node));
      in.x[1] = sum(RightChild(node));
      EXPECT_EQ(kernels::Sum(nullptr, n, in, 1, const_cast<void*>(in.x[0]), DType::kFloat32), 0);
      return in.x[0];
    };
    const void* root = sum(RootOf(replicas));
    const std::vector<float> got = Launched(n, DType::kFloat32, [&](void* out) {
      return Affine(nullptr, n, 1, 0, root, DType::kFloat32, out, DType::kFloat32, false);
    });
    const GradientSum want = SumSubtree(RootOf(replicas), leaves);
    EXPECT_EQ(std::memcmp(got.data(), want.gradient.data(), n * 4), 0) << replicas;
  }
}

TEST_P(Elementwise, MarkNonFinite) {
  for (float odd : {1.0f, INFINITY, -INFINITY, NAN}) {
    std::vector<float> numbers = Random(1003, 30);
    for (size_t at : {size_t{0}, size_t{500}, size_t{1002}}) {
      numbers[at] = odd;
      const Tensor x(numbers, type());
      Memory flag(4);
      const int32_t zero = 0;
      flag.Put(&zero, 4);
      ASSERT_EQ(MarkNonFinite(nullptr, x.size(), x.data(), type(), static_cast<int32_t*>(flag.data())), 0);
      EXPECT_EQ(flag.Get()[0], std::isfinite(odd) ? 0 : 1);
      numbers[at] = 0;
    }
  }
}

}  // namespace
}  // namespace cairn::cudnn::kernels
