// Resizing, CenterCrop and adaptive pooling, one axis after the other.
#include "common/model/resample.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/backend/cudnn/builder.h"
#include "worker/backend/cudnn/layer.h"

namespace cairn::cudnn {
namespace {

// {y}, which is also read if the launch adds to it.
std::vector<Ref> With(std::vector<Ref> reads, bool add, const Ref& sum) {
  if (add) reads.push_back(sum);
  return reads;
}

kernels::Interpolation InterpolationOf(const Node& node) {
  switch (node.layer.resizing().interpolation()) {
    case v1::Resizing::NEAREST: return kernels::Interpolation::kNearest;
    case v1::Resizing::BICUBIC: return kernels::Interpolation::kBicubic;
    case v1::Resizing::LANCZOS3: return kernels::Interpolation::kLanczos3;
    case v1::Resizing::LANCZOS5: return kernels::Interpolation::kLanczos5;
    default: return kernels::Interpolation::kBilinear;  // CenterCrop too
  }
}

// Axis `axis` of the node; the axes before it already have the sizes of the output.
kernels::Resampling AxisOf(Builder& b, const Node& node, size_t axis) {
  const Shape& input = b.ShapeOf(node);
  kernels::Resampling r;
  r.outer = b.examples();
  for (size_t i = 0; i < axis; ++i) r.outer *= node.output[i];
  r.in = input[axis];
  r.out = node.output[axis];
  r.inner = 1;
  for (size_t i = axis + 1; i < input.size(); ++i) r.inner *= input[i];
  return r;
}

void LowerAxis(Builder& b, const kernels::Resampling& r, const Ref& table, Value* in, Value* out) {
  const DType t = out->type;
  const Ref x = b.Read(*in, t), y = b.NewLike(*out);
  out->data = y;
  b.Emit(absl::StrCat("resample ", r.in, " -> ", r.out), {x, table}, {y}, [=](const Run& run) {
    return kernels::Resample(run.stream(), r, run.At<float>(table), run.At<>(x), run.At<>(y), t);
  });
  if (!in->needs_gradient) return;
  b.Backward([=, &b] {
    const Ref dy = out->gradient;
    const Builder::Sink dx = b.GradientSink(in);
    b.Emit(absl::StrCat("resample backward ", r.in, " -> ", r.out), With({dy, table}, dx.add, dx.ref), {dx.ref},
           [=](const Run& run) {
             return kernels::ResampleBackward(run.stream(), r, run.At<float>(table), run.At<>(dy), run.At<>(dx.ref), t,
                                              dx.add);
           });
  });
}

void LowerResizing(Builder& b, const Node& node) {
  Value* const out = b.Out(node);
  Value* in = b.In(node);
  std::vector<Ref> tables;
  for (size_t axis = 0; axis < 2; ++axis) {
    kernels::Resampling r = AxisOf(b, node, axis);
    const ResampledBox box = ResampledBoxOf(node, b.ShapeOf(node), static_cast<int>(axis));
    r.kind = InterpolationOf(node);
    r.begin = box.begin;
    r.size = box.size;
    const Ref table = b.NewNumbers(r.out * kernels::kResampleLine, DType::kFloat32);
    b.Emit("resample table", {}, {table},
           [=](const Run& run) { return kernels::ResampleTable(run.stream(), r, run.At<float>(table)); });
    Value* const to = axis == 1 ? out : b.NewValue(r.outer * r.out * r.inner, in->needs_gradient, out->type);
    LowerAxis(b, r, table, in, to);
    tables.push_back(table);
    in = to;
  }
  const float fill = FillOf(node);
  if (fill == 0) return;
  const Ref y = out->data, rows = tables[0], columns = tables[1];
  const DType t = out->type;
  const int64_t examples = b.examples(), height = node.output[0], width = node.output[1], channels = node.output[2];
  b.Emit("resample fill", {y, rows, columns}, {y}, [=](const Run& run) {
    const int64_t shape[3] = {height, width, channels};
    return kernels::ResampleFill(run.stream(), examples, shape, fill, run.At<float>(rows), run.At<float>(columns),
                                 run.At<>(y), t);
  });
}

// ---- adaptive pooling: the last axis first, so that of equal numbers the first one in a row-wise order is found ----

void LowerPoolAxis(Builder& b, const kernels::Resampling& r, bool max, Value* in, Value* out) {
  const DType t = out->type;
  const Ref x = b.Read(*in, t), y = b.NewLike(*out);
  const Ref argmax = max && in->needs_gradient ? b.New(out->numbers * 4) : Ref{};
  const char* text = max ? "adaptive maximum " : "adaptive average ";
  out->data = y;
  b.Emit(absl::StrCat(text, r.in, " -> ", r.out), {x}, {y, argmax}, [=](const Run& run) {
    return kernels::AdaptivePooling(run.stream(), r, max, run.At<>(x), run.At<>(y), run.At<int32_t>(argmax), t);
  });
  if (!in->needs_gradient) return;
  b.Backward([=, &b] {
    const Ref dy = out->gradient;
    const Builder::Sink dx = b.GradientSink(in);
    b.Emit(absl::StrCat(text, "backward ", r.in, " -> ", r.out), With({dy, argmax}, dx.add, dx.ref), {dx.ref},
           [=](const Run& run) {
             return kernels::AdaptivePoolingBackward(run.stream(), r, run.At<int32_t>(argmax), run.At<>(dy),
                                                     run.At<>(dx.ref), t, dx.add);
           });
  });
}

void LowerAdaptive(Builder& b, const Node& node) {
  const bool max = node.kind == LayerKind::kAdaptiveMaxPooling1D || node.kind == LayerKind::kAdaptiveMaxPooling2D ||
                   node.kind == LayerKind::kAdaptiveMaxPooling3D;
  Value* in = b.In(node);
  Shape here = b.ShapeOf(node);
  for (size_t axis = here.size() - 1; axis-- > 0;) {
    kernels::Resampling r;
    r.outer = b.examples();
    for (size_t i = 0; i < axis; ++i) r.outer *= here[i];
    for (size_t i = axis + 1; i < here.size(); ++i) r.inner *= here[i];
    r.in = here[axis];
    r.out = here[axis] = node.output[axis];
    Value* const to =
        axis == 0 ? b.Out(node) : b.NewValue(r.outer * r.out * r.inner, in->needs_gradient, b.Out(node)->type);
    LowerPoolAxis(b, r, max, in, to);
    in = to;
  }
}

constexpr Layer kLayers[] = {
    {LayerKind::kResizing, LowerResizing},
    {LayerKind::kCenterCrop, LowerResizing},
    {LayerKind::kAdaptiveAveragePooling1D, LowerAdaptive},
    {LayerKind::kAdaptiveAveragePooling2D, LowerAdaptive},
    {LayerKind::kAdaptiveAveragePooling3D, LowerAdaptive},
    {LayerKind::kAdaptiveMaxPooling1D, LowerAdaptive},
    {LayerKind::kAdaptiveMaxPooling2D, LowerAdaptive},
    {LayerKind::kAdaptiveMaxPooling3D, LowerAdaptive},
};

}  // namespace

absl::Span<const Layer> ResampleLayers() { return kLayers; }

}  // namespace cairn::cudnn
