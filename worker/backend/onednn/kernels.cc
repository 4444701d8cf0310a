#include "worker/backend/onednn/kernels.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "common/base/random.h"
#include "worker/backend/dropout.h"
#include "worker/backend/onednn/vector.h"

namespace cairn::onednn {
namespace {

CAIRN_VECTOR void ReluBackward(const float* y, float* g, int64_t count) {
  for (int64_t i = 0; i < count; ++i) g[i] = y[i] > 0 ? g[i] : 0.0f;
}
CAIRN_VECTOR void LeakyReluBackward(float slope, const float* y, float* g, int64_t count) {
  for (int64_t i = 0; i < count; ++i) g[i] = y[i] > 0 ? g[i] : g[i] * slope;
}
CAIRN_VECTOR void SigmoidBackward(const float* y, float* g, int64_t count) {
  for (int64_t i = 0; i < count; ++i) g[i] = g[i] * (y[i] * (1 - y[i]));
}
CAIRN_VECTOR void TanhBackward(const float* y, float* g, int64_t count) {
  for (int64_t i = 0; i < count; ++i) g[i] = g[i] * (1 - y[i] * y[i]);
}

CAIRN_VECTOR void EluBackward(float alpha, const float* y, float* g, int64_t count) {
  for (int64_t i = 0; i < count; ++i) g[i] = y[i] > 0 ? g[i] : g[i] * (y[i] + alpha);
}
CAIRN_VECTOR void Relu6Backward(const float* y, float* g, int64_t count) {
  for (int64_t i = 0; i < count; ++i) g[i] = y[i] > 0 && y[i] < 6 ? g[i] : 0.0f;
}

CAIRN_VECTOR void BiasRows(const float* __restrict bias, float* __restrict y, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) y[r * columns + c] += bias[c];
  }
}
// A NaN stays a NaN.
CAIRN_VECTOR void Relu(float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = y[i] < 0 ? 0.0f : y[i];
}
CAIRN_VECTOR void LeakyRelu(float slope, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = y[i] < 0 ? y[i] * slope : y[i];
}
CAIRN_VECTOR void Relu6(float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float positive = y[i] < 0 ? 0.0f : y[i];
    y[i] = positive > 6 ? 6.0f : positive;
  }
}

CAIRN_VECTOR void AddLoop(const float* __restrict x, float* __restrict y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] += x[i];
}
CAIRN_VECTOR void AddRows(const float* __restrict y, int64_t rows, int64_t stride, int64_t columns,
                          float* __restrict sums) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) sums[c] += y[r * stride + c];
  }
}
// Up to 16 columns: their sums stay in registers.
CAIRN_VECTOR void ProductColumns(const float* __restrict x, const float* __restrict y, int64_t rows, int64_t stride,
                                 int64_t columns, float* __restrict sums) {
  float sum[16] = {};
  if (columns == 16) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < 16; ++c) sum[c] += x[r * stride + c] * y[r * stride + c];
    }
  } else {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) sum[c] += x[r * stride + c] * y[r * stride + c];
    }
  }
  for (int64_t c = 0; c < columns; ++c) sums[c] = sum[c];
}
CAIRN_VECTOR void SoftmaxRowBackward(const float* y, const float* dy, int64_t columns, float* dx) {
  float sum = 0;
  for (int64_t c = 0; c < columns; ++c) sum += dy[c] * y[c];
  for (int64_t c = 0; c < columns; ++c) dx[c] = y[c] * (dy[c] - sum);
}
CAIRN_VECTOR void MultiplyLoop(const float* x, const float* factors, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] * factors[i];
}
CAIRN_VECTOR void MaximumLoop(const float* __restrict x, float* __restrict y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] > y[i] ? x[i] : y[i];
}
CAIRN_VECTOR void TakeLoop(const float* __restrict x, const float* __restrict y, float* __restrict rest,
                           float* __restrict dx, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float here = rest[i];
    dx[i] = x[i] == y[i] ? here : 0.0f;
    rest[i] = x[i] == y[i] ? 0.0f : here;
  }
}
CAIRN_VECTOR void RescaleLoop(const float* x, float scale, float offset, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] * scale + offset;
}
CAIRN_VECTOR void RescaleLoop(const uint8_t* __restrict x, float scale, float offset, float* __restrict y,
                              int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = static_cast<float>(x[i]) * scale + offset;
}
CAIRN_VECTOR void ScaleLoop(const float* x, float scale, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] * scale;
}

