// Launchers: what a program enqueues on a stream besides cuDNN's convolutions and cuBLASLt's products.
//
// Each function is compiled twice from the same source: by nvcc for the device (in the plugin), and by the host's
// compiler for the target cairn_cudnn_kernels_host, where `stream` is ignored and the work is done when the function
// returns. Tests run whole programs on the latter against worker/backend/reference.
//
// Plain types only: nvcc reads this header, and so do machines without a CUDA toolkit.
// Thread-safe. Invariants:
//   1. A launcher returns 0 or the cudaError_t of the launch. It neither waits for the device nor allocates, so that it
//      may be captured into a CUDA graph.
//   2. The bits depend only on the arguments: no atomics, and sums are trees of fixed shape for any grid.
//   3. Tensors are dense, channels last, of one `type`, which is that of all pointers to void; arithmetic is float32.
//      Pointers to float are float32 whatever `type` is. Results are rounded to nearest even.
//   4. With `add` the result is added to the output (in float32, rounded once); without it every number of the output
//      is overwritten.
//   5. Outputs do not overlap inputs, except where a comment says "may be". Pointers are aligned to 16 bytes. Counts
//      may be odd and as small as 1; products of sizes may exceed 2^31.
//   6. `scratch` is float32 memory that the function may use; ...Scratch says how many numbers.
#pragma once

#include <cstdint>

#include "worker/backend/cudnn/kernels/limits.h"
#include "worker/backend/row_loss.h"

// Of functions that both nvcc's device code and host code call.
#if defined(__CUDACC__)
#define CAIRN_ANYWHERE __host__ __device__
#else
#define CAIRN_ANYWHERE
#endif

struct CUstream_st;

