// Convolutions: plain, pointwise (a matrix product), transposed, depthwise, separable.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/backend/cudnn/builder.h"

namespace cairn::cudnn {
namespace {

// A sequence is an image of height 1.
void SetImage(const Shape& shape, int64_t image[3]) {
  image[0] = shape.size() == 3 ? shape[0] : 1;
  image[1] = shape[shape.size() - 2];
  image[2] = shape.back();
}

// One number of the input for each of the output: a matrix product.
bool Pointwise(const kernels::Window& w) {
  for (int i = 0; i < 2; ++i) {
    if (w.kernel[i] != 1 || w.strides[i] != 1 || w.pad[i] != 0 || w.in[i] != w.out[i]) return false;
  }
  return true;
}

// The same with strides: of the input only some numbers are read.
bool Thinning(const kernels::Window& w) {
  for (int i = 0; i < 2; ++i) {
    if (w.kernel[i] != 1 || w.pad[i] != 0 || (w.out[i] - 1) * w.strides[i] >= w.in[i]) return false;
  }
  return w.strides[0] > 1 || w.strides[1] > 1;
}

// Whether the same padding on both sides gives this output.
bool Even(const kernels::Window& w) {
  for (int i = 0; i < 2; ++i) {
    const int64_t reach = w.dilation[i] * (w.kernel[i] - 1) + 1;
    if ((w.in[i] + 2 * w.pad[i] - reach) / w.strides[i] + 1 != w.out[i]) return false;
  }
  return true;
}

// The image with its padding around it, as large as the window reads or the image reaches; and the same window on that.
kernels::Window Padded(const kernels::Window& w) {
  kernels::Window padded = w;
  for (int i = 0; i < 2; ++i) {
    padded.in[i] = std::max((w.out[i] - 1) * w.strides[i] + w.dilation[i] * (w.kernel[i] - 1) + 1, w.pad[i] + w.in[i]);
    padded.pad[i] = 0;
  }
  return padded;
}

// From the image to the padded one, for kernels::Pad and Crop.
kernels::Window Around(const kernels::Window& w, const kernels::Window& padded) {
  kernels::Window around = w;
  for (int i = 0; i < 3; ++i) around.out[i] = padded.in[i];
  return around;
}

int64_t Inputs(const kernels::Window& w) { return w.examples * w.in[0] * w.in[1] * w.in[2]; }
int64_t Outputs(const kernels::Window& w) { return w.examples * w.out[0] * w.out[1] * w.out[2]; }

}  // namespace

kernels::Window Builder::WindowOf(const Node& node) const {
  kernels::Window w;
  w.examples = examples();
  SetImage(graph_.nodes()[node.inputs[0]].output, w.in);
  SetImage(node.output, w.out);
  for (int i = 0; i < 2; ++i) {
    w.kernel[i] = node.window.kernel[i];
    w.strides[i] = node.window.strides[i];
    w.dilation[i] = node.window.dilation[i];
    w.pad[i] = node.window.pad_begin[i];
  }
  const Node& producer = graph_.nodes()[node.inputs[0]];
  if (producer.kind == LayerKind::kZeroPadding2D && joined_[producer.id]) {
    SetImage(graph_.nodes()[producer.inputs[0]].output, w.in);
    for (int i = 0; i < 2; ++i) w.pad[i] += producer.window.pad_begin[i];
  }
  return w;
}

// ---- launches ----

void Builder::EmitConvolution(const Convolution& c, const Ref& first, const Ref& second, const Ref& to,
                              const Ref& bias) {
  absl::StatusOr<int64_t> bytes = machine_.Prepare(c);
  if (!bytes.ok()) return Fail(bytes.status());
  const Ref workspace = *bytes > 0 ? New(*bytes) : Ref{};
  const char* what = c.kind == Convolution::kForward        ? "convolution "
                     : c.kind == Convolution::kBackwardData ? "convolution backward data "
                                                            : "convolution backward filter ";
  const kernels::Window& w = c.window;
  EmitChecked(
      absl::StrCat(what, ToString(c)), {first, second, bias}, {to, workspace},
      [=](const Run& r) {
        return r.machine.Convolve(c, r.At<>(first), r.At<>(second), r.At<>(bias), r.At<>(to), r.At<>(workspace));
      },
      2.0 * static_cast<double>(Outputs(w)) * static_cast<double>(w.kernel[0] * w.kernel[1] * w.in[2]));
}

Ref Builder::EmitPad(const kernels::Window& w, const kernels::Window& padded, const Ref& x) {
  const kernels::Window around = Around(w, padded);
  const DType t = type();
  const Ref image = NewNumbers(Inputs(padded), t);
  Emit("pad", {x}, {image},
       [=](const Run& r) { return kernels::Pad(r.stream(), around, r.At<>(x), r.At<>(image), t); });
  return image;
}

void Builder::EmitForward(const kernels::Window& w, const Ref& x, const Ref& kernel, const Ref& y) {
  if (Even(w)) return EmitConvolution({Convolution::kForward, w}, x, kernel, y);
  const kernels::Window padded = Padded(w);
  EmitConvolution({Convolution::kForward, padded}, EmitPad(w, padded, x), kernel, y);
}

bool Builder::EmitFused(const kernels::Window& w, bool relu, const Ref& x, const Ref& kernel, const Ref& bias,
                        const Ref& y) {
  const Convolution c{Convolution::kForward, Even(w) ? w : Padded(w), true, relu};
  if (!machine_.Prepare(c).ok()) return false;
  Ref offsets = bias;
  if (type() != DType::kFloat32) {
    offsets = NewNumbers(w.out[2], type());
    EmitConvert(bias, DType::kFloat32, offsets, type(), w.out[2]);
  }
  EmitConvolution(c, Even(w) ? x : EmitPad(w, c.window, x), kernel, y, offsets);
  return true;
}

void Builder::EmitBackwardData(const kernels::Window& w, const Ref& dy, const Ref& kernel, const Ref& dx, bool add) {
  const DType t = type();
  const bool even = Even(w);
  if (even && !add) return EmitConvolution({Convolution::kBackwardData, w}, dy, kernel, dx);
  const kernels::Window padded = even ? w : Padded(w), around = Around(w, padded);
  const Ref image = NewNumbers(Inputs(padded), t);
  EmitConvolution({Convolution::kBackwardData, padded}, dy, kernel, image);
  if (even) return EmitConvert(image, t, dx, t, Inputs(w), true);
  std::vector<Ref> reads = {image};
  if (add) reads.push_back(dx);
  Emit("crop", std::move(reads), {dx},
       [=](const Run& r) { return kernels::Crop(r.stream(), around, r.At<>(image), r.At<>(dx), t, add); });
}

void Builder::EmitBackwardFilter(const kernels::Window& w, const Ref& x, const Ref& dy, const Ref& dkernel) {
  if (Even(w)) return EmitConvolution({Convolution::kBackwardFilter, w}, x, dy, dkernel);
  const kernels::Window padded = Padded(w);
  EmitConvolution({Convolution::kBackwardFilter, padded}, EmitPad(w, padded, x), dy, dkernel);
}

// ---- layers ----

void Builder::LowerConvolution(const Node& node, Value* in, Value* out) {
  const Activation f = JoinedActivation(node);
  kernels::Window w = WindowOf(node);
  const Variable* bias = BiasOf(node);
  if (node.kind == LayerKind::kDepthwiseConv2D) return LowerDepthwise(w, Find(node, "kernel"), bias, f, in, out);
  if (node.kind == LayerKind::kSeparableConv2D) {
    const Variable* depthwise = Find(node, "depthwise_kernel");
    const Variable* pointwise = Find(node, "pointwise_kernel");
    w.out[2] = depthwise->shape[2] * depthwise->shape[3];
    Value* between = NewValue(Outputs(w), out->needs_gradient, type());
    LowerDepthwise(w, depthwise, nullptr, {}, in, between);
    return LowerProjection(pointwise, bias, w.out[2], node.output.back(), f, between, out);
  }
  const Variable* kernel = Find(node, "kernel");
  const bool transposed = node.kind == LayerKind::kConv2DTranspose;
  if (!transposed && (Pointwise(w) || Thinning(w))) {
    return LowerProjection(kernel, bias, w.in[2], w.out[2], f, Pointwise(w) ? in : Thinned(w, in), out);
  }
  // Of a transposed one the window leads from its output to its input, and forward is what backward is of the plain
  // one.
  if (transposed) {
    for (int i = 0; i < 3; ++i) std::swap(w.in[i], w.out[i]);
  }
  const DType t = type();
  const bool frozen = Frozen(node);
  const Ref x = Read(*in, t);
  const int64_t rows = w.kernel[0] * w.kernel[1] * w.in[2], columns = w.out[2];
  const Ref weights = NewNumbers(rows * columns, t);
  const Ref values = ValueOf(kernel);
  Emit("transpose", {values}, {weights}, [=](const Run& r) {
    return kernels::Transpose(r.stream(), rows, columns, r.At<>(values), DType::kFloat32, r.At<>(weights), t);
  });
  const Ref y = NewLike(*out);
  const int64_t channels = node.output.back();
  const bool relu = f.kind == v1::RELU;
  Ref before;
  if (!transposed && bias != nullptr && (f.linear() || relu) && EmitFused(w, relu, x, weights, ValueOf(bias), y)) {
    out->data = y;
  } else {
    if (transposed) {
      EmitBackwardData(w, x, weights, y, false);
    } else {
      EmitForward(w, x, weights, y);
    }
    before = EmitActivation(f, y, ValueOf(bias), channels, out);
  }
  if (!training()) return;
  Backward([=, this] {
    EmitActivationBackward(f, before, channels, out);
    const Ref dy = out->gradient;
    if (!frozen) {
      if (bias != nullptr) EmitColumnSums(dy, out->numbers / channels, channels, GradientOf(bias), t);
      const Ref dweights = NewNumbers(rows * columns, DType::kFloat32), gradient = GradientOf(kernel);
      EmitBackwardFilter(w, transposed ? dy : x, transposed ? x : dy, dweights);
      Emit("transpose", {dweights}, {gradient}, [=](const Run& r) {
        return kernels::Transpose(r.stream(), columns, rows, r.At<>(dweights), DType::kFloat32, r.At<>(gradient),
                                  DType::kFloat32);
      });
    }
    if (!in->needs_gradient) return;
    const Sink dx = GradientSink(in);
    if (!transposed) return EmitBackwardData(w, dy, weights, dx.ref, dx.add);
    if (!dx.add) return EmitForward(w, dy, weights, dx.ref);
    const Ref share = NewLike(*in);
    EmitForward(w, dy, weights, share);
    EmitConvert(share, t, dx.ref, t, in->numbers, true);
  });
}

// An average pooling of windows of one number copies. Backward all that read the copy come before the first of them,
// which made it.
Value* Builder::Thinned(const kernels::Window& w, Value* in) {
  Value*& copy = thinned_[{in, w.strides[0], w.strides[1]}];
  if (copy != nullptr) return copy;
  kernels::Window pick = w;
  pick.out[2] = w.in[2];
  const DType t = type();
  Value* const thin = copy = NewValue(Outputs(pick), in->needs_gradient, t);
  const Ref x = Read(*in, t), y = NewLike(*thin);
  const std::string text = ToString(Convolution{Convolution::kForward, pick});
  thin->data = y;
  Emit(absl::StrCat("pick ", text), {x}, {y},
       [=](const Run& r) { return kernels::AveragePooling(r.stream(), pick, r.At<>(x), r.At<>(y), t); });
  if (!in->needs_gradient) return thin;
  Backward([=, this] {
    if (!thin->gradient) return;
    const Ref dy = thin->gradient;
    const Sink dx = GradientSink(in);
    std::vector<Ref> reads = {dy};
    if (dx.add) reads.push_back(dx.ref);
    Emit(absl::StrCat("pick backward ", text, dx.add ? " add" : ""), std::move(reads), {dx.ref}, [=](const Run& r) {
      return kernels::AveragePoolingBackward(r.stream(), pick, r.At<>(dy), r.At<>(dx.ref), t, dx.add);
    });
  });
  return thin;
}

// Our own kernels: they take any padding.
void Builder::LowerDepthwise(const kernels::Window& w, const Variable* kernel, const Variable* bias,
                             const Activation& f, Value* in, Value* out) {
  const DType t = type();
  const bool frozen = Frozen(*current_);
  const Ref x = Read(*in, t), y = NewLike(*out);
  Ref weights = ValueOf(kernel);
  if (t != DType::kFloat32) {
    weights = NewNumbers(kernel->size, t);
    EmitConvert(ValueOf(kernel), DType::kFloat32, weights, t, kernel->size);
  }
  const std::string text = ToString(Convolution{Convolution::kForward, w});
  Emit(absl::StrCat("depthwise ", text), {x, weights}, {y},
       [=](const Run& r) { return kernels::Depthwise(r.stream(), w, r.At<>(x), r.At<>(weights), r.At<>(y), t); });
  const Ref before = EmitActivation(f, y, ValueOf(bias), w.out[2], out);
  if (!training()) return;
  Backward([=, this] {
    EmitActivationBackward(f, before, w.out[2], out);
    const Ref dy = out->gradient;
    if (!frozen) {
      if (bias != nullptr) EmitColumnSums(dy, out->numbers / w.out[2], w.out[2], GradientOf(bias), t);
      const Ref scratch = Scratch(kernels::DepthwiseScratch(w)), gradient = GradientOf(kernel);
      Emit(absl::StrCat("depthwise backward filter ", text), {x, dy}, {gradient, scratch}, [=](const Run& r) {
        return kernels::DepthwiseBackwardFilter(r.stream(), w, r.At<>(x), r.At<>(dy), r.At<float>(gradient),
                                                r.At<float>(scratch), t);
      });
    }
    if (!in->needs_gradient) return;
    const Sink dx = GradientSink(in);
    std::vector<Ref> reads = {dy, weights};
    if (dx.add) reads.push_back(dx.ref);
    Emit(absl::StrCat("depthwise backward data ", text, dx.add ? " add" : ""), std::move(reads), {dx.ref},
         [=](const Run& r) {
           return kernels::DepthwiseBackwardData(r.stream(), w, r.At<>(dy), r.At<>(weights), r.At<>(dx.ref), t, dx.add);
         });
  });
}

}  // namespace cairn::cudnn
