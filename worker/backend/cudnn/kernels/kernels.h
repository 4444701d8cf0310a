// Launchers: what a program enqueues on a stream besides cuDNN's convolutions and cuBLASLt's products.
//
// Every function here is defined twice, from the same element functions: in *.cu for the device (in the plugin) and,
// compiled by the host's compiler from the same loops, in the target cairn_cudnn_kernels_host, where `stream` is
// ignored and the work is done when the function returns. Tests run whole programs on the latter against
// worker/backend/reference.
//
// Plain types only: nvcc reads this header, and so do machines without a CUDA toolkit.
// Thread-safe. Invariants:
//   1. Returns 0 or a cudaError_t: that of the launch. Nothing waits for the device, allocates or is synchronized:
//      every function may be captured into a CUDA graph.
//   2. The bits depend on the arguments only: no atomics, trees of fixed shape, whatever the grid is.
//   3. Tensors are dense, channels last, of one `type`, which is that of all pointers to void; arithmetic inside is
//      float32. Pointers to float are float32 whatever `type` is. Results are rounded to nearest even.
//   4. With `add` the result is added to what stands in the output (added in float32, rounded once); without, every
//      number of the output is overwritten.
//   5. Outputs do not overlap inputs except where "may be" says so. Pointers are aligned to 16 bytes. Counts may be odd
//      and as small as 1; products of sizes may exceed 2^31.
//   6. `scratch` is float32 that the function may use; ...Scratch says how many numbers.
#pragma once

#include <cstdint>

#include "worker/backend/cudnn/kernels/limits.h"
#include "worker/backend/row_loss.h"

struct CUstream_st;

namespace cairn::cudnn::kernels {

using Stream = CUstream_st*;
using Error = int;

enum class DType : int32_t { kFloat32 = 0, kBFloat16 = 1, kFloat16 = 2 };

// The numbers of v1::Activation; without SOFTMAX, which is a function of a row.
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
};

// The third axis of a window over volumes [examples, depth, height, width, channels]. Only the plain convolutions look
// at it.
struct Depth {
  int64_t in = 1, out = 1, kernel = 1, stride = 1, dilation = 1, pad = 0;
};
// A window over images [examples, height, width, channels]; pads are those of the top and the left (what lies beyond
// the other edges is padding too). A sequence is an image of height 1.
struct Window {
  int64_t examples = 0;
  int64_t in[3] = {1, 1, 1};  // height, width, channels
  int64_t out[3] = {1, 1, 1};
  int64_t kernel[2] = {1, 1};
  int64_t strides[2] = {1, 1};
  int64_t dilation[2] = {1, 1};
  int64_t pad[2] = {0, 0};
  Depth depth;
  int64_t groups = 1;  // of channels, of the plain convolutions
};

// ---- copies and conversions (copy.cu) ----

// to = scale * from + offset, from one type to another; with 1 and 0 the conversion of common/tensor/dtype.h, bit for
// bit. from may be to where the types have one size and not `add`.
Error Affine(Stream stream, int64_t n, float scale, float offset, const void* from, DType from_type, void* to,
             DType to_type, bool add);
// The same of bytes, which stand for 0 .. 255.
Error AffineOfBytes(Stream stream, int64_t n, float scale, float offset, const uint8_t* from, void* to, DType to_type);
// [rows, columns] -> [columns, rows].
Error Transpose(Stream stream, int64_t rows, int64_t columns, const void* from, DType from_type, void* to,
                DType to_type);
// Of each of `rows` rows the numbers [from_begin, from_begin + width) of from_width to [to_begin, to_begin + width) of
// to_width; the other numbers of `to` keep their values.
Error CopyColumns(Stream stream, int64_t rows, int64_t width, const void* from, int64_t from_width, int64_t from_begin,
                  void* to, int64_t to_width, int64_t to_begin, DType type, bool add);
// to[i0][i1][i2][i3] (dense, of dims[]) = from[sum of i_k * strides[k]].
Error Permute(Stream stream, const int64_t dims[4], const int64_t strides[4], const void* from, void* to, DType type,
              bool add);