namespace cairn::cudnn::kernels {

using Stream = CUstream_st*;
using Error = int;

enum class DType : int32_t { kFloat32 = 0, kBFloat16 = 1, kFloat16 = 2 };

// The numbers of v1::Activation; without SOFTMAX and LOG_SOFTMAX, which are functions of a row.
enum class Act : int32_t {
  kLinear = 1,
  kRelu = 2,
  kLeakyRelu = 3,
  kSigmoid = 4,
  kTanh = 5,
  kElu = 7,
  kGelu = 8,
  kGeluTanh = 9,
  kSilu = 10,
  kSoftplus = 11,
  kRelu6 = 12,
  kSelu = 13,
  kHardSigmoid = 14,
  kHardSilu = 15,
  kExponential = 16,
  kSoftsign = 17,
  kMish = 18,
  kLogSigmoid = 20,
  kCelu = 21,
  kHardTanh = 22,
  kTanhShrink = 23,
  kSoftShrink = 24,
  kHardShrink = 25,
  kThreshold = 26,
  kSquareplus = 27,
  kSparsePlus = 28,
  kSparseSigmoid = 29,
  kHardSigmoidKeras2 = 32,
};
// Whether the derivative is computed from the result; else it needs the argument.
CAIRN_ANYWHERE constexpr bool TellsDerivative(Act f) {
  return f <= Act::kRelu6 && f != Act::kGelu && f != Act::kGeluTanh && f != Act::kSilu && f != Act::kSoftplus;
}

// The third axis of a window over volumes [examples, depth, height, width, channels]. Only the plain convolutions use
// it.
struct Depth {
  int64_t in = 1, out = 1, kernel = 1, stride = 1, dilation = 1, pad = 0;
};
// A window over images [examples, height, width, channels]. pad: at the top and at the left; what the window reads
// beyond the other edges is padding, too. A sequence is an image of height 1.
struct Window {
  int64_t examples = 0;
  int64_t in[3] = {1, 1, 1};  // height, width, channels
  int64_t out[3] = {1, 1, 1};
  int64_t kernel[2] = {1, 1};
  int64_t strides[2] = {1, 1};
  int64_t dilation[2] = {1, 1};
  int64_t pad[2] = {0, 0};
  Depth depth;
  int64_t groups = 1;  // of channels; only for the plain convolutions
};

// ---- copies and conversions (copy.cu) ----

// to = scale * from + offset, from one type to another; with 1 and 0 the conversion of common/tensor/dtype.h, bit for
// bit. from may be to if the types have the same size and without `add`.
Error Affine(Stream stream, int64_t n, float scale, float offset, const void* from, DType from_type, void* to,
             DType to_type, bool add);
// The same for bytes, which are numbers 0 .. 255.
Error AffineOfBytes(Stream stream, int64_t n, float scale, float offset, const uint8_t* from, void* to, DType to_type);
// [rows, columns] -> [columns, rows].
Error Transpose(Stream stream, int64_t rows, int64_t columns, const void* from, DType from_type, void* to,
                DType to_type);
// Copies columns: of each row the numbers [from_begin, from_begin + width) of from_width to [to_begin, to_begin +
// width) of to_width. The other numbers of `to` keep their values.
Error CopyColumns(Stream stream, int64_t rows, int64_t width, const void* from, int64_t from_width, int64_t from_begin,
                  void* to, int64_t to_width, int64_t to_begin, DType type, bool add);
// to[i0][i1]..[i5] (dense, of dims[]) = from[sum of i_k * strides[k]].
Error Permute(Stream stream, const int64_t dims[kAxesMax], const int64_t strides[kAxesMax], const void* from, void* to,
              DType type, bool add);
// Copies images of w.in into the middle of images of w.out, with zeros around them (w.pad; kernel, strides and dilation
// are not used).
Error Pad(Stream stream, const Window& w, const void* from, void* to, DType type);
Error Crop(Stream stream, const Window& w, const void* from, void* to, DType type, bool add);  // the other way
// w.out is a multiple of w.in. Backward: dx, of w.in, from dy, of w.out.
Error UpSampling(Stream stream, const Window& w, bool bilinear, const void* x, void* y, DType type);
Error UpSamplingBackward(Stream stream, const Window& w, bool bilinear, const void* dy, void* dx, DType type, bool add);

// ---- resampling (resample.cu): the positions and weights of common/model/resample.h ----

enum class Interpolation : int32_t { kNearest = 0, kBilinear = 1, kBicubic = 2, kLanczos3 = 3, kLanczos5 = 4 };
// One axis, [outer, in, inner] -> [outer, out, inner]: the positions begin .. begin + size - 1 are resized to `out`;
// those outside the input are padding. An adaptive pooling uses only in and out.
struct Resampling {
  int64_t outer = 1, in = 1, out = 1, inner = 1;
  Interpolation kind = Interpolation::kBilinear;
  int64_t begin = 0, size = 1;
};
// table: kResampleLine numbers for each position of the output.
Error ResampleTable(Stream stream, const Resampling& r, float* table);
Error Resample(Stream stream, const Resampling& r, const float* table, const void* x, void* y, DType type);
Error ResampleBackward(Stream stream, const Resampling& r, const float* table, const void* dy, void* dx, DType type,
                       bool add);
// Adds `fill` to images of `shape` (height, width, channels) that were resampled along two axes, by the share of
// padding in each pixel.
Error ResampleFill(Stream stream, int64_t examples, const int64_t shape[3], float fill, const float* rows,
                   const float* columns, void* y, DType type);
// The mean of each window, or its maximum; argmax (may be null): the position along the axis of the first maximum.
Error AdaptivePooling(Stream stream, const Resampling& r, bool max, const void* x, void* y, int32_t* argmax,
                      DType type);
// argmax null: the gradient of the mean.
Error AdaptivePoolingBackward(Stream stream, const Resampling& r, const int32_t* argmax, const void* dy, void* dx,
                              DType type, bool add);

// ---- activations (activation.cu) ----

// y[r][c] = f(x[r][c] + bias[c]); bias (float32) may be null; y may be x. Without a bias the numbers may be one row.
// alpha: ActivationAlpha (common/model/activation_numbers.h).
Error BiasActivation(Stream stream, Act f, float alpha, int64_t rows, int64_t columns, const void* x, const float* bias,
                     void* y, DType type);
// dx = dy * f'. The derivative is computed from y (x is null) if TellsDerivative(f), else from x (y is null). dx may be
// dy without `add`.
Error ActivationBackward(Stream stream, Act f, float alpha, int64_t n, const void* x, const void* y, const void* dy,
                         void* dx, DType type, bool add);
// The softmax of each row. causal_queries: if not 0, the row t = row % causal_queries sees only the columns 0 .. t; the
// others become 0 and are not read. y may be x. Backward: dx = y * (dy - sum(y * dy)); dx may be dy without `add`.
Error Softmax(Stream stream, int64_t rows, int64_t columns, int64_t causal_queries, const void* x, void* y, DType type);
Error SoftmaxBackward(Stream stream, int64_t rows, int64_t columns, const void* y, const void* dy, void* dx, DType type,
                      bool add);

// The logarithm of the softmax of each row; y may be x. Backward: dx = dy - exp(y) * sum(dy); dx may be dy without
// `add`.
Error LogSoftmax(Stream stream, int64_t rows, int64_t columns, const void* x, void* y, DType type);
Error LogSoftmaxBackward(Stream stream, int64_t rows, int64_t columns, const void* y, const void* dy, void* dx,
                         DType type, bool add);

// Sparsemax of each row (worker/backend/sparsemax.h); y may be x. Backward: dx may be dy without `add`.
Error Sparsemax(Stream stream, int64_t rows, int64_t columns, const void* x, void* y, DType type);
Error SparsemaxBackward(Stream stream, int64_t rows, int64_t columns, const void* y, const void* dy, void* dx,
                        DType type, bool add);
// y = a * sigmoid(b) of the halves a, b of each row of x.
Error GatedRows(Stream stream, int64_t rows, int64_t half, const void* x, void* y, DType type);
Error GatedRowsBackward(Stream stream, int64_t rows, int64_t half, const void* x, const void* dy, void* dx, DType type,
                        bool add);

// y = x / the length of its row, but at least `shortest`. lengths: takes those divisors, [rows]. y may be x.
Error UnitRows(Stream stream, int64_t rows, int64_t columns, float shortest, const void* x, void* y, float* lengths,
               DType type);
// dx = (dy - y * sum(y * dy)) / length; for shorter rows dy / shortest. dx may be dy without `add`.
Error UnitRowsBackward(Stream stream, int64_t rows, int64_t columns, float shortest, const void* y,
                       const float* lengths, const void* dy, void* dx, DType type, bool add);

// ---- sums over rows (reduce.cu) ----

// sums[c] = sum over rows of x[r][c].
int64_t ColumnSumsScratch(int64_t rows, int64_t columns);
Error ColumnSums(Stream stream, int64_t rows, int64_t columns, const void* x, float* sums, float* scratch, DType type);
// out[c] = sum over rows of in[r][c] in float64, in a tree of fixed shape; columns <= 64.
Error SumDoubles(Stream stream, int64_t rows, int64_t columns, const double* in, double* out);
// Sets *bad to 1 if a number of x is infinite or NaN; else leaves it unchanged.
Error MarkNonFinite(Stream stream, int64_t n, const void* x, DType type, int32_t* bad);

// ---- joins (joins.cu) ----

struct Inputs {
  int count = 0;
  const void* x[kJoinMax] = {};
};
// y = factor * (x0 + x1 + ...), added from left to right. y may be x0: with factor 1 and float32 this is SumInto of
// common/tensor.
Error Sum(Stream stream, int64_t n, const Inputs& in, float factor, void* y, DType type);
// In float32: a node of common/tensor/summation_tree.h whose numbers are rounded to `rounding`. The inputs are
// multiplied by the factor and rounded first. float16: times 2^-shift, as in common/tensor/gradient_rounding.h.
Error RoundedSum(Stream stream, int64_t n, const Inputs& in, float factor, float* y, DType rounding, int shift = 0);
Error Maximum(Stream stream, int64_t n, const Inputs& in, void* y, DType type);
// dx of input `which`: dy if it is the first input that equals the maximum, else 0.
Error MaximumBackward(Stream stream, int64_t n, const Inputs& in, int which, const void* dy, void* dx, DType type,
                      bool add);
Error Minimum(Stream stream, int64_t n, const Inputs& in, void* y, DType type);  // as Maximum
Error MinimumBackward(Stream stream, int64_t n, const Inputs& in, int which, const void* dy, void* dx, DType type,
                      bool add);
// An output of dims[], the examples first. strides[k][d]: those of input k along axis d; 0: it is repeated.
struct Broadcast {
  int64_t dims[kAxesMax] = {1, 1, 1, 1, 1, 1};
  int64_t strides[kJoinMax][kAxesMax] = {};
};
Error Multiply(Stream stream, const Broadcast& b, const Inputs& in, void* y, DType type);
// dx of input `which`: dy times the other inputs, summed over the axes along which it is repeated.
Error MultiplyBackward(Stream stream, const Broadcast& b, const Inputs& in, int which, const void* dy, void* dx,
                       DType type, bool add);

// ---- pooling (pooling.cu) ----

// argmax: the position within the window (ky * kernel width + kx) of the first maximum; null in evaluation. zeros: the
// padding counts as zeros; else it is ignored.
Error MaxPooling(Stream stream, const Window& w, bool zeros, const void* x, void* y, uint8_t* argmax, DType type);
// kernel height * width <= 256. Gathers each number of dx from the windows that contain it.
Error MaxPoolingBackward(Stream stream, const Window& w, const uint8_t* argmax, const void* dy, void* dx, DType type,
                         bool add);
// For larger windows: searches for the maximum again.
Error MaxPoolingBackwardSearch(Stream stream, const Window& w, const void* x, const void* dy, void* dx, DType type,
                               bool add);
// Padding is not counted.
Error AveragePooling(Stream stream, const Window& w, const void* x, void* y, DType type);
Error AveragePoolingBackward(Stream stream, const Window& w, const void* dy, void* dx, DType type, bool add);
// [examples, positions, channels] -> [examples, channels].
Error GlobalAverage(Stream stream, int64_t examples, int64_t positions, int64_t channels, const void* x, void* y,
                    DType type);
Error GlobalAverageBackward(Stream stream, int64_t examples, int64_t positions, int64_t channels, const void* dy,
                            void* dx, DType type, bool add);

// ---- normalization (batch_normalization.cu, group_normalization.cu) ----

// Batch normalization over [rows, channels]. The variance is that of the population, and exact also for numbers far
// from 0.
struct MovingAverages {  // their gradients: examples * (mean + bias), examples * variance
  float examples = 0;
  const float* bias = nullptr;                 // the bias that was not added to x; may be null
  float *mean = nullptr, *variance = nullptr;  // both null: not needed
};
int64_t BatchStatisticsScratch(int64_t rows, int64_t channels);
Error BatchStatistics(Stream stream, int64_t rows, int64_t channels, const void* x, float* mean, float* variance,
                      const MovingAverages& moving, float* scratch, DType type);
// (x - mean) / sqrt(variance + epsilon) * gamma + beta; gamma and beta may be null.
struct Normalized {
  const void* x = nullptr;  // null: no normalization
  const float *mean = nullptr, *variance = nullptr, *gamma = nullptr, *beta = nullptr;
  float epsilon = 0;
};
// y = a [+ b or residual] [then relu]. residual may be null; y may be one of the inputs.
// passed (may be null): which numbers the relu passes; a bit each if channels is a multiple of 8, else a byte each.
int64_t PassedBytes(int64_t rows, int64_t channels);
Error BatchNormalization(Stream stream, int64_t rows, int64_t channels, const Normalized& a, const Normalized& b,
                         const void* residual, bool relu, void* y, uint8_t* passed, DType type);
// With relu, dy counts for the numbers in `passed`; if that is null (without b and residual) for those whose y,
// computed again from x, is greater than 0.
struct NormalizedGradient {
  float *dgamma = nullptr, *dbeta = nullptr;  // [channels]
  void* dx = nullptr;                         // null: not needed
  bool add = false;
};
// Writes dgamma and dbeta of a, and of b if there is one.
Error BatchNormalizationSums(Stream stream, int64_t rows, int64_t channels, const Normalized& a, const Normalized& b,
                             bool relu, const uint8_t* passed, const void* dy, const NormalizedGradient& to_a,
                             const NormalizedGradient& to_b, float* scratch,
                             DType type);  // scratch: BatchStatisticsScratch
// Computes dx from those sums. constant: mean and variance do not depend on x (moving statistics), so that dx = dy *
// gamma / sqrt(variance + epsilon). dresidual (may be null; not with b): takes the dy that counts; add_residual: adds
// it.
Error BatchNormalizationBackward(Stream stream, int64_t rows, int64_t channels, const Normalized& a,
                                 const Normalized& b, bool relu, const uint8_t* passed, const void* dy,
                                 const NormalizedGradient& to_a, const NormalizedGradient& to_b, bool constant,
                                 void* dresidual, bool add_residual, DType type);

// [examples, positions, channels] in groups of channels. Layer normalization: positions 1, groups 1, each row an
// example. centered: false for a root mean square normalization, whose mean is taken as 0. mean, factor (1 /
// sqrt(variance + epsilon)): [examples, groups], written by the forward pass.
Error GroupNormalization(Stream stream, int64_t examples, int64_t positions, int64_t channels, int64_t groups,
                         bool centered, float epsilon, const void* x, const float* gamma, const float* beta, void* y,
                         float* mean, float* factor, DType type);
int64_t GroupNormalizationScratch(int64_t examples, int64_t positions, int64_t channels);
// dgamma and dbeta may be null. dx null: only the sums are computed.
Error GroupNormalizationBackward(Stream stream, int64_t examples, int64_t positions, int64_t channels, int64_t groups,
                                 bool centered, const void* x, const float* gamma, const float* mean,
                                 const float* factor, const void* dy, void* dx, float* dgamma, float* dbeta,
                                 float* scratch, DType type, bool add);

// ---- dropout (dropout.cu): the masks of worker/backend/dropout.h, bit for bit ----

// In memory of the device, so that a captured step can be launched again with other numbers in it.
struct StepKey {              // Loss uses it, too
  uint32_t key[2] = {0, 0};   // StreamKey(seed, kDropout)
  uint32_t step[2] = {0, 0};  // low word first
  uint32_t replica = 0;
  float loss_scale = 1;       // the gradients of Loss are multiplied by it
  uint32_t seed[2] = {0, 0};  // of the job; low word first
};
// The key of layers within layer `outer`: WithinLayer of worker/backend/dropout.h.
Error KeyWithin(Stream stream, const StepKey* key, int outer, StepKey* within);
// What a layer draws.
struct Draw {
  int node = 0;
  float rate = 0;
  uint64_t seed = 0;  // the layer's own
};
// y = x * factor for each number; backward is the same with dy and dx. y may be x without `add`.
Error Dropout(Stream stream, int64_t n, const StepKey* key, const Draw& draw, const void* x, void* y, DType type,
              bool add);
// One factor for each [example, channel].
Error SpatialDropout(Stream stream, int64_t examples, int64_t positions, int64_t channels, const StepKey* key,
                     const Draw& draw, const void* x, void* y, DType type, bool add);

// ---- embedding (embedding.cu) ----

// ids: float32 integers, checked before. table: float32 [ids_max, width]. y: [count, width].
Error Embedding(Stream stream, int64_t count, int64_t width, const float* ids, const float* table, void* y, DType type);
// dtable [rows, width], every number written: the sum of the rows of dy with that id, in an order that depends only on
// their positions.
int64_t EmbeddingScratch(int64_t count, int64_t rows);
Error EmbeddingBackward(Stream stream, int64_t count, int64_t rows, int64_t width, const float* ids, const void* dy,
                        float* dtable, float* scratch, DType type);

// ---- convolutions (convolution.cu): depthwise, and plain ones for which cuDNN has no engine ----

// kernel: [h, w, in, multiplier] in `type`; output channel i * multiplier + m comes of input channel i.
Error Depthwise(Stream stream, const Window& w, const void* x, const void* kernel, void* y, DType type);
Error DepthwiseBackwardData(Stream stream, const Window& w, const void* dy, const void* kernel, void* dx, DType type,
                            bool add);
int64_t DepthwiseScratch(const Window& w);
Error DepthwiseBackwardFilter(Stream stream, const Window& w, const void* x, const void* dy, float* dkernel,
                              float* scratch, DType type);
// kernel: [out, depth, h, w, in of a group] in `type`. dkernel: float32 in that order.
Error Convolution(Stream stream, const Window& w, const void* x, const void* kernel, void* y, DType type);
Error ConvolutionBackwardData(Stream stream, const Window& w, const void* dy, const void* kernel, void* dx, DType type,
                              bool add);
Error ConvolutionBackwardFilter(Stream stream, const Window& w, const void* x, const void* dy, float* dkernel,
                                DType type);

// ---- losses and metrics (loss.cu): the formulas of worker/backend/loss.h in float32 ----

struct LossArguments {
  int32_t kind = 0;      // v1::Loss::Kind
  bool softmax = false;  // LossPlan
  bool fused = false;
  bool from_logits = false;
  float label_smoothing = 0;
  int64_t examples = 0;    // rows: positions of examples, each with a loss
  int64_t outputs = 0;     // numbers of a row
  int64_t label_size = 1;  // numbers of a row's label; labels were checked before
  float share = 1;         // the weight of a row in its example: 1 / positions
  // [examples], instead of `share`; null: none. The class number of a row with weight 0 need not be a class.
  const float* row_weights = nullptr;
  RowLossSettings other;  // for kinds from 5 on; without metrics
  int32_t metrics = 0;
  int32_t metric_kind[kMetricsMax] = {};  // v1::Metric::Kind
  int32_t metric_k[kMetricsMax] = {};     // TOP_K_ACCURACY; never 0
  int64_t weights = 0;                    // class weights; 0: all 1
};
// results: [examples, 1 + metrics], the loss first. gradients: [examples, outputs], those of the sum over the examples,
// times key->loss_scale if there is a key; null in evaluation, without class weights. class_weights: [weights].
Error Loss(Stream stream, const LossArguments& a, const float* outputs, const float* labels, const float* class_weights,
           const StepKey* key, float* gradients, double* results);

}  // namespace cairn::cudnn::kernels
