// Layers that slide a window or change the sizes of images, sequences and volumes: pooling, padding, cropping,
// up-sampling. A volume is computed in two passes: within its planes, then over whole planes, as images whose rows they
// are.
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/backend/cudnn/builder.h"
#include "worker/backend/cudnn/kernels/recurrent.h"
#include "worker/backend/cudnn/launches.h"
#include "worker/backend/cudnn/layer.h"
#include "worker/backend/limits.h"

namespace cairn::cudnn {
namespace {

// What a launch reads: `reads`, and also the output if it adds to it.
std::vector<Ref> With(std::vector<Ref> reads, bool add, const Ref& sum) {
  if (add) reads.push_back(sum);
  return reads;
}

const char* Adds(bool add) { return add ? " add" : ""; }

int64_t Outputs(const kernels::Window& w) { return w.examples * w.out[0] * w.out[1] * w.out[2]; }

bool IsVolume(const kernels::Window& w) { return w.depth.in != 1 || w.depth.out != 1 || w.depth.kernel != 1; }

// One pass over a volume, and all of its passes.
using Turn = void (*)(Builder& builder, const kernels::Window& w, bool which, Value* in, Value* out);
void LowerTurns(Builder& builder, const Node& node, bool which, Turn turn) {
  Value *const in = builder.In(node), *const out = builder.Out(node);
  const kernels::Window w = builder.groups().WindowOf(node);
  if (!IsVolume(w)) return turn(builder, w, which, in, out);
  const kernels::Window within = WithinPlanes(w);
  Value* const between = builder.NewValue(Outputs(within), in->needs_gradient, out->type);
  turn(builder, within, which, in, between);
  turn(builder, OfPlanes(w), which, between, out);
}

// ---- pooling ----

// zeros: see kernels::MaxPooling.
void LowerPool(Builder& builder, const kernels::Window& w, bool max, bool zeros, Value* in, Value* out) {
  const bool small = w.kernel[0] * w.kernel[1] <= kPoolingPlacesMax;
  const DType t = out->type;
  const Ref x = builder.Read(*in, t), y = builder.NewLike(*out);
  const Ref argmax = max && small && in->needs_gradient ? builder.New(out->numbers) : Ref{};
  const std::string text = ToString(Convolution{Convolution::kForward, w});
  out->data = y;
  builder.Emit(absl::StrCat(max ? "max pooling " : "average pooling ", text), {x}, {y, argmax}, [=](const Run& r) {
    return max ? kernels::MaxPooling(r.stream(), w, zeros, r.At<>(x), r.At<>(y), r.At<uint8_t>(argmax), t)
               : kernels::AveragePooling(r.stream(), w, r.At<>(x), r.At<>(y), t);
  });
  if (!in->needs_gradient) return;
  builder.Backward([=, &builder] {
    const Ref dy = out->gradient, searched = max && !small ? x : Ref{};
    const Builder::Sink dx = builder.GradientSink(in);
    builder.Emit(absl::StrCat(max ? "max pooling backward " : "average pooling backward ", text, Adds(dx.add)),
                 With({dy, argmax, searched}, dx.add, dx.ref), {dx.ref}, [=](const Run& r) {
                   if (!max)
                     return kernels::AveragePoolingBackward(r.stream(), w, r.At<>(dy), r.At<>(dx.ref), t, dx.add);
                   if (searched)
                     return kernels::MaxPoolingBackwardSearch(r.stream(), w, r.At<>(x), r.At<>(dy), r.At<>(dx.ref), t,
                                                              dx.add);
                   return kernels::MaxPoolingBackward(r.stream(), w, r.At<uint8_t>(argmax), r.At<>(dy), r.At<>(dx.ref),
                                                      t, dx.add);
                 });
  });
}

bool IsMaximum(LayerKind kind) {
  switch (kind) {
    case LayerKind::kMaxPooling1D:
    case LayerKind::kMaxPooling2D:
    case LayerKind::kMaxPooling3D:
    case LayerKind::kGlobalMaxPooling1D:
    case LayerKind::kGlobalMaxPooling2D:
    case LayerKind::kGlobalMaxPooling3D: return true;
    default: return false;
  }
}

void LowerPooling(Builder& builder, const Node& node) {
  const bool max = IsMaximum(node.kind);
  const Node& producer = builder.NodeAt(node.inputs[0]);
  if (producer.kind == LayerKind::kZeroPadding2D && builder.groups().Joined(producer)) {
    return LowerPool(builder, builder.groups().WindowOf(node), max, true, builder.In(node), builder.Out(node));
  }
  LowerTurns(builder, node, max, [](Builder& b, const kernels::Window& w, bool maximum, Value* in, Value* out) {
    const bool whole = w.out[0] == 1 && w.out[1] == 1 && w.pad[0] == 0 && w.pad[1] == 0;
    if (!maximum || !whole || w.kernel[0] == 1 || w.kernel[1] == 1 || w.kernel[0] * w.kernel[1] <= kPoolingPlacesMax)
      return LowerPool(b, w, maximum, false, in, out);
    // The window is too large to keep the index of the maximum, and slow to search again: pool along the rows, then
    // along the column.
    kernels::Window rows = w, column = w;
    rows.out[0] = column.in[0] = w.in[0];
    rows.kernel[0] = rows.strides[0] = 1;
    column.in[1] = column.kernel[1] = column.strides[1] = 1;
    Value* const between = b.NewValue(Outputs(rows), in->needs_gradient, out->type);
    LowerPool(b, rows, true, false, in, between);
    LowerPool(b, column, true, false, between, out);
  });
}

// The average over the steps that count.
void LowerMaskedAverage(Builder& b, const Node& node, const Ref& mask) {
  Value *const in = b.In(node), *const out = b.Out(node);
  const DType t = out->type;
  const int64_t channels = node.output.back(), n = b.examples(), steps = b.ShapeOf(node)[0];
  const Ref x = b.Read(*in, t), y = b.NewLike(*out);
  out->data = y;
  b.Emit("masked average", {x, mask}, {y}, [=](const Run& r) {
    return kernels::MaskedAverage(r.stream(), n, steps, channels, r.At<float>(mask), r.At<>(x), r.At<>(y), t);
  });
  if (!in->needs_gradient) return;
  b.Backward([=, &b] {
    const Ref dy = out->gradient;
    const Builder::Sink dx = b.GradientSink(in);
    b.Emit(absl::StrCat("masked average backward", Adds(dx.add)), With({dy, mask}, dx.add, dx.ref), {dx.ref},
           [=](const Run& r) {
             return kernels::MaskedAverageBackward(r.stream(), n, steps, channels, r.At<float>(mask), r.At<>(dy),
                                                   r.At<>(dx.ref), t, dx.add);
           });
  });
}

void LowerGlobalAverage(Builder& builder, const Node& node) {
  if (const Ref mask = builder.handover().StepMaskOf(node.inputs[0])) return LowerMaskedAverage(builder, node, mask);
  Value *const in = builder.In(node), *const out = builder.Out(node);
  const DType t = out->type;
  const int64_t channels = node.output.back(), n = builder.examples(), positions = in->numbers / channels / n;
  const Ref x = builder.Read(*in, t), y = builder.NewLike(*out);
  out->data = y;
  builder.Emit(absl::StrCat("global average ", n, "x", positions, "x", channels), {x}, {y}, [=](const Run& r) {
    return kernels::GlobalAverage(r.stream(), n, positions, channels, r.At<>(x), r.At<>(y), t);
  });
  if (!in->needs_gradient) return;
  builder.Backward([=, &builder] {
    const Ref dy = out->gradient;
    const Builder::Sink dx = builder.GradientSink(in);
    builder.Emit(absl::StrCat("global average backward", Adds(dx.add)), With({dy}, dx.add, dx.ref), {dx.ref},
                 [=](const Run& r) {
                   return kernels::GlobalAverageBackward(r.stream(), n, positions, channels, r.At<>(dy), r.At<>(dx.ref),
                                                         t, dx.add);
                 });
  });
}

// ---- sizes ----

void LowerZeroPadding(Builder& builder, const Node& node) {
  Value *const in = builder.In(node), *const out = builder.Out(node);
  const kernels::Window w = builder.groups().WindowOf(node);
  const DType t = out->type;
  const Ref x = builder.Read(*in, t), y = builder.NewLike(*out);
  out->data = y;
  EmitPad(builder, w, x, y, t);
  if (!in->needs_gradient) return;
  builder.Backward([=, &builder] {
    const Builder::Sink dx = builder.GradientSink(in);
    EmitCrop(builder, w, out->gradient, dx.ref, t, dx.add);
  });
}

// The reverse of padding: from images of w.out, the input, to those of w.in.
void LowerCropping(Builder& b, const Node& node) {
  Value *const in = b.In(node), *const out = b.Out(node);
  const DType t = out->type;
  kernels::Window w = b.groups().WindowOf(node);
  for (int i = 0; i < 3; ++i) std::swap(w.in[i], w.out[i]);
  std::swap(w.depth.in, w.depth.out);
  const Ref x = b.Read(*in, t), y = b.NewLike(*out);
  out->data = y;
  EmitCrop(b, w, x, y, t, false);
  if (!in->needs_gradient) return;
  b.Backward([=, &b] {
    const Builder::Sink dx = b.GradientSink(in);
    const Ref padded = dx.add ? b.NewLike(*in) : dx.ref;
    EmitPad(b, w, out->gradient, padded, t);
    if (dx.add) EmitConvert(b, {padded, t}, {dx.ref, t}, in->numbers, true);
  });
}

void LowerUpSampleTurn(Builder& builder, const kernels::Window& w, bool bilinear, Value* in, Value* out) {
  const DType t = out->type;
  const Ref x = builder.Read(*in, t), y = builder.NewLike(*out);
  const char* text = bilinear ? "up-sampling bilinear" : "up-sampling nearest";
  out->data = y;
  builder.Emit(text, {x}, {y},
               [=](const Run& r) { return kernels::UpSampling(r.stream(), w, bilinear, r.At<>(x), r.At<>(y), t); });
  if (!in->needs_gradient) return;
  builder.Backward([=, &builder] {
    const Ref dy = out->gradient;
    const Builder::Sink dx = builder.GradientSink(in);
    builder.Emit(absl::StrCat(text, " backward", Adds(dx.add)), With({dy}, dx.add, dx.ref), {dx.ref},
                 [=](const Run& r) {
                   return kernels::UpSamplingBackward(r.stream(), w, bilinear, r.At<>(dy), r.At<>(dx.ref), t, dx.add);
                 });
  });
}

void LowerUpSampling(Builder& builder, const Node& node) {
  LowerTurns(builder, node, node.layer.up_sampling2d().interpolation() == v1::UpSampling2D::BILINEAR,
             LowerUpSampleTurn);
}

constexpr Layer kLayers[] = {
    {LayerKind::kMaxPooling1D, LowerPooling},
    {LayerKind::kMaxPooling2D, LowerPooling},
    {LayerKind::kMaxPooling3D, LowerPooling},
    {LayerKind::kAveragePooling1D, LowerPooling},
    {LayerKind::kAveragePooling2D, LowerPooling},
    {LayerKind::kAveragePooling3D, LowerPooling},
    {LayerKind::kGlobalMaxPooling1D, LowerPooling},
    {LayerKind::kGlobalMaxPooling2D, LowerPooling},
    {LayerKind::kGlobalMaxPooling3D, LowerPooling},
    {LayerKind::kGlobalAveragePooling1D, LowerGlobalAverage},
    {LayerKind::kGlobalAveragePooling2D, LowerGlobalAverage},
    {LayerKind::kGlobalAveragePooling3D, LowerGlobalAverage},
    {LayerKind::kUpSampling1D, LowerUpSampling},
    {LayerKind::kUpSampling2D, LowerUpSampling},
    {LayerKind::kUpSampling3D, LowerUpSampling},
    {LayerKind::kCropping1D, LowerCropping},
    {LayerKind::kCropping2D, LowerCropping},
    {LayerKind::kCropping3D, LowerCropping},
    {LayerKind::kZeroPadding1D, LowerZeroPadding},
    {LayerKind::kZeroPadding2D, LowerZeroPadding},
    {LayerKind::kZeroPadding3D, LowerZeroPadding},
};

}  // namespace

absl::Span<const Layer> WindowLayers() { return kLayers; }

}  // namespace cairn::cudnn