// Images of w.in into the middle of images of w.out, zeros around (w.pad; kernel, strides and dilation are not looked
// at).
Error Pad(Stream stream, const Window& w, const void* from, void* to, DType type);
Error Crop(Stream stream, const Window& w, const void* from, void* to, DType type, bool add);  // the other way
// w.out = factor * w.in. Backward: dx of w.in from dy of w.out.
Error UpSampling(Stream stream, const Window& w, bool bilinear, const void* x, void* y, DType type);
Error UpSamplingBackward(Stream stream, const Window& w, bool bilinear, const void* dy, void* dx, DType type, bool add);

// ---- other sizes (resample.cu): the places and weights of common/model/resample.h ----

enum class Interpolation : int32_t { kNearest = 0, kBilinear = 1, kBicubic = 2, kLanczos3 = 3, kLanczos5 = 4 };
// One axis, [outer, in, inner] -> [outer, out, inner]: its places begin .. begin + size - 1, of which those outside the
// input are padding, resized to `out`. An adaptive pooling looks at in and out only.
struct Resampling {
  int64_t outer = 1, in = 1, out = 1, inner = 1;
  Interpolation kind = Interpolation::kBilinear;
  int64_t begin = 0, size = 1;
};
// table: kResampleLine numbers for each place of the output.
Error ResampleTable(Stream stream, const Resampling& r, float* table);
Error Resample(Stream stream, const Resampling& r, const float* table, const void* x, void* y, DType type);
Error ResampleBackward(Stream stream, const Resampling& r, const float* table, const void* dy, void* dx, DType type,
                       bool add);
// To images of `shape` (height, width, channels) that came of two such axes: fill, as much as lay outside.
Error ResampleFill(Stream stream, int64_t examples, const int64_t shape[3], float fill, const float* rows,
                   const float* columns, void* y, DType type);
// The mean of each window, or its first largest number; argmax (may be null): the place of that along the axis.
Error AdaptivePooling(Stream stream, const Resampling& r, bool max, const void* x, void* y, int32_t* argmax,
                      DType type);
// argmax null: of the mean.
Error AdaptivePoolingBackward(Stream stream, const Resampling& r, const int32_t* argmax, const void* dy, void* dx,
                              DType type, bool add);

// ---- activations (activation.cu) ----

// y[r][c] = f(x[r][c] + bias[c]); bias (float32) may be null, y may be x. columns: of x; 1 row if there is no bias.
Error BiasActivation(Stream stream, Act f, float alpha, int64_t rows, int64_t columns, const void* x, const float* bias,
                     void* y, DType type);
// dx = dy * f'. From y where y tells the derivative (x is null then), else from x (GELU, GELU_TANH, SILU, SOFTPLUS; y
// is null). dx may be dy where not `add`.
Error ActivationBackward(Stream stream, Act f, float alpha, int64_t n, const void* x, const void* y, const void* dy,
                         void* dx, DType type, bool add);
// Over each row. causal_queries: 0, or t = row % causal_queries sees the columns 0 .. t only; the others get 0 and are
// not read. y may be x. Backward: dx = y * (dy - sum(y * dy)); dx may be dy where not `add`.
Error Softmax(Stream stream, int64_t rows, int64_t columns, int64_t causal_queries, const void* x, void* y, DType type);
Error SoftmaxBackward(Stream stream, int64_t rows, int64_t columns, const void* y, const void* dy, void* dx, DType type,
                      bool add);

// y = x / length of each row; a length below `shortest` counts as that. lengths: [rows], as they count. y may be x.
Error UnitRows(Stream stream, int64_t rows, int64_t columns, float shortest, const void* x, void* y, float* lengths,
               DType type);
// dx = (dy - y * sum(y * dy)) / length, of shorter rows dy / shortest; dx may be dy where not `add`.
Error UnitRowsBackward(Stream stream, int64_t rows, int64_t columns, float shortest, const void* y,
                       const float* lengths, const void* dy, void* dx, DType type, bool add);

// ---- sums over rows (reduce.cu) ----

// sums[c] = sum over rows of x[r][c].
int64_t ColumnSumsScratch(int64_t rows, int64_t columns);
Error ColumnSums(Stream stream, int64_t rows, int64_t columns, const void* x, float* sums, float* scratch, DType type);
// out[c] = sum over rows of in[r][c] in float64, in a tree of fixed shape; columns <= 64.
Error SumDoubles(Stream stream, int64_t rows, int64_t columns, const double* in, double* out);
// *bad = 1 if a number of x is infinite or no number; else it keeps its value.
Error MarkNonFinite(Stream stream, int64_t n, const void* x, DType type, int32_t* bad);

