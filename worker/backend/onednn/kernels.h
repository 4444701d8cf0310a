// Loops over flat buffers for which oneDNN has no cheaper primitive: memory-bound, compiled for several vector widths.
//
// Thread-safe. Each number of the output depends only on the inputs at its own index, so that the bits do not depend on
// the vector width; ColumnSums adds in the order of the rows. Buffers may be blocked: zeros in the padding stay zeros,
// unless a function says otherwise.
#pragma once

#include <cstdint>

#include "cairn/v1/model.pb.h"
#include "worker/backend/backend.h"

namespace cairn::onednn {

// A loop over fewer numbers runs on one thread: waking others would cost more.
inline constexpr int64_t kParallelNumbersMin = 1 << 16;

// An activation. alpha >= 0: LEAKY_RELU's slope, ELU's alpha.
struct Activation {
  v1::Activation kind = v1::LINEAR;
  float alpha = 0;
  bool linear() const { return kind == v1::LINEAR || kind == v1::ACTIVATION_UNSPECIFIED; }
  bool elementwise() const { return kind != v1::SOFTMAX; }
  bool further() const { return kind > v1::RELU6; }  // as IsFurtherActivation; here only recurrent layers have one
  // Whether the derivative cannot be computed from f(x) and needs x.
  bool needs_input() const {
    return kind == v1::GELU || kind == v1::GELU_TANH || kind == v1::SILU || kind == v1::SOFTPLUS || further();
  }
};

// g = g * f'(x), in place, where y = f(x). f must be element-wise and not needs_input().
void ActivationBackward(const Activation& f, const float* y, float* g, int64_t count);

// y[r][c] = f(y[r][c] + bias[c]); bias may be null. CheapActivation(f) must hold.
inline bool CheapActivation(const Activation& f) {
  return f.linear() || f.kind == v1::RELU || f.kind == v1::LEAKY_RELU || f.kind == v1::RELU6;
}
void BiasActivation(const Activation& f, const float* bias, float* y, int64_t rows, int64_t columns);

// sums[c] = sum over r of y[r * stride + c], in the order of r.
void ColumnSums(const float* y, int64_t rows, int64_t stride, int64_t columns, float* sums);
// y[r * stride + c] = x[r * stride + c] * line[c]; y may be x.
void MultiplyRows(const float* x, const float* line, int64_t rows, int64_t stride, int64_t columns, float* y);
// sums[c] = sum over r of x[r * stride + c] * y[r * stride + c], in the order of r.
void ProductSums(const float* x, const float* y, int64_t rows, int64_t stride, int64_t columns, float* sums);
// y[r * stride + c] = line[c].
void FillRows(const float* line, int64_t rows, int64_t stride, int64_t columns, float* y);

// dx = y * (dy - the sum of y * dy over the row, in the order of the columns): the gradient of y = softmax(x) of each
// row. dx may be dy. oneDNN 2.6 has no vectors for it below AVX-512; these are its bits there.
void SoftmaxRowsBackward(const float* y, const float* dy, int64_t rows, int64_t columns, float* dx);

void AddTo(const float* x, float* y, int64_t count);                           // y += x
void Multiply(const float* x, const float* factors, float* y, int64_t count);  // y = x * factors; y may be x
void Scale(const float* x, float scale, float* y, int64_t count);              // y = x * scale; y may be x
void MaximumWith(const float* x, float* y, int64_t count);                     // y = max(x, y)
// Where x equals the maximum y: dx = rest, and then rest = 0. Elsewhere dx = 0.
void TakeWhereMaximum(const float* x, const float* y, float* rest, float* dx, int64_t count);

// y = x * scale + offset; with `transpose` from channels last to channels first: [pixels, channels] -> [channels,
// pixels] in each example.
struct Rescaling {
  float scale = 1, offset = 0;
  bool transpose = false;
  int64_t examples = 1, pixels = 0, channels = 1;
};
void Rescale(const Rescaling& r, const float* x, float* y);
void Rescale(const Rescaling& r, const uint8_t* x, float* y);

// Computes the factors of DropoutMask (worker/backend/dropout.h) of the numbers 0 .. count - 1.
void DropoutFactors(const StepInfo& info, int node, float rate, int64_t count, float* factors);

}  // namespace cairn::onednn