// Cuts [0, count) into runs that are the same for every number of threads, and works on them in parallel.
template <typename Fn>
void ForRuns(int64_t count, Fn fn) {
  constexpr int64_t kRun = kParallelNumbersMin / 4;
  if (count < kParallelNumbersMin) return fn(0, count);
  const int64_t runs = (count + kRun - 1) / kRun;
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < runs; ++r) fn(r * kRun, std::min(kRun, count - r * kRun));
}

template <typename Number>
void RescaleAll(const Rescaling& r, const Number* x, float* y) {
  const float scale = r.scale, offset = r.offset;
  const int64_t examples = r.examples, pixels = r.pixels, channels = r.channels;
  if (!r.transpose || channels == 1 || pixels == 1) {
    ForRuns(examples * pixels * channels,
            [&](int64_t begin, int64_t size) { RescaleLoop(x + begin, scale, offset, y + begin, size); });
    return;
  }
#pragma omp parallel for schedule(static) if (examples * pixels * channels >= kParallelNumbersMin)
  for (int64_t e = 0; e < examples; ++e) {
    const Number* from = x + e * pixels * channels;
    float* to = y + e * pixels * channels;
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t p = 0; p < pixels; ++p)
        to[c * pixels + p] = static_cast<float>(from[p * channels + c]) * scale + offset;
    }
  }
}

// Philox4x32-10 on kLanes counters side by side, word by word, so that the compiler can use vectors.
constexpr int64_t kLanes = 32;
using Lanes = uint32_t[kLanes];

CAIRN_VECTOR void PhiloxLanes(uint32_t k0, uint32_t k1, Lanes& c0, Lanes& c1, Lanes& c2, Lanes& c3) {
  for (int round = 0; round < 10; ++round) {
    for (int64_t i = 0; i < kLanes; ++i) {
      const uint64_t p0 = uint64_t{0xD2511F53} * c0[i];
      const uint64_t p1 = uint64_t{0xCD9E8D57} * c2[i];
      c0[i] = static_cast<uint32_t>(p1 >> 32) ^ c1[i] ^ k0;
      c1[i] = static_cast<uint32_t>(p1);
      c2[i] = static_cast<uint32_t>(p0 >> 32) ^ c3[i] ^ k1;
      c3[i] = static_cast<uint32_t>(p0);
    }
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
}

}  // namespace

void ActivationBackward(const Activation& f, const float* y, float* g, int64_t count) {
  ForRuns(count, [&](int64_t begin, int64_t size) {
    switch (f.kind) {
      case v1::RELU: return ReluBackward(y + begin, g + begin, size);
      case v1::LEAKY_RELU: return LeakyReluBackward(f.alpha, y + begin, g + begin, size);
      case v1::SIGMOID: return SigmoidBackward(y + begin, g + begin, size);
      case v1::TANH: return TanhBackward(y + begin, g + begin, size);
      case v1::ELU: return EluBackward(f.alpha, y + begin, g + begin, size);
      case v1::RELU6: return Relu6Backward(y + begin, g + begin, size);
      default: return;
    }
  });
}

void BiasActivation(const Activation& f, const float* bias, float* y, int64_t rows, int64_t columns) {
  if (bias != nullptr) BiasRows(bias, y, rows, columns);
  if (f.kind == v1::RELU) Relu(y, rows * columns);
  if (f.kind == v1::LEAKY_RELU) LeakyRelu(f.alpha, y, rows * columns);
  if (f.kind == v1::RELU6) Relu6(y, rows * columns);
}