// ---- joins (joins.cu) ----

struct Inputs {
  int count = 0;
  const void* x[kJoinMax] = {};
};
// y = factor * (x0 + x1 + ...), added from the left. y may be x0: with factor 1 and float32 that is SumInto of
// common/tensor.
Error Sum(Stream stream, int64_t n, const Inputs& in, float factor, void* y, DType type);
// Of float32: a node of common/tensor/summation_tree.h whose numbers are rounded to `rounding`; the inputs, times the
// factor, are rounded before. float16: times 2^-shift, as in common/tensor/gradient_rounding.h.
Error RoundedSum(Stream stream, int64_t n, const Inputs& in, float factor, float* y, DType rounding, int shift = 0);
Error Maximum(Stream stream, int64_t n, const Inputs& in, void* y, DType type);
// dx of input `which`: dy where it is the first input that equals the maximum, else 0.
Error MaximumBackward(Stream stream, int64_t n, const Inputs& in, int which, const void* dy, void* dx, DType type,
                      bool add);
// An output of dims[] (the first: examples); strides[k][d]: of input k along axis d, 0 where it is repeated.
struct Broadcast {
  int64_t dims[4] = {1, 1, 1, 1};
  int64_t strides[kJoinMax][4] = {};
};
Error Multiply(Stream stream, const Broadcast& b, const Inputs& in, void* y, DType type);
// dx of input `which`: over the axes along which it is repeated, the sum of dy times the other inputs.
Error MultiplyBackward(Stream stream, const Broadcast& b, const Inputs& in, int which, const void* dy, void* dx,
                       DType type, bool add);

// ---- pooling (pooling.cu) ----

// argmax: the place within the window (ky * kernel width + kx) of the first largest number; null in evaluation. zeros:
// the padding is zeros among the others, else it is not looked at.
Error MaxPooling(Stream stream, const Window& w, bool zeros, const void* x, void* y, uint8_t* argmax, DType type);
// kernel height * width <= 256. Gathers: one input number after another from the windows that it is in.
Error MaxPoolingBackward(Stream stream, const Window& w, const uint8_t* argmax, const void* dy, void* dx, DType type,
                         bool add);
// For larger windows: looks for the maximum again.
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

// Batch normalization over [rows, channels]. Variance: of the population, also of numbers far from 0.
struct MovingAverages {  // what a step says of them: examples * (mean + bias), examples * variance
  float examples = 0;
  const float* bias = nullptr;                 // what was left out of x; may be null
  float *mean = nullptr, *variance = nullptr;  // both null: not asked for
};
int64_t BatchStatisticsScratch(int64_t rows, int64_t channels);
Error BatchStatistics(Stream stream, int64_t rows, int64_t channels, const void* x, float* mean, float* variance,
                      const MovingAverages& moving, float* scratch, DType type);
// (x - mean) / sqrt(variance + epsilon) * gamma + beta; gamma and beta may be null.
struct Normalized {
  const void* x = nullptr;  // null: there is none
  const float *mean = nullptr, *variance = nullptr, *gamma = nullptr, *beta = nullptr;
  float epsilon = 0;
};
// y = a [+ b or residual] [then relu]. residual may be null; y may be one of those that are read.
// passed (may be null): where the relu lets numbers through; a bit each where channels are a multiple of 8, else a byte
// each.
int64_t PassedBytes(int64_t rows, int64_t channels);
Error BatchNormalization(Stream stream, int64_t rows, int64_t channels, const Normalized& a, const Normalized& b,
                         const void* residual, bool relu, void* y, uint8_t* passed, DType type);
// With relu dy counts where `passed` says; where it is null, without b and residual, where y is more than 0, computed
// again from x.
struct NormalizedGradient {
  float *dgamma = nullptr, *dbeta = nullptr;  // [channels]
  void* dx = nullptr;                         // null: not asked for
  bool add = false;
};
// Writes dgamma and dbeta of a, and of b where it is.
Error BatchNormalizationSums(Stream stream, int64_t rows, int64_t channels, const Normalized& a, const Normalized& b,
                             bool relu, const uint8_t* passed, const void* dy, const NormalizedGradient& to_a,
                             const NormalizedGradient& to_b, float* scratch,
                             DType type);  // scratch: BatchStatisticsScratch
