// Convolutions of sequences, images and volumes: plain, in groups, pointwise (a matrix product), transposed, depthwise,
// separable.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/backend/cudnn/builder.h"
#include "worker/backend/cudnn/convolve.h"
#include "worker/backend/cudnn/launches.h"
#include "worker/backend/cudnn/layer.h"

namespace cairn::cudnn {
namespace {

// Whether each output pixel reads one input pixel of the same position: then the convolution is a matrix product.
bool Pointwise(const kernels::Window& w) {
  const kernels::Depth& d = w.depth;
  if (w.groups != 1 || d.kernel != 1 || d.stride != 1 || d.pad != 0 || d.in != d.out) return false;
  for (int i = 0; i < 2; ++i) {
    if (w.kernel[i] != 1 || w.strides[i] != 1 || w.pad[i] != 0 || w.in[i] != w.out[i]) return false;
  }
  return true;
}

// The same with strides: only some of the input pixels are read.
bool Thinning(const kernels::Window& w) {
  if (w.groups != 1 || w.depth.in != 1 || w.depth.out != 1 || w.depth.kernel != 1) return false;
  for (int i = 0; i < 2; ++i) {
    if (w.kernel[i] != 1 || w.pad[i] != 0 || (w.out[i] - 1) * w.strides[i] >= w.in[i]) return false;
  }
  return w.strides[0] > 1 || w.strides[1] > 1;
}

// ---- layers ----

// What the backward pass of a plain or transposed convolution needs of the forward pass. The window of a transposed one
// is that from its output to its input.
struct Convolved {
  kernels::Window window;
  const Variable *kernel, *bias;
  Value *in, *out;
  Ref x, weights;
  bool transposed, frozen;
};

void LowerConvolutionBackward(Builder& builder, const Convolved& c) {
  const DType t = builder.type();
  const Ref dy = c.out->gradient;
  if (!c.frozen) {
    const int64_t channels = c.transposed ? c.window.in[2] : c.window.out[2];
    if (c.bias != nullptr)
      EmitColumnSums(builder, dy, c.out->numbers / channels, channels, builder.GradientOf(c.bias), t);
    EmitKernelGradient(builder, c.window, c.transposed ? dy : c.x, c.transposed ? c.x : dy, c.kernel);
  }
  if (!c.in->needs_gradient) return;
  const Builder::Sink dx = builder.GradientSink(c.in);
  if (!c.transposed) return EmitBackwardData(builder, c.window, dy, c.weights, dx.ref, dx.add);
  if (!dx.add) return EmitForward(builder, c.window, dy, c.weights, dx.ref);
  const Ref share = builder.NewLike(*c.in);
  EmitForward(builder, c.window, dy, c.weights, share);
  EmitConvert(builder, {share, t}, {dx.ref, t}, c.in->numbers, true);
}

// Copies the pixels that the window reads, by an average pooling of windows of one pixel. In the backward pass all
// readers of the copy come before the node that made it.
Value* Thinned(Builder& builder, const kernels::Window& w, Value* in) {
  Value*& copy = builder.handover().ThinnedAt(in, w.strides[0], w.strides[1]);
  if (copy != nullptr) return copy;
  kernels::Window pick = w;
  pick.out[2] = w.in[2];
  const DType t = builder.type();
  Value* const thin = copy = builder.NewValue(Outputs(pick), in->needs_gradient, t);
  const Ref x = builder.Read(*in, t), y = builder.NewLike(*thin);
  const std::string text = ToString(Convolution{Convolution::kForward, pick});
  thin->data = y;
  builder.Emit(absl::StrCat("pick ", text), {x}, {y},
               [=](const Run& r) { return kernels::AveragePooling(r.stream(), pick, r.At<>(x), r.At<>(y), t); });
  if (!in->needs_gradient) return thin;
  builder.Backward([=, &builder] {
    if (!thin->gradient) return;
    const Ref dy = thin->gradient;
    const Builder::Sink dx = builder.GradientSink(in);
    std::vector<Ref> reads = {dy};
    if (dx.add) reads.push_back(dx.ref);
    builder.Emit(absl::StrCat("pick backward ", text, dx.add ? " add" : ""), std::move(reads), {dx.ref},
                 [=](const Run& r) {
                   return kernels::AveragePoolingBackward(r.stream(), pick, r.At<>(dy), r.At<>(dx.ref), t, dx.add);
                 });
  });
  return thin;
}

// Uses Cairn's own kernels, which accept any padding.
void LowerDepthwise(Builder& builder, const kernels::Window& w, const Projection& depthwise, Value* in, Value* out) {
  const Variable *const kernel = depthwise.kernel, *const bias = depthwise.bias;
  const Activation f = depthwise.f;
  const DType t = builder.type();
  const bool frozen = builder.Frozen(builder.current());
  const Ref x = builder.Read(*in, t), y = builder.NewLike(*out);
  Ref weights = builder.ValueOf(kernel);
  if (t != DType::kFloat32) {
    weights = builder.NewNumbers(kernel->size, t);
    EmitConvert(builder, {builder.ValueOf(kernel), DType::kFloat32}, {weights, t}, kernel->size);
  }
  const std::string text = ToString(Convolution{Convolution::kForward, w});
  builder.Emit(absl::StrCat("depthwise ", text), {x, weights}, {y}, [=](const Run& r) {
    return kernels::Depthwise(r.stream(), w, r.At<>(x), r.At<>(weights), r.At<>(y), t);
  });
  const Ref before = EmitActivation(builder, f, y, builder.ValueOf(bias), w.out[2], out);
  if (!builder.training()) return;
  builder.Backward([=, &builder] {
    EmitActivationBackward(builder, f, before, w.out[2], out);
    const Ref dy = out->gradient;
    if (!frozen) {
      if (bias != nullptr) EmitColumnSums(builder, dy, out->numbers / w.out[2], w.out[2], builder.GradientOf(bias), t);
      const Ref scratch = builder.Scratch(kernels::DepthwiseScratch(w)), gradient = builder.GradientOf(kernel);
      builder.Emit(absl::StrCat("depthwise backward filter ", text), {x, dy}, {gradient, scratch}, [=](const Run& r) {
        return kernels::DepthwiseBackwardFilter(r.stream(), w, r.At<>(x), r.At<>(dy), r.At<float>(gradient),
                                                r.At<float>(scratch), t);
      });
    }
    if (!in->needs_gradient) return;
    const Builder::Sink dx = builder.GradientSink(in);
    std::vector<Ref> reads = {dy, weights};
    if (dx.add) reads.push_back(dx.ref);
    builder.Emit(absl::StrCat("depthwise backward data ", text, dx.add ? " add" : ""), std::move(reads), {dx.ref},
                 [=](const Run& r) {
                   return kernels::DepthwiseBackwardData(r.stream(), w, r.At<>(dy), r.At<>(weights), r.At<>(dx.ref), t,
                                                         dx.add);
                 });
  });
}

void LowerConvolution(Builder& builder, const Node& node) {
  Value *const in = builder.In(node), *const out = builder.Out(node);
  const Activation f = builder.groups().JoinedActivation(node);
  kernels::Window w = builder.groups().WindowOf(node);
  const Variable* bias = BiasOf(builder, node);
  if (node.kind == LayerKind::kDepthwiseConv1D || node.kind == LayerKind::kDepthwiseConv2D)
    return LowerDepthwise(builder, w, {.kernel = builder.Find(node, "kernel"), .bias = bias, .f = f}, in, out);
  if (node.kind == LayerKind::kSeparableConv1D || node.kind == LayerKind::kSeparableConv2D) {
    const Variable* depthwise = builder.Find(node, "depthwise_kernel");
    const Variable* pointwise = builder.Find(node, "pointwise_kernel");
    w.out[2] = depthwise->shape[depthwise->shape.size() - 2] * depthwise->shape.back();
    Value* between = builder.NewValue(Outputs(w), out->needs_gradient, builder.type());
    LowerDepthwise(builder, w, {.kernel = depthwise}, in, between);
    return LowerProjection(builder, {pointwise, bias, w.out[2], node.output.back(), f}, between, out);
  }
  const Variable* kernel = builder.Find(node, "kernel");
  const bool transposed = node.kind == LayerKind::kConv1DTranspose || node.kind == LayerKind::kConv2DTranspose ||
                          node.kind == LayerKind::kConv3DTranspose;
  if (!transposed && (Pointwise(w) || Thinning(w))) {
    return LowerProjection(builder, {kernel, bias, w.in[2], w.out[2], f}, Pointwise(w) ? in : Thinned(builder, w, in),
                           out);
  }
  // The window of a transposed convolution is that from its output to its input: its forward pass is the backward pass
  // of the plain one.
  if (transposed) {
    for (int i = 0; i < 3; ++i) std::swap(w.in[i], w.out[i]);
    std::swap(w.depth.in, w.depth.out);
  }
  const DType t = builder.type();
  const Ref x = builder.Read(*in, t);
  const Ref weights = EmitKernelCopy(builder, w, kernel);
  const Ref y = builder.NewLike(*out);
  const int64_t channels = node.output.back();
  const bool relu = f.kind == v1::RELU;
  Ref before;
  if (!transposed && bias != nullptr && (f.linear() || relu) &&
      EmitFused(builder, {Convolution::kForward, w, true, relu}, x, weights, builder.ValueOf(bias), y)) {
    out->data = y;
  } else {
    if (transposed) {
      EmitBackwardData(builder, w, x, weights, y, false);
    } else {
      EmitForward(builder, w, x, weights, y);
    }
    before = EmitActivation(builder, f, y, builder.ValueOf(bias), channels, out);
  }
  if (!builder.training()) return;
  const Convolved conv{w, kernel, bias, in, out, x, weights, transposed, builder.Frozen(node)};
  builder.Backward([=, &builder] {
    EmitActivationBackward(builder, f, before, channels, out);
    LowerConvolutionBackward(builder, conv);
  });
}

constexpr Layer kLayers[] = {
    {LayerKind::kConv1D, LowerConvolution},          {LayerKind::kConv2D, LowerConvolution},
    {LayerKind::kConv3D, LowerConvolution},          {LayerKind::kDepthwiseConv1D, LowerConvolution},
    {LayerKind::kDepthwiseConv2D, LowerConvolution}, {LayerKind::kSeparableConv1D, LowerConvolution},
    {LayerKind::kSeparableConv2D, LowerConvolution}, {LayerKind::kConv1DTranspose, LowerConvolution},
    {LayerKind::kConv2DTranspose, LowerConvolution}, {LayerKind::kConv3DTranspose, LowerConvolution},
};

}  // namespace

absl::Span<const Layer> ConvolutionLayers() { return kLayers; }

}  // namespace cairn::cudnn
