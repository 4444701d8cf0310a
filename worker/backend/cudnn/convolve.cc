#include "worker/backend/cudnn/convolve.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/backend/cudnn/launches.h"

namespace cairn::cudnn {
namespace {

// A sequence is an image of height 1, a vector one of a single pixel; of a volume: each of its planes.
void SetImage(const Shape& shape, int64_t image[3]) {
  image[0] = shape.size() > 2 ? shape[shape.size() - 3] : 1;
  image[1] = shape.size() > 1 ? shape[shape.size() - 2] : 1;
  image[2] = shape.back();
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

void EmitBackwardFilter(Builder& builder, const kernels::Window& w, const Ref& x, const Ref& dy, const Ref& dkernel) {
  if (Even(w)) return EmitConvolution(builder, {Convolution::kBackwardFilter, w}, x, dy, dkernel);
  const kernels::Window padded = Padded(w);
  EmitConvolution(builder, {Convolution::kBackwardFilter, padded}, EmitPadded(builder, w, padded, x), dy, dkernel);
}

}  // namespace

kernels::Window WindowOn(const Window& window, const Shape& in, const Shape& out, int64_t examples) {
  kernels::Window w;
  w.examples = examples;
  SetImage(in, w.in);
  SetImage(out, w.out);
  for (int i = 0; i < 2; ++i) {
    w.kernel[i] = window.kernel[i];
    w.strides[i] = window.strides[i];
    w.dilation[i] = window.dilation[i];
    w.pad[i] = window.pad_begin[i];
  }
  const auto depth_of = [](const Shape& shape) { return shape.size() > 3 ? shape[0] : 1; };
  const WindowAxis& z = window.depth;
  w.depth = {depth_of(in), depth_of(out), z.kernel, z.stride, z.dilation, z.pad_begin};
  w.groups = window.groups;
  return w;
}

int64_t Inputs(const kernels::Window& w) { return w.examples * w.depth.in * w.in[0] * w.in[1] * w.in[2]; }
int64_t Outputs(const kernels::Window& w) { return w.examples * w.depth.out * w.out[0] * w.out[1] * w.out[2]; }
int64_t KernelRows(const kernels::Window& w) {
  return w.depth.kernel * w.kernel[0] * w.kernel[1] * (w.in[2] / w.groups);
}

Ref EmitKernelCopy(Builder& builder, const kernels::Window& w, const Variable* kernel) {
  const DType t = builder.type();
  const int64_t rows = KernelRows(w), columns = w.out[2];
  const Ref values = builder.ValueOf(kernel), copy = builder.NewNumbers(rows * columns, t);
  builder.Emit("transpose", {values}, {copy}, [=](const Run& r) {
    return kernels::Transpose(r.stream(), rows, columns, r.At<>(values), DType::kFloat32, r.At<>(copy), t);
  });
  return copy;
}

void EmitForward(Builder& builder, const kernels::Window& w, const Ref& x, const Ref& kernel, const Ref& y) {
  if (Even(w)) return EmitConvolution(builder, {Convolution::kForward, w}, x, kernel, y);
  const kernels::Window padded = Padded(w);
  EmitConvolution(builder, {Convolution::kForward, padded}, EmitPadded(builder, w, padded, x), kernel, y);
}

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

void EmitKernelGradient(Builder& builder, const kernels::Window& w, const Ref& x, const Ref& dy,
                        const Variable* kernel) {
  const int64_t rows = KernelRows(w), columns = w.out[2];
  const Ref copy = builder.NewNumbers(rows * columns, DType::kFloat32), gradient = builder.GradientOf(kernel);
  EmitBackwardFilter(builder, w, x, dy, copy);
  builder.Emit("transpose", {copy}, {gradient}, [=](const Run& r) {
    return kernels::Transpose(r.stream(), columns, rows, r.At<>(copy), DType::kFloat32, r.At<>(gradient),
                              DType::kFloat32);
  });
}

}  // namespace cairn::cudnn