// dx from those sums; with `constant` mean and variance are no functions of x (moving statistics): dx = dy * gamma /
// sqrt(variance + epsilon). dresidual (may be null; not with b): the dy that counts; `add_residual`: added.
Error BatchNormalizationBackward(Stream stream, int64_t rows, int64_t channels, const Normalized& a,
                                 const Normalized& b, bool relu, const uint8_t* passed, const void* dy,
                                 const NormalizedGradient& to_a, const NormalizedGradient& to_b, bool constant,
                                 void* dresidual, bool add_residual, DType type);

// [examples, positions, channels] in groups of channels; layer normalization: positions 1, groups 1, a row an example.
// mean, factor (1 / sqrt(variance + epsilon)): [examples, groups], written forward.
Error GroupNormalization(Stream stream, int64_t examples, int64_t positions, int64_t channels, int64_t groups,
                         float epsilon, const void* x, const float* gamma, const float* beta, void* y, float* mean,
                         float* factor, DType type);
int64_t GroupNormalizationScratch(int64_t examples, int64_t positions, int64_t channels);
// dgamma, dbeta may be null. dx null: the sums only.
Error GroupNormalizationBackward(Stream stream, int64_t examples, int64_t positions, int64_t channels, int64_t groups,
                                 const void* x, const float* gamma, const float* mean, const float* factor,
                                 const void* dy, void* dx, float* dgamma, float* dbeta, float* scratch, DType type,
                                 bool add);

// ---- dropout (dropout.cu): the masks of worker/backend/dropout.h, bit for bit ----

// On the device: a captured step is replayed with other numbers in it.
struct StepKey {              // of Loss, too
  uint32_t key[2] = {0, 0};   // StreamKey(seed, kDropout)
  uint32_t step[2] = {0, 0};  // low word first
  uint32_t replica = 0;
  float loss_scale = 1;  // the gradients of Loss are multiplied by it
};
// y = x * factor of each number; backward is the same with dy and dx. y may be x where not `add`.
Error Dropout(Stream stream, int64_t n, const StepKey* key, int node, float rate, const void* x, void* y, DType type,
              bool add);
// One factor for each [example, channel].
Error SpatialDropout(Stream stream, int64_t examples, int64_t positions, int64_t channels, const StepKey* key, int node,
                     float rate, const void* x, void* y, DType type, bool add);

// ---- embedding (embedding.cu) ----

// ids: float32 whole numbers, checked before. table: float32 [ids_max, width]. y: [count, width].
Error Embedding(Stream stream, int64_t count, int64_t width, const float* ids, const float* table, void* y, DType type);
// dtable [rows, width], every number written: the rows of dy with that id, in an order that their places decide.
int64_t EmbeddingScratch(int64_t count, int64_t rows);
Error EmbeddingBackward(Stream stream, int64_t count, int64_t rows, int64_t width, const float* ids, const void* dy,
                        float* dtable, float* scratch, DType type);

// ---- convolutions (convolution.cu): depthwise, and the plain one for what cuDNN has no engine for ----

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
  int64_t outputs = 0;     // a row
  int64_t label_size = 1;  // a row; labels were checked before
  float share = 1;         // of a row in its example: 1 / positions
  // [examples], instead of `share`; null: none. A class number of a row with weight 0 may be none of the classes.
  const float* row_weights = nullptr;
  RowLossSettings other;  // kinds from 5 on; without metrics
  int32_t metrics = 0;
  int32_t metric_kind[kMetricsMax] = {};  // v1::Metric::Kind
  int32_t metric_k[kMetricsMax] = {};     // TOP_K_ACCURACY; never 0
  int64_t weights = 0;                    // class weights; 0: all 1
};
// results: [examples, 1 + metrics], the loss first. gradients: [examples, outputs] of the sum over examples, or null
// (evaluation: no class weights then), times key->loss_scale where there is a key. class_weights: [weights].
Error Loss(Stream stream, const LossArguments& a, const float* outputs, const float* labels, const float* class_weights,
           const StepKey* key, float* gradients, double* results);

}  // namespace cairn::cudnn::kernels
