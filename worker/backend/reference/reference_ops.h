// The formulas of the layers in float64, written to be read: plain loops over the definitions. The other backends are
// compared with them.
//
// Pure functions; any thread. Tensors are [examples, height, width, channels] or [examples, features]; with windows
// also [examples, steps, channels] or [examples, depth, height, width, channels]. Shapes are given without the batch
// axis. Functions named ...Backward ADD to the gradients that they get, so that the gradient of a tensor with several
// readers is the sum over them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/model/graph.h"
#include "common/model/resample.h"

namespace cairn::reference {

using In = absl::Span<const double>;
using Out = absl::Span<double>;

// An image [height, width, channels]; a sequence is one of height 1, a volume has a depth before them.
struct Extent {
  explicit Extent(const Shape& shape)
      : depth(shape.size() > 3 ? shape[shape.size() - 4] : 1),
        height(shape.size() > 2 ? shape[shape.size() - 3] : 1),
        width(shape.size() > 1 ? shape[shape.size() - 2] : 1) {}
  int64_t depth, height, width;
  int64_t pixels() const { return depth * height * width; }
};

// The sizes that a layer works with.
struct Geometry {
  int64_t examples = 0;
  Shape input;
  Shape output;
  Window window;
};

// What the gradients of a layer with a kernel are added to. bias: empty without one.
struct KernelGradients {
  Out x;
  Out kernel;
  Out bias;
};

// keras.layers.Conv2D, Conv1D, Conv3D. kernel: [axes..., in of a group, out]. bias may be empty. y is overwritten.
void Conv2D(const Geometry& g, In x, In kernel, In bias, Out y);
void Conv2DBackward(const Geometry& g, In x, In kernel, In dy, const KernelGradients& to);

// keras.layers.DepthwiseConv2D. kernel: [h, w, in, multiplier]; output channel c * multiplier + m is computed from
// input channel c.
void DepthwiseConv2D(const Geometry& g, In x, In kernel, In bias, Out y);
void DepthwiseConv2DBackward(const Geometry& g, In x, In kernel, In dy, const KernelGradients& to);

// keras.layers.Conv2DTranspose. kernel: [h, w, out, in].
void Conv2DTranspose(const Geometry& g, In x, In kernel, In bias, Out y);
void Conv2DTransposeBackward(const Geometry& g, In x, In kernel, In dy, const KernelGradients& to);

// keras.layers.MaxPooling2D. If several numbers of a window are the maximum, the first one, row by row, gets the
// gradient.
void MaxPooling2D(const Geometry& g, In x, Out y);
void MaxPooling2DBackward(const Geometry& g, In x, In dy, Out dx);

// keras.layers.AveragePooling2D: the mean over the part of the window that is within the image.
void AveragePooling2D(const Geometry& g, In x, Out y);
void AveragePooling2DBackward(const Geometry& g, In dy, Out dx);

void GlobalAveragePooling2D(const Geometry& g, In x, Out y);
void GlobalAveragePooling2DBackward(const Geometry& g, In dy, Out dx);

void ZeroPadding2D(const Geometry& g, In x, Out y);
void ZeroPadding2DBackward(const Geometry& g, In dy, Out dx);

// keras.layers.Dense, y = x kernel + bias, on rows of `in` numbers. kernel: [in, out].
void Dense(int64_t in, int64_t out, In x, In kernel, In bias, Out y);
void DenseBackward(int64_t in, int64_t out, In x, In kernel, In dy, const KernelGradients& to);

// What the gradients of a normalization are added to. gamma and beta: empty where the layer has none.
struct NormalizationGradients {
  Out x;
  Out gamma;
  Out beta;
};

// Ioffe & Szegedy 2015, over rows of `channels` numbers.
struct BatchStatistics {
  std::vector<double> mean;
  std::vector<double> variance;  // biased: divided by the number of rows
};
BatchStatistics Statistics(int64_t channels, In x);
// What rows are normalized by, a number for each channel. gamma and beta may be empty (1 and 0).
struct Normalizer {
  In mean;
  In variance;
  double epsilon = 0;
  In gamma;
  In beta;
};
void BatchNormalization(In x, const Normalizer& by, Out y);
// With the statistics of the batch, which depend on x.
void BatchNormalizationBackward(In x, const Normalizer& by, In dy, const NormalizationGradients& to);
// With statistics that do not depend on x.
void ConstantBatchNormalizationBackward(In x, const Normalizer& by, In dy, const NormalizationGradients& to);

// Wu & He 2018, each example by itself: the channels are divided into groups, each of which is normalized over its
// channels and all positions. gamma and beta may be empty. With one group, and each position as an example, this is
// layer normalization (Ba et al. 2016).
struct ChannelGroups {
  int64_t examples = 0;
  int64_t channels = 0;
  int64_t groups = 0;
  double epsilon = 0;
};
void GroupNormalization(const ChannelGroups& shape, In x, In gamma, In beta, Out y);
void GroupNormalizationBackward(const ChannelGroups& shape, In x, In gamma, In dy, const NormalizationGradients& to);

// keras.layers.UpSampling2D: repeats pixels, or interpolates between the centers of pixels, with the edge repeated.
void UpSampling2D(const Geometry& g, bool bilinear, In x, Out y);
void UpSampling2DBackward(const Geometry& g, bool bilinear, In dy, Out dx);

// Resizing, CenterCrop and adaptive average pooling, as the axes say. fill: the value outside the input.
void Resample(int64_t examples, int64_t channels, const std::vector<ResampledAxis>& axes, double fill, In x, Out y);
void ResampleBackward(int64_t examples, int64_t channels, const std::vector<ResampledAxis>& axes, In dy, Out dx);
// Over the windows of common/model/resample.h. If several numbers of a window are the maximum, the first one gets the
// gradient.
void AdaptiveMaxPooling(const Geometry& g, In x, Out y);
void AdaptiveMaxPoolingBackward(const Geometry& g, In x, In dy, Out dx);

// For each number of a tensor of shape `output` the index of the number of the input that it is copied from: a tensor
// of shape `input` that is broadcast (Multiply), or whose axes are permuted (keras.layers.Permute; dims count from 1).
std::vector<int64_t> BroadcastPlaces(int64_t examples, const Shape& input, const Shape& output);
std::vector<int64_t> PermutedPlaces(int64_t examples, const Shape& input, absl::Span<const int32_t> dims);

// Vaswani et al. 2017, equation 1, for each head, on q [examples, t, heads, key_dim], k [examples, s, heads, key_dim],
// v [examples, s, heads, value_dim]: the softmax over s of q k / sqrt(key_dim), times `mask` (dropout, [examples,
// heads, t, s]), times v. causal: row t sees only s <= t. weights: the softmax. y: [examples, t, heads, value_dim].
// keys_seen: [examples, t, s], 1 where t sees s, else 0; empty: all are seen. A row that sees nothing has weights of 0.
struct AttentionShape {
  int64_t examples = 0, queries = 0, keys = 0, heads = 0, key_dim = 0, value_dim = 0;
  bool causal = false;
  int64_t scores() const { return examples * heads * queries * keys; }
};
struct AttentionInputs {
  In q, k, v;
  absl::Span<const float> mask;
};
// What the gradients are added to.
struct AttentionGradients {
  Out q, k, v;
};
void Attention(const AttentionShape& a, absl::Span<const float> keys_seen, const AttentionInputs& in, Out weights,
               Out y);
void AttentionBackward(const AttentionShape& a, const AttentionInputs& in, In weights, In dy,
                       const AttentionGradients& to);

// Element-wise, or over rows of `channels` numbers (softmax).
struct RowActivation {
  v1::Activation kind = v1::LINEAR;
  double alpha = 0;  // LEAKY_RELU's slope, ELU's alpha
  int64_t channels = 1;
};
void Activate(const RowActivation& f, In x, Out y);
// x: the input, y: the output of Activate. dx is overwritten.
void ActivateBackward(const RowActivation& f, In x, In y, In dy, Out dx);

}  // namespace cairn::reference
