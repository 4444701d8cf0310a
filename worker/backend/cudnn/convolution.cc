// Convolutions of sequences, images and volumes: plain, in groups, pointwise (a matrix product), transposed, depthwise,
// separable.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/backend/cudnn/builder.h"
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

// Whether the same padding on both sides gives this output.
bool Even(const kernels::Window& w) {
  const kernels::Depth& d = w.depth;
  if ((d.in + 2 * d.pad - d.dilation * (d.kernel - 1) - 1) / d.stride + 1 != d.out) return false;
  for (int i = 0; i < 2; ++i) {
    const int64_t reach = w.dilation[i] * (w.kernel[i] - 1) + 1;
    if ((w.in[i] + 2 * w.pad[i] - reach) / w.strides[i] + 1 != w.out[i]) return false;
  }
  return true;
}

// The image with its padding, as large as the window reads or the image extends; and the window without padding on it.
kernels::Window Padded(const kernels::Window& w) {
  kernels::Window padded = w;
  for (int i = 0; i < 2; ++i) {
    padded.in[i] = std::max((w.out[i] - 1) * w.strides[i] + w.dilation[i] * (w.kernel[i] - 1) + 1, w.pad[i] + w.in[i]);
    padded.pad[i] = 0;
  }
  const kernels::Depth& d = w.depth;
  padded.depth.in = std::max((d.out - 1) * d.stride + d.dilation * (d.kernel - 1) + 1, d.pad + d.in);
  padded.depth.pad = 0;
  return padded;
}

// From the image to the padded one, for EmitPad and EmitCrop.
kernels::Window Around(const kernels::Window& w, const kernels::Window& padded) {
  kernels::Window around = w;
  for (int i = 0; i < 3; ++i) around.out[i] = padded.in[i];
  around.depth.out = padded.depth.in;
  return around;
}

int64_t Inputs(const kernels::Window& w) { return w.examples * w.depth.in * w.in[0] * w.in[1] * w.in[2]; }
int64_t Outputs(const kernels::Window& w) { return w.examples * w.depth.out * w.out[0] * w.out[1] * w.out[2]; }
int64_t KernelRows(const kernels::Window& w) {
  return w.depth.kernel * w.kernel[0] * w.kernel[1] * (w.in[2] / w.groups);
}

// ---- launches ----

void EmitConvolution(Builder& builder, const Convolution& c, const Ref& first, const Ref& second, const Ref& to,
                     const Ref& bias = {}) {
  absl::StatusOr<int64_t> bytes = builder.machine().Prepare(c);
  if (!bytes.ok()) return builder.Fail(bytes.status());
  const Ref workspace = *bytes > 0 ? builder.New(*bytes) : Ref{};
  const char* what = c.kind == Convolution::kForward        ? "convolution "
                     : c.kind == Convolution::kBackwardData ? "convolution backward data "
                                                            : "convolution backward filter ";
  const kernels::Window& w = c.window;
  builder.EmitChecked(
      absl::StrCat(what, ToString(c)), {first, second, bias}, {to, workspace},
      [=](const Run& r) {
        return r.machine.Convolve(c, r.At<>(first), r.At<>(second), r.At<>(bias), r.At<>(to), r.At<>(workspace));
      },
      2.0 * static_cast<double>(Outputs(w)) * static_cast<double>(KernelRows(w)));
}

Ref EmitPadded(Builder& builder, const kernels::Window& w, const kernels::Window& padded, const Ref& x) {
  const Ref image = builder.NewNumbers(Inputs(padded), builder.type());
  EmitPad(builder, Around(w, padded), x, image, builder.type());
  return image;
}

// Emit the convolution, or one of its gradients, through a padded copy if the padding differs between the two sides.
void EmitForward(Builder& builder, const kernels::Window& w, const Ref& x, const Ref& kernel, const Ref& y) {
  if (Even(w)) return EmitConvolution(builder, {Convolution::kForward, w}, x, kernel, y);
  const kernels::Window padded = Padded(w);
  EmitConvolution(builder, {Convolution::kForward, padded}, EmitPadded(builder, w, padded, x), kernel, y);
}

// Emits the convolution with bias and relu as one launch. False, with nothing emitted, if the machine has no such
// launch.
bool EmitFused(Builder& builder, Convolution c, const Ref& x, const Ref& kernel, const Ref& bias, const Ref& y) {
  const kernels::Window w = c.window;
  if (!Even(w)) c.window = Padded(w);
  if (!builder.machine().Prepare(c).ok()) return false;
  Ref offsets = bias;
  if (builder.type() != DType::kFloat32) {
    offsets = builder.NewNumbers(w.out[2], builder.type());
    EmitConvert(builder, {bias, DType::kFloat32}, {offsets, builder.type()}, w.out[2]);
  }
  EmitConvolution(builder, c, Even(w) ? x : EmitPadded(builder, w, c.window, x), kernel, y, offsets);
  return true;
}

void EmitBackwardData(Builder& builder, const kernels::Window& w, const Ref& dy, const Ref& kernel, const Ref& dx,
                      bool add) {
  const DType t = builder.type();
  const bool even = Even(w);
  if (even && !add) return EmitConvolution(builder, {Convolution::kBackwardData, w}, dy, kernel, dx);
  const kernels::Window padded = even ? w : Padded(w), around = Around(w, padded);
  const Ref image = builder.NewNumbers(Inputs(padded), t);
  EmitConvolution(builder, {Convolution::kBackwardData, padded}, dy, kernel, image);
  if (even) return EmitConvert(builder, {image, t}, {dx, t}, Inputs(w), true);
  EmitCrop(builder, around, image, dx, t, add);
}

void EmitBackwardFilter(Builder& builder, const kernels::Window& w, const Ref& x, const Ref& dy, const Ref& dkernel) {
  if (Even(w)) return EmitConvolution(builder, {Convolution::kBackwardFilter, w}, x, dy, dkernel);
  const kernels::Window padded = Padded(w);
  EmitConvolution(builder, {Convolution::kBackwardFilter, padded}, EmitPadded(builder, w, padded, x), dy, dkernel);
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
  const int64_t rows = KernelRows(c.window), columns = c.window.out[2];
  if (!c.frozen) {
    const int64_t channels = c.transposed ? c.window.in[2] : columns;
    if (c.bias != nullptr)
      EmitColumnSums(builder, dy, c.out->numbers / channels, channels, builder.GradientOf(c.bias), t);
    const Ref dweights = builder.NewNumbers(rows * columns, DType::kFloat32), gradient = builder.GradientOf(c.kernel);
    EmitBackwardFilter(builder, c.window, c.transposed ? dy : c.x, c.transposed ? c.x : dy, dweights);
    builder.Emit("transpose", {dweights}, {gradient}, [=](const Run& r) {
      return kernels::Transpose(r.stream(), columns, rows, r.At<>(dweights), DType::kFloat32, r.At<>(gradient),
                                DType::kFloat32);
    });
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
  const Variable* bias = builder.BiasOf(node);
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
  const int64_t rows = KernelRows(w), columns = w.out[2];
  const Ref weights = builder.NewNumbers(rows * columns, t);
  const Ref values = builder.ValueOf(kernel);
  builder.Emit("transpose", {values}, {weights}, [=](const Run& r) {
    return kernels::Transpose(r.stream(), rows, columns, r.At<>(values), DType::kFloat32, r.At<>(weights), t);
  });
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
