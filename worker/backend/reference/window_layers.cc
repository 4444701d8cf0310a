// Layers with a window over pictures, sequences and volumes: convolutions, poolings, pads, up-sampling.
#include <numeric>

#include "worker/backend/reference/reference_layer.h"

namespace cairn::reference {
namespace {

KernelGradients GradientsOf(const Pass& p) {
  return {.x = p.dx(), .kernel = p.gradient("kernel"), .bias = p.gradient("bias")};
}

absl::Status Convolve(const Pass& p) {
  Conv2D(p.geometry(), p.x(), p.variable("kernel"), p.variable("bias"), p.y());
  return absl::OkStatus();
}

void ConvolveBackward(const Pass& p) {
  Conv2DBackward(p.geometry(), p.x(), p.variable("kernel"), p.dy(), GradientsOf(p));
}

absl::Status ConvolveDepthwise(const Pass& p) {
  DepthwiseConv2D(p.geometry(), p.x(), p.variable("kernel"), p.variable("bias"), p.y());
  return absl::OkStatus();
}

void ConvolveDepthwiseBackward(const Pass& p) {
  DepthwiseConv2DBackward(p.geometry(), p.x(), p.variable("kernel"), p.dy(), GradientsOf(p));
}

absl::Status ConvolveTransposed(const Pass& p) {
  Conv2DTranspose(p.geometry(), p.x(), p.variable("kernel"), p.variable("bias"), p.y());
  return absl::OkStatus();
}

void ConvolveTransposedBackward(const Pass& p) {
  Conv2DTransposeBackward(p.geometry(), p.x(), p.variable("kernel"), p.dy(), GradientsOf(p));
}

// The two convolutions of a SeparableConv2D or SeparableConv1D. Kept: the value between them.
Geometry DepthwiseOf(const Pass& p) {
  Geometry g = p.geometry();
  const v1::Layer& layer = p.node().layer;
  g.output.back() =
      g.input.back() * (p.node().kind == LayerKind::kSeparableConv1D ? layer.separable_conv1d().depth_multiplier()
                                                                     : layer.separable_conv2d().depth_multiplier());
  return g;
}

Geometry PointwiseOf(const Pass& p) { return {p.examples(), DepthwiseOf(p).output, p.node().output, Window{}}; }

absl::Status ConvolveSeparably(const Pass& p) {
  const Geometry depthwise = DepthwiseOf(p);
  p.here().kept = {std::vector<double>(p.examples() * NumElements(depthwise.output), 0.0)};
  std::vector<double>& between = p.here().kept[0];
  DepthwiseConv2D(depthwise, p.x(), p.variable("depthwise_kernel"), {}, absl::MakeSpan(between));
  Conv2D(PointwiseOf(p), between, p.variable("pointwise_kernel"), p.variable("bias"), p.y());
  return absl::OkStatus();
}

void ConvolveSeparablyBackward(const Pass& p) {
  const std::vector<double>& between = p.here().kept[0];
  std::vector<double> dbetween(between.size(), 0.0);
  Conv2DBackward(PointwiseOf(p), between, p.variable("pointwise_kernel"), p.dy(),
                 {.x = absl::MakeSpan(dbetween), .kernel = p.gradient("pointwise_kernel"), .bias = p.gradient("bias")});
  DepthwiseConv2DBackward(DepthwiseOf(p), p.x(), p.variable("depthwise_kernel"), dbetween,
                          {.x = p.dx(), .kernel = p.gradient("depthwise_kernel"), .bias = {}});
}

absl::Status PoolMax(const Pass& p) {
  MaxPooling2D(p.geometry(), p.x(), p.y());
  return absl::OkStatus();
}

void PoolMaxBackward(const Pass& p) { MaxPooling2DBackward(p.geometry(), p.x(), p.dy(), p.dx()); }

// The window is as large as the input.
Geometry WholeOf(const Pass& p) {
  Geometry g = p.geometry();
  g.output = Shape(g.input.size(), 1);
  g.output.back() = g.input.back();
  return g;
}

absl::Status PoolAllMax(const Pass& p) {
  MaxPooling2D(WholeOf(p), p.x(), p.y());
  return absl::OkStatus();
}

void PoolAllMaxBackward(const Pass& p) { MaxPooling2DBackward(WholeOf(p), p.x(), p.dy(), p.dx()); }

absl::Status PoolAverage(const Pass& p) {
  AveragePooling2D(p.geometry(), p.x(), p.y());
  return absl::OkStatus();
}

void PoolAverageBackward(const Pass& p) { AveragePooling2DBackward(p.geometry(), p.dy(), p.dx()); }

// The weight of each number of a sequence in the mean over the steps: steps that are not masked share it (0 if all are
// masked).
std::vector<double> ShareOfSteps(const Pass& p) {
  const int64_t steps = p.shape()[0];
  std::vector<double> shares(p.examples() * steps);
  for (int64_t e = 0; e < p.examples(); ++e) {
    const absl::Span<const float> mask = p.step_mask().subspan(e * steps, steps);
    const double count = std::accumulate(mask.begin(), mask.end(), 0.0);
    for (int64_t s = 0; s < steps; ++s) shares[e * steps + s] = mask[s] != 0 ? 1 / count : 0;
  }
  return shares;
}

absl::Status PoolAll(const Pass& p) {
  if (!p.step_mask().empty()) {
    const std::vector<double> shares = ShareOfSteps(p);
    const int64_t width = p.shape()[1], size = NumElements(p.shape());
    for (size_t i = 0; i < p.x().size(); ++i) p.y()[i / size * width + i % width] += shares[i / width] * p.x()[i];
    return absl::OkStatus();
  }
  GlobalAveragePooling2D(p.geometry(), p.x(), p.y());
  return absl::OkStatus();
}

void PoolAllBackward(const Pass& p) {
  if (p.step_mask().empty()) return GlobalAveragePooling2DBackward(p.geometry(), p.dy(), p.dx());
  const std::vector<double> shares = ShareOfSteps(p);
  const int64_t width = p.shape()[1], size = NumElements(p.shape());
  for (size_t i = 0; i < p.dx().size(); ++i) p.dx()[i] += shares[i / width] * p.dy()[i / size * width + i % width];
}

absl::Status Pad(const Pass& p) {
  ZeroPadding2D(p.geometry(), p.x(), p.y());
  return absl::OkStatus();
}

void PadBackward(const Pass& p) { ZeroPadding2DBackward(p.geometry(), p.dy(), p.dx()); }

// The reverse: from the images of the input to those of the output.
Geometry CropOf(const Pass& p) { return {p.examples(), p.node().output, p.shape(), p.node().window}; }

absl::Status Crop(const Pass& p) {
  ZeroPadding2DBackward(CropOf(p), p.x(), p.y());
  return absl::OkStatus();
}

void CropBackward(const Pass& p) {
  std::vector<double> dx(p.x().size(), 0.0);
  ZeroPadding2D(CropOf(p), p.dy(), absl::MakeSpan(dx));
  for (size_t i = 0; i < dx.size(); ++i) p.dx()[i] += dx[i];
}

// False for layers other than UpSampling2D.
bool IsBilinear(const Pass& p) { return p.node().layer.up_sampling2d().interpolation() == v1::UpSampling2D::BILINEAR; }

absl::Status UpSample(const Pass& p) {
  UpSampling2D(p.geometry(), IsBilinear(p), p.x(), p.y());
  return absl::OkStatus();
}

void UpSampleBackward(const Pass& p) { UpSampling2DBackward(p.geometry(), IsBilinear(p), p.dy(), p.dx()); }

absl::Status ResampleAxes(const Pass& p) {
  Resample(p.examples(), p.shape().back(), ResampledAxesOf(p.node(), p.shape()), FillOf(p.node()), p.x(), p.y());
  return absl::OkStatus();
}

void ResampleAxesBackward(const Pass& p) {
  ResampleBackward(p.examples(), p.shape().back(), ResampledAxesOf(p.node(), p.shape()), p.dy(), p.dx());
}

absl::Status PoolAdaptiveMax(const Pass& p) {
  AdaptiveMaxPooling(p.geometry(), p.x(), p.y());
  return absl::OkStatus();
}

void PoolAdaptiveMaxBackward(const Pass& p) { AdaptiveMaxPoolingBackward(p.geometry(), p.x(), p.dy(), p.dx()); }

constexpr Layer kLayers[] = {
    {LayerKind::kResizing, ResampleAxes, ResampleAxesBackward},
    {LayerKind::kCenterCrop, ResampleAxes, ResampleAxesBackward},
    {LayerKind::kAdaptiveAveragePooling1D, ResampleAxes, ResampleAxesBackward},
    {LayerKind::kAdaptiveAveragePooling2D, ResampleAxes, ResampleAxesBackward},
    {LayerKind::kAdaptiveAveragePooling3D, ResampleAxes, ResampleAxesBackward},
    {LayerKind::kAdaptiveMaxPooling1D, PoolAdaptiveMax, PoolAdaptiveMaxBackward},
    {LayerKind::kAdaptiveMaxPooling2D, PoolAdaptiveMax, PoolAdaptiveMaxBackward},
    {LayerKind::kAdaptiveMaxPooling3D, PoolAdaptiveMax, PoolAdaptiveMaxBackward},
    {LayerKind::kConv1D, Convolve, ConvolveBackward},
    {LayerKind::kConv2D, Convolve, ConvolveBackward},
    {LayerKind::kConv3D, Convolve, ConvolveBackward},
    {LayerKind::kDepthwiseConv1D, ConvolveDepthwise, ConvolveDepthwiseBackward},
    {LayerKind::kDepthwiseConv2D, ConvolveDepthwise, ConvolveDepthwiseBackward},
    {LayerKind::kSeparableConv1D, ConvolveSeparably, ConvolveSeparablyBackward},
    {LayerKind::kSeparableConv2D, ConvolveSeparably, ConvolveSeparablyBackward},
    {LayerKind::kConv1DTranspose, ConvolveTransposed, ConvolveTransposedBackward},
    {LayerKind::kConv2DTranspose, ConvolveTransposed, ConvolveTransposedBackward},
    {LayerKind::kConv3DTranspose, ConvolveTransposed, ConvolveTransposedBackward},
    {LayerKind::kMaxPooling1D, PoolMax, PoolMaxBackward},
    {LayerKind::kMaxPooling2D, PoolMax, PoolMaxBackward},
    {LayerKind::kMaxPooling3D, PoolMax, PoolMaxBackward},
    {LayerKind::kAveragePooling1D, PoolAverage, PoolAverageBackward},
    {LayerKind::kAveragePooling2D, PoolAverage, PoolAverageBackward},
    {LayerKind::kAveragePooling3D, PoolAverage, PoolAverageBackward},
    {LayerKind::kGlobalAveragePooling1D, PoolAll, PoolAllBackward},
    {LayerKind::kGlobalAveragePooling2D, PoolAll, PoolAllBackward},
    {LayerKind::kGlobalAveragePooling3D, PoolAll, PoolAllBackward},
    {LayerKind::kGlobalMaxPooling1D, PoolAllMax, PoolAllMaxBackward},
    {LayerKind::kGlobalMaxPooling2D, PoolAllMax, PoolAllMaxBackward},
    {LayerKind::kGlobalMaxPooling3D, PoolAllMax, PoolAllMaxBackward},
    {LayerKind::kZeroPadding1D, Pad, PadBackward},
    {LayerKind::kZeroPadding2D, Pad, PadBackward},
    {LayerKind::kZeroPadding3D, Pad, PadBackward},
    {LayerKind::kCropping1D, Crop, CropBackward},
    {LayerKind::kCropping2D, Crop, CropBackward},
    {LayerKind::kCropping3D, Crop, CropBackward},
    {LayerKind::kUpSampling1D, UpSample, UpSampleBackward},
    {LayerKind::kUpSampling2D, UpSample, UpSampleBackward},
    {LayerKind::kUpSampling3D, UpSample, UpSampleBackward},
};

}  // namespace

absl::Span<const Layer> WindowLayers() { return kLayers; }

}  // namespace cairn::reference