void ColumnSums(const float* y, int64_t rows, int64_t stride, int64_t columns, float* sums) {
  std::memcpy(sums, y, columns * sizeof(float));
  AddRows(y + stride, rows - 1, stride, columns, sums);
}

void MultiplyRows(const float* x, const float* line, int64_t rows, int64_t stride, int64_t columns, float* y) {
  for (int64_t r = 0; r < rows; ++r) MultiplyLoop(x + r * stride, line, y + r * stride, columns);
}

void ProductSums(const float* x, const float* y, int64_t rows, int64_t stride, int64_t columns, float* sums) {
  for (int64_t c = 0; c < columns; c += 16) {
    ProductColumns(x + c, y + c, rows, stride, std::min<int64_t>(16, columns - c), sums + c);
  }
}

void FillRows(const float* line, int64_t rows, int64_t stride, int64_t columns, float* y) {
  for (int64_t r = 0; r < rows; ++r) std::memcpy(y + r * stride, line, columns * sizeof(float));
}

void SoftmaxRowsBackward(const float* y, const float* dy, int64_t rows, int64_t columns, float* dx) {
#pragma omp parallel for schedule(static) if (rows * columns >= kParallelNumbersMin)
  for (int64_t r = 0; r < rows; ++r) SoftmaxRowBackward(y + r * columns, dy + r * columns, columns, dx + r * columns);
}

void AddTo(const float* x, float* y, int64_t count) {
  ForRuns(count, [&](int64_t begin, int64_t size) { AddLoop(x + begin, y + begin, size); });
}

void Multiply(const float* x, const float* factors, float* y, int64_t count) {
  ForRuns(count, [&](int64_t begin, int64_t size) { MultiplyLoop(x + begin, factors + begin, y + begin, size); });
}

void Scale(const float* x, float scale, float* y, int64_t count) {
  ForRuns(count, [&](int64_t begin, int64_t size) { ScaleLoop(x + begin, scale, y + begin, size); });
}

void MaximumWith(const float* x, float* y, int64_t count) {
  ForRuns(count, [&](int64_t begin, int64_t size) { MaximumLoop(x + begin, y + begin, size); });
}

void TakeWhereMaximum(const float* x, const float* y, float* rest, float* dx, int64_t count) {
  ForRuns(count, [&](int64_t begin, int64_t size) { TakeLoop(x + begin, y + begin, rest + begin, dx + begin, size); });
}

void Rescale(const Rescaling& r, const float* x, float* y) { RescaleAll(r, x, y); }
void Rescale(const Rescaling& r, const uint8_t* x, float* y) { RescaleAll(r, x, y); }

void DropoutFactors(const StepInfo& info, int node, float rate, int64_t count, float* factors) {
  const std::array<uint32_t, 2> key = StreamKey(info.seed, RandomStream::kDropout);
  const uint32_t layer = static_cast<uint32_t>(node) | info.replica << 12;
  const float keep = 1.0f / (1.0f - rate);
  const int64_t whole = count / (4 * kLanes);
#pragma omp parallel for schedule(static) if (count >= kParallelNumbersMin)
  for (int64_t run = 0; run < whole; ++run) {
    alignas(64) Lanes c[4];
    for (int64_t i = 0; i < kLanes; ++i) {
      const int64_t block = run * kLanes + i;
      c[0][i] = static_cast<uint32_t>(block);
      c[1][i] = layer | static_cast<uint32_t>(block >> 32) << 22;
      c[2][i] = static_cast<uint32_t>(info.step);
      c[3][i] = static_cast<uint32_t>(info.step >> 32);
    }
    PhiloxLanes(key[0], key[1], c[0], c[1], c[2], c[3]);
    float* out = factors + run * 4 * kLanes;
    for (int64_t i = 0; i < kLanes; ++i) {
      for (int64_t w = 0; w < 4; ++w) out[i * 4 + w] = ToUniform(c[w][i]) >= rate ? keep : 0.0f;
    }
  }
  const int64_t done = whole * 4 * kLanes;
  DropoutMask(info, node, rate).Fill(done, absl::MakeSpan(factors + done, count - done));
}

}  // namespace cairn::onednn
