// The layers that have a launch of their own each.
#include "absl/strings/str_cat.h"
#include "worker/backend/cudnn/builder.h"
#include "worker/backend/cudnn/kernels/recurrent.h"
#include "worker/backend/cudnn/launches.h"
#include "worker/backend/cudnn/layer.h"
#include "worker/backend/limits.h"

namespace cairn::cudnn {
namespace {

// {y} or, where it is added to, also read.
std::vector<Ref> With(std::vector<Ref> reads, bool add, const Ref& sum) {
  if (add) reads.push_back(sum);
  return reads;
}

const char* Adds(bool add) { return add ? " add" : ""; }

// The batch's own numbers where they will do; else a copy, with the Rescaling behind it.
void LowerInput(Builder& builder, const Node& node) {
  Value* const out = builder.ValueAt(node.id);
  const Ref inputs{Ref::kInputs};
  float scale = 1, offset = 0;
  const Node* const next = builder.groups().OnlyReader(node);
  if (next != nullptr && next->kind == LayerKind::kRescaling && builder.groups().Joined(*next)) {
    scale = next->layer.rescaling().scale();
    offset = next->layer.rescaling().offset();
  }
  const bool bytes = builder.options().inputs == Element::kByte;
  out->data = inputs;
  if (!bytes && scale == 1 && offset == 0 && out->type == DType::kFloat32) return;
  const Ref y = builder.NewLike(*out);
  const int64_t n = out->numbers;
  const DType t = out->type;
  out->data = y;
  if (bytes) {
    return builder.Emit(
        absl::StrCat("copy u8 ", Name(t), " * ", scale, " + ", offset), {inputs}, {y}, [=](const Run& r) {
          return kernels::AffineOfBytes(r.stream(), n, scale, offset, r.At<uint8_t>(inputs), r.At<>(y), t);
        });
  }
  builder.Emit(absl::StrCat("copy f32 ", Name(t), " * ", scale, " + ", offset), {inputs}, {y}, [=](const Run& r) {
    return kernels::Affine(r.stream(), n, scale, offset, r.At<>(inputs), DType::kFloat32, r.At<>(y), t, false);
  });
}

void LowerRescaling(Builder& builder, const Node& node) {
  Value *const in = builder.In(node), *const out = builder.Out(node);
  const float scale = node.layer.rescaling().scale(), offset = node.layer.rescaling().offset();
  const DType t = out->type;
  const int64_t n = out->numbers;
  const Ref x = builder.Read(*in, t), y = builder.NewLike(*out);
  out->data = y;
  builder.Emit(absl::StrCat("copy * ", scale, " + ", offset), {x}, {y}, [=](const Run& r) {
    return kernels::Affine(r.stream(), n, scale, offset, r.At<>(x), t, r.At<>(y), t, false);
  });
  if (!in->needs_gradient) return;
  builder.Backward([=, &builder] {
    const Ref dy = out->gradient;
    const Builder::Sink dx = builder.GradientSink(in);
    builder.Emit(absl::StrCat("copy * ", scale, Adds(dx.add)), With({dy}, dx.add, dx.ref), {dx.ref}, [=](const Run& r) {
      return kernels::Affine(r.stream(), n, scale, 0, r.At<>(dy), t, r.At<>(dx.ref), t, dx.add);
    });
  });
}

void LowerActivation(Builder& builder, const Node& node) {
  Value *const in = builder.In(node), *const out = builder.Out(node);
  const Activation f = builder.groups().ActivationOf(node);
  const DType t = out->type;
  const int64_t n = out->numbers, columns = node.output.back();
  const Ref x = builder.Read(*in, t), y = builder.NewLike(*out);
  out->data = y;
  if (f.softmax()) {
    builder.Emit("softmax", {x}, {y}, [=](const Run& r) {
      return kernels::Softmax(r.stream(), n / columns, columns, 0, r.At<>(x), r.At<>(y), t);
    });
  } else {
    builder.Emit(v1::Activation_Name(f.kind), {x}, {y}, [=](const Run& r) {
      return kernels::BiasActivation(r.stream(), f.act(), f.alpha, 1, n, r.At<>(x), nullptr, r.At<>(y), t);
    });
  }
  if (!in->needs_gradient) return;
  builder.Backward([=, &builder] {
    const Ref dy = out->gradient, before = f.needs_input() ? x : Ref{}, after = f.needs_input() ? Ref{} : y;
    const Builder::Sink dx = builder.GradientSink(in);
    if (f.softmax()) {
      return builder.Emit(absl::StrCat("softmax backward", Adds(dx.add)), With({y, dy}, dx.add, dx.ref), {dx.ref},
                          [=](const Run& r) {
                            return kernels::SoftmaxBackward(r.stream(), n / columns, columns, r.At<>(y), r.At<>(dy),
                                                            r.At<>(dx.ref), t, dx.add);
                          });
    }
    builder.Emit(absl::StrCat(v1::Activation_Name(f.kind), " backward", Adds(dx.add)),
                 With({before, after, dy}, dx.add, dx.ref), {dx.ref}, [=](const Run& r) {
                   return kernels::ActivationBackward(r.stream(), f.act(), f.alpha, n, r.At<>(before), r.At<>(after),
                                                      r.At<>(dy), r.At<>(dx.ref), t, dx.add);
                 });
  });
}

void LowerPooling(Builder& builder, const Node& node) {
  Value *const in = builder.In(node), *const out = builder.Out(node);
  const kernels::Window w = builder.groups().WindowOf(node);
  const bool max = node.kind == LayerKind::kMaxPooling2D || node.kind == LayerKind::kMaxPooling1D;
  const bool small = w.kernel[0] * w.kernel[1] <= kPoolingPlacesMax;
  const Node& producer = builder.NodeAt(node.inputs[0]);
  const bool zeros = producer.kind == LayerKind::kZeroPadding2D && builder.groups().Joined(producer);
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

// Over the steps that count.
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
  if (const Ref mask = builder.StepMaskOf(node.inputs[0])) return LowerMaskedAverage(builder, node, mask);
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

void LowerZeroPadding(Builder& builder, const Node& node) {
  Value *const in = builder.In(node), *const out = builder.Out(node);
  const kernels::Window w = builder.groups().WindowOf(node);
  const DType t = out->type;
  const Ref x = builder.Read(*in, t), y = builder.NewLike(*out);
  out->data = y;
  builder.Emit("pad", {x}, {y}, [=](const Run& r) { return kernels::Pad(r.stream(), w, r.At<>(x), r.At<>(y), t); });
  if (!in->needs_gradient) return;
  builder.Backward([=, &builder] {
    const Ref dy = out->gradient;
    const Builder::Sink dx = builder.GradientSink(in);
    builder.Emit(absl::StrCat("crop", Adds(dx.add)), With({dy}, dx.add, dx.ref), {dx.ref},
                 [=](const Run& r) { return kernels::Crop(r.stream(), w, r.At<>(dy), r.At<>(dx.ref), t, dx.add); });
  });
}

void LowerUpSampling(Builder& builder, const Node& node) {
  Value *const in = builder.In(node), *const out = builder.Out(node);
  const kernels::Window w = builder.groups().WindowOf(node);
  const bool bilinear = node.layer.up_sampling2d().interpolation() == v1::UpSampling2D::BILINEAR;
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

void LowerPermute(Builder& builder, const Node& node) {
  Value *const in = builder.In(node), *const out = builder.Out(node);
  const Permutation p = PermutationOf(builder.examples(), builder.ShapeOf(node), node.layer.permute().dims());
  const DType t = out->type;
  const Ref x = builder.Read(*in, t), y = builder.NewLike(*out);
  out->data = y;
  EmitPermute(builder, p.forward, x, y, t, false);
  if (!in->needs_gradient) return;
  builder.Backward([=, &builder] {
    const Builder::Sink dx = builder.GradientSink(in);
    EmitPermute(builder, p.backward, out->gradient, dx.ref, t, dx.add);
  });
}

// Backward draws the same mask again.
void LowerDropout(Builder& builder, const Node& node) {
  Value *const in = builder.In(node), *const out = builder.Out(node);
  const bool spatial = node.kind == LayerKind::kSpatialDropout2D;
  const float rate = spatial ? node.layer.spatial_dropout2d().rate() : node.layer.dropout().rate();
  const DType t = out->type;
  const int id = node.id;
  const int64_t n = out->numbers, channels = node.output.back(), images = builder.examples(),
                positions = n / channels / images;
  const Ref key{Ref::kKey};
  const auto emit = [=, &builder](const char* text, const Ref& from, const Ref& to, bool add) {
    builder.Emit(absl::StrCat(spatial ? "spatial dropout " : "dropout ", rate, text, Adds(add)),
                 With({from, key}, add, to), {to}, [=](const Run& r) {
                   const kernels::StepKey* step = r.At<kernels::StepKey>(key);
                   return spatial ? kernels::SpatialDropout(r.stream(), images, positions, channels, step, id, rate,
                                                            r.At<>(from), r.At<>(to), t, add)
                                  : kernels::Dropout(r.stream(), n, step, id, rate, r.At<>(from), r.At<>(to), t, add);
                 });
  };
  const Ref x = builder.Read(*in, t), y = builder.NewLike(*out);
  out->data = y;
  emit("", x, y, false);
  if (!in->needs_gradient) return;
  builder.Backward([=, &builder] {
    const Builder::Sink dx = builder.GradientSink(in);
    emit(" backward", out->gradient, dx.ref, dx.add);
  });
}

void LowerEmbedding(Builder& builder, const Node& node) {
  Value *const in = builder.In(node), *const out = builder.Out(node);
  const DType t = out->type;
  const bool frozen = builder.Frozen(node);
  const int64_t count = in->numbers, rows = node.layer.embedding().input_dim(), width = node.output.back();
  const Variable* embeddings = builder.Find(node, "embeddings");
  if (in->data.place != Ref::kInputs) {
    return builder.Fail(
        absl::UnimplementedError("on a GPU an Embedding takes the model's inputs themselves, which are checked on the "
                                 "host before; use --device=cpu"));
  }
  const Ref ids = in->data, table = builder.ValueOf(embeddings), y = builder.NewLike(*out);
  out->data = y;
  builder.Emit(absl::StrCat("embedding ", rows, "x", width), {ids, table}, {y}, [=](const Run& r) {
    return kernels::Embedding(r.stream(), count, width, r.At<float>(ids), r.At<float>(table), r.At<>(y), t);
  });
  if (node.mask == node.id) {
    const Ref mask = builder.NewNumbers(count, DType::kFloat32);
    builder.SetStepMask(node, mask);
    builder.Emit("mask of ids", {ids}, {mask}, [=](const Run& r) {
      return kernels::MaskOfIds(r.stream(), count, r.At<float>(ids), r.At<float>(mask));
    });
  }
  if (!builder.training() || frozen) return;
  builder.Backward([=, &builder] {
    const Ref dy = out->gradient, scratch = builder.Scratch(kernels::EmbeddingScratch(count, rows)),
              gradient = builder.GradientOf(embeddings);
    builder.Emit(absl::StrCat("embedding backward ", rows, "x", width), {ids, dy}, {gradient, scratch},
                 [=](const Run& r) {
                   return kernels::EmbeddingBackward(r.stream(), count, rows, width, r.At<float>(ids), r.At<>(dy),
                                                     r.At<float>(gradient), r.At<float>(scratch), t);
                 });
  });
}

// Names for what stands there: the node has joined the one before it.
void LowerNothing(Builder&, const Node&) {}

// As the padding the other way round: from images of w.out, the input, to those of w.in.
void LowerCropping(Builder& b, const Node& node) {
  Value *const in = b.In(node), *const out = b.Out(node);
  const DType t = out->type;
  kernels::Window w;
  w.examples = b.examples();
  for (size_t i = 0; i < 3; ++i) {
    w.in[i] = node.output[i];
    w.out[i] = b.ShapeOf(node)[i];
  }
  for (int i = 0; i < 2; ++i) w.pad[i] = node.window.pad_begin[i];
  const Ref x = b.Read(*in, t), y = b.NewLike(*out);
  out->data = y;
  b.Emit("crop", {x}, {y}, [=](const Run& r) { return kernels::Crop(r.stream(), w, r.At<>(x), r.At<>(y), t, false); });
  if (!in->needs_gradient) return;
  b.Backward([=, &b] {
    const Ref dy = out->gradient;
    const Builder::Sink dx = b.GradientSink(in);
    const Ref padded = dx.add ? b.NewLike(*in) : dx.ref;
    b.Emit("pad", {dy}, {padded},
           [=](const Run& r) { return kernels::Pad(r.stream(), w, r.At<>(dy), r.At<>(padded), t); });
    if (dx.add) EmitConvert(b, padded, t, dx.ref, t, in->numbers, true);
  });
}

constexpr Layer kLayers[] = {
    {LayerKind::kInput, LowerInput},
    {LayerKind::kRescaling, LowerRescaling},
    {LayerKind::kActivation, LowerActivation},
    {LayerKind::kEmbedding, LowerEmbedding},
    {LayerKind::kMaxPooling2D, LowerPooling},
    {LayerKind::kAveragePooling2D, LowerPooling},
    {LayerKind::kMaxPooling1D, LowerPooling},
    {LayerKind::kAveragePooling1D, LowerPooling},
    {LayerKind::kGlobalAveragePooling2D, LowerGlobalAverage},
    {LayerKind::kGlobalAveragePooling1D, LowerGlobalAverage},
    {LayerKind::kUpSampling2D, LowerUpSampling},
    {LayerKind::kCropping2D, LowerCropping},
    {LayerKind::kZeroPadding2D, LowerZeroPadding},
    {LayerKind::kPermute, LowerPermute},
    {LayerKind::kDropout, LowerDropout},
    {LayerKind::kSpatialDropout2D, LowerDropout},
    {LayerKind::kFlatten, LowerNothing},
    {LayerKind::kReshape, LowerNothing},
};

}  // namespace

absl::Span<const Layer> OtherLayers() { return kLayers; }

}  // namespace cairn::cudnn
