// Layers on the numbers of an example without products: noise, factors by place, unit length, repeated rows, penalties.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/model/activity.h"
#include "worker/backend/affine.h"
#include "worker/backend/cudnn/axes.h"
#include "worker/backend/cudnn/builder.h"
#include "worker/backend/cudnn/launches.h"
#include "worker/backend/cudnn/layer.h"
#include "worker/backend/noise.h"
#include "worker/backend/rows.h"

namespace cairn::cudnn {
namespace {

const char* Adds(bool add) { return add ? " add" : ""; }

std::vector<Ref> With(std::vector<Ref> reads, const Builder::Sink& sink) {
  if (sink.add) reads.push_back(sink.ref);
  return reads;
}

// ---- noise ----

kernels::Noise NoiseArguments(const Node& node, const LayerNoise& noise, int64_t examples) {
  kernels::Noise n;
  n.draw = {node.id, noise.rate, noise.seed};
  n.dims = DimsOf(examples, node.output);
  n.strides = StridesAlong(noise.shape, node.output, /*shared=*/false);
  switch (noise.kind) {
    case NoiseKind::kDropout:
      n.kind = kernels::NoiseKind::kDropout;
      n.kept = 1.0f / (1.0f - noise.rate);
      break;
    case NoiseKind::kAlphaDropout: {
      const AlphaFactors alpha = AlphaFactorsOf(noise.rate);
      n.kind = kernels::NoiseKind::kAlpha;
      n.kept = static_cast<float>(alpha.a);
      n.kept_offset = static_cast<float>(alpha.b);
      n.dropped_offset = static_cast<float>(alpha.a * kAlphaDropped + alpha.b);
      break;
    }
    case NoiseKind::kGaussianNoise:
      n.kind = kernels::NoiseKind::kGaussian;
      n.spread = noise.rate;
      break;
    case NoiseKind::kGaussianDropout:
      n.kind = kernels::NoiseKind::kGaussianFactor;
      n.spread = std::sqrt(static_cast<double>(noise.rate) / (1 - noise.rate));
      break;
  }
  return n;
}

// Backward draws the same numbers again.
void LowerNoise(Builder& b, const Node& node) {
  Value *const in = b.In(node), *const out = b.Out(node);
  const LayerNoise noise = *NoiseOf(node);  // without noise the node has joined the one before it
  const DType t = out->type;
  const kernels::Noise n = NoiseArguments(node, noise, b.examples());
  const int64_t channels = node.output.back(), count = out->numbers, positions = count / channels / b.examples();
  Shape of_channels(node.output.size(), 1);
  of_channels.back() = channels;
  const bool drops = noise.kind == NoiseKind::kDropout, each = drops && noise.shape == node.output,
             spatial = drops && !each && noise.shape == of_channels;
  const Ref key = KeyOf(b);
  const auto emit = [=, &b, examples = b.examples()](bool backward, const Ref& from, const Builder::Sink& to) {
    b.Emit(absl::StrCat(LayerTypeName(node.kind), " ", noise.rate, backward ? " backward" : "", Adds(to.add)),
           With({from, key}, to), {to.ref}, [=](const Run& r) {
             const auto* const step = r.At<kernels::StepKey>(key);
             if (each)
               return kernels::Dropout(r.stream(), count, step, n.draw, r.At<>(from), r.At<>(to.ref), t, to.add);
             if (spatial) {
               return kernels::SpatialDropout(r.stream(), examples, positions, channels, step, n.draw, r.At<>(from),
                                              r.At<>(to.ref), t, to.add);
             }
             return backward ? kernels::AddNoiseBackward(r.stream(), n, step, r.At<>(from), r.At<>(to.ref), t, to.add)
                             : kernels::AddNoise(r.stream(), n, step, r.At<>(from), r.At<>(to.ref), t);
           });
  };
  const Ref x = b.Read(*in, t), y = b.NewLike(*out);
  out->data = y;
  emit(false, x, {y});
  if (!in->needs_gradient) return;
  b.Backward([=, &b] { emit(true, out->gradient, b.GradientSink(in)); });
}

// ---- rows ----

void LowerUnitNormalization(Builder& b, const Node& node) {
  Value *const in = b.In(node), *const out = b.Out(node);
  const DType t = out->type;
  const int64_t columns = RowNumbers(node.layer.unit_normalization(), node.output), rows = out->numbers / columns;
  const float shortest = static_cast<float>(kUnitLengthMin);
  const Ref x = b.Read(*in, t), y = b.NewLike(*out), lengths = b.NewNumbers(rows, DType::kFloat32);
  out->data = y;
  b.Emit("unit rows", {x}, {y, lengths}, [=](const Run& r) {
    return kernels::UnitRows(r.stream(), rows, columns, shortest, r.At<>(x), r.At<>(y), r.At<float>(lengths), t);
  });
  if (!in->needs_gradient) return;
  b.Backward([=, &b] {
    const Ref dy = out->gradient;
    const Builder::Sink dx = b.GradientSink(in);
    b.Emit(absl::StrCat("unit rows backward", Adds(dx.add)), With({y, lengths, dy}, dx), {dx.ref}, [=](const Run& r) {
      return kernels::UnitRowsBackward(r.stream(), rows, columns, shortest, r.At<>(y), r.At<float>(lengths), r.At<>(dy),
                                       r.At<>(dx.ref), t, dx.add);
    });
  });
}

void LowerRepeatVector(Builder& b, const Node& node) {
  Value *const in = b.In(node), *const out = b.Out(node);
  const DType t = out->type;
  kernels::Broadcast shape;
  shape.dims[2] = b.examples();
  shape.dims[3] = node.output[0];
  shape.dims[4] = node.output[1];
  shape.strides[0][2] = node.output[1];
  shape.strides[0][4] = 1;
  const Ref x = b.Read(*in, t), y = b.NewLike(*out);
  out->data = y;
  b.Emit("repeat", {x}, {y}, [=](const Run& r) {
    return kernels::Multiply(r.stream(), shape, {1, {r.At<>(x)}}, r.At<>(y), t);
  });
  if (!in->needs_gradient) return;
  b.Backward([=, &b] {
    const Ref dy = out->gradient;
    const Builder::Sink dx = b.GradientSink(in);
    b.Emit(absl::StrCat("repeat backward", Adds(dx.add)), With({dy}, dx), {dx.ref}, [=](const Run& r) {
      return kernels::MultiplyBackward(r.stream(), shape, {1, {nullptr}}, 0, r.At<>(dy), r.At<>(dx.ref), t, dx.add);
    });
  });
}

// ---- penalties ----

// The output is the input; the penalties are added to the loss (Builder::LowerLoss).
void LowerActivity(Builder& b, const Node& node) {
  Value *const in = b.In(node), *const out = b.Out(node);
  const DType t = out->type;
  const ActivityFactors factors = ActivityFactorsOf(node);
  const int64_t numbers = NumElements(node.output), count = out->numbers;
  const Ref x = b.Read(*in, t);
  out->data = x;
  if (b.options().mode != Mode::kPredict) {
    const int64_t examples = b.examples();
    const Ref penalties = b.New(examples * static_cast<int64_t>(sizeof(double)));
    b.handover().AddPenalty(penalties);
    b.Emit("penalties", {x}, {penalties}, [=](const Run& r) {
      return kernels::ActivityPenalty(r.stream(), examples, numbers, factors.l1, factors.l2, r.At<>(x),
                                      r.At<double>(penalties), t);
    });
  }
  if (!in->needs_gradient) return;
  b.Backward([=, &b] {
    const Ref dy = out->gradient, key = b.type() == DType::kFloat16 ? KeyOf(b) : Ref{};  // of the loss scale
    const Builder::Sink dx = b.GradientSink(in);
    b.Emit(absl::StrCat("penalties backward", Adds(dx.add)), With({x, dy, key}, dx), {dx.ref}, [=](const Run& r) {
      return kernels::ActivityBackward(r.stream(), count, static_cast<float>(factors.l1),
                                       static_cast<float>(factors.l2), r.At<kernels::StepKey>(key), r.At<>(x),
                                       r.At<>(dy), r.At<>(dx.ref), t, dx.add);
    });
  });
}

// ---- factors by place ----

struct Factors {
  kernels::PlaceFactors shape;
  Ref shift, scale, offset;
  kernels::PlaceFactors At(const Run& r) const {
    kernels::PlaceFactors f = shape;
    f.shift = r.At<float>(shift), f.scale = r.At<float>(scale), f.offset = r.At<float>(offset);
    return f;
  }
};

// Factors that the job gives are constants; those of an adapted Normalization come from its variables.
Factors LowerFactors(Builder& b, const Node& node) {
  Factors f;
  const Shape shape = AffineShape(node);
  f.shape.dims = DimsOf(b.examples(), node.output);
  f.shape.strides = StridesAlong(shape, node.output, /*shared=*/true);
  const Variable *const mean = b.Find(node, "mean"), *const variance = b.Find(node, "variance");
  if (node.kind == LayerKind::kNormalization && mean != nullptr) {
    const bool inverts = node.layer.normalization().invert();
    const int64_t count = NumElements(shape);
    const Ref from = b.ValueOf(variance), to = f.scale = b.NewNumbers(count, DType::kFloat32);
    (inverts ? f.offset : f.shift) = b.ValueOf(mean);
    b.Emit("deviations", {from}, {to}, [=](const Run& r) {
      return kernels::DeviationScale(r.stream(), count, r.At<float>(from), kDeviationMin, inverts, r.At<float>(to));
    });
    return f;
  }
  AffineFactors<float> factors;
  FillAffineFactors<float>(node, {}, {}, &factors);
  f.shift = b.Constant(factors.shift);
  f.scale = b.Constant(factors.scale);
  f.offset = b.Constant(factors.offset);
  return f;
}

}  // namespace

void LowerAffine(Builder& b, const Node& node) {
  Value *const in = b.In(node), *const out = b.Out(node);
  const DType t = out->type;
  const Factors f = LowerFactors(b, node);
  const Ref x = b.Read(*in, t), y = b.NewLike(*out);
  out->data = y;
  b.Emit("scale by place", {x, f.shift, f.scale, f.offset}, {y},
         [=](const Run& r) { return kernels::ScaleByPlace(r.stream(), f.At(r), r.At<>(x), r.At<>(y), t, false); });
  if (!in->needs_gradient) return;
  b.Backward([=, &b] {
    const Ref dy = out->gradient;
    const Builder::Sink dx = b.GradientSink(in);
    Factors back = f;
    back.shift = back.offset = {};
    b.Emit(absl::StrCat("scale by place backward", Adds(dx.add)), With({dy, f.scale}, dx), {dx.ref}, [=](const Run& r) {
      return kernels::ScaleByPlace(r.stream(), back.At(r), r.At<>(dy), r.At<>(dx.ref), t, dx.add);
    });
  });
}

namespace {

constexpr Layer kLayers[] = {
    {LayerKind::kDropout, LowerNoise},
    {LayerKind::kSpatialDropout1D, LowerNoise},
    {LayerKind::kSpatialDropout2D, LowerNoise},
    {LayerKind::kSpatialDropout3D, LowerNoise},
    {LayerKind::kAlphaDropout, LowerNoise},
    {LayerKind::kGaussianNoise, LowerNoise},
    {LayerKind::kGaussianDropout, LowerNoise},
    {LayerKind::kUnitNormalization, LowerUnitNormalization},
    {LayerKind::kRepeatVector, LowerRepeatVector},
    {LayerKind::kActivityRegularization, LowerActivity},
    {LayerKind::kNormalization, LowerAffine},
};

}  // namespace

absl::Span<const Layer> FeatureLayers() { return kLayers; }

}  // namespace cairn::cudnn
