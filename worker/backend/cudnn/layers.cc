// The layers that consist of one launch each.
#include "absl/strings/str_cat.h"
#include "common/model/model_inputs.h"
#include "worker/backend/affine.h"
#include "worker/backend/cudnn/builder.h"
#include "worker/backend/cudnn/ids.h"
#include "worker/backend/cudnn/kernels/recurrent.h"
#include "worker/backend/cudnn/launches.h"
#include "worker/backend/cudnn/layer.h"

namespace cairn::cudnn {
namespace {

// What a launch reads: `reads`, and also the output if it adds to it.
std::vector<Ref> With(std::vector<Ref> reads, bool add, const Ref& sum) {
  if (add) reads.push_back(sum);
  return reads;
}

const char* Adds(bool add) { return add ? " add" : ""; }

// The node's own numbers in float32, if the model has several inputs.
Ref OwnInput(Builder& builder, const Node& node) {
  const int64_t examples = builder.examples(), all = ModelInputSize(builder.graph()), begin = node.input_offset,
                own = NumElements(node.output);
  Ref& inputs = builder.handover().inputs();
  if (!inputs) {
    inputs = Ref{Ref::kInputs};
    if (builder.options().inputs == Element::kByte) {
      const Ref bytes = inputs, numbers = inputs = builder.NewNumbers(examples * all, DType::kFloat32);
      builder.Emit("copy u8 f32", {bytes}, {numbers}, [=](const Run& r) {
        return kernels::AffineOfBytes(r.stream(), examples * all, 1, 0, r.At<uint8_t>(bytes), r.At<>(numbers),
                                      DType::kFloat32);
      });
    }
  }
  const Ref from = inputs, to = builder.NewNumbers(examples * own, DType::kFloat32);
  builder.Emit(absl::StrCat("columns from ", begin), {from}, {to}, [=](const Run& r) {
    return kernels::CopyColumns(r.stream(), examples, own, r.At<>(from), all, begin, r.At<>(to), own, 0,
                                DType::kFloat32, false);
  });
  return to;
}

// Uses the batch's numbers themselves if possible; else emits a copy, with the Rescaling that joined it.
void LowerInput(Builder& builder, const Node& node) {
  Value* const out = builder.ValueAt(node.id);
  const bool several = builder.graph().inputs().size() > 1;
  const Ref inputs = several ? OwnInput(builder, node) : Ref{Ref::kInputs};
  float scale = 1, offset = 0;
  const Node* const next = builder.groups().OnlyReader(node);
  if (next != nullptr && next->kind == LayerKind::kRescaling && builder.groups().Joined(*next)) {
    scale = next->layer.rescaling().scale();
    offset = next->layer.rescaling().offset();
  }
  const bool bytes = !several && builder.options().inputs == Element::kByte;
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
  if (IsAffine(node)) return LowerAffine(builder, node);
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

// GLU halves the rows.
void LowerGated(Builder& b, const Node& node) {
  Value *const in = b.In(node), *const out = b.Out(node);
  const DType t = out->type;
  const int64_t half = node.output.back(), rows = out->numbers / half;
  const Ref x = b.Read(*in, t), y = b.NewLike(*out);
  out->data = y;
  b.Emit("gate", {x}, {y},
         [=](const Run& r) { return kernels::GatedRows(r.stream(), rows, half, r.At<>(x), r.At<>(y), t); });
  if (!in->needs_gradient) return;
  b.Backward([=, &b] {
    const Ref dy = out->gradient;
    const Builder::Sink dx = b.GradientSink(in);
    b.Emit(absl::StrCat("gate backward", Adds(dx.add)), With({x, dy}, dx.add, dx.ref), {dx.ref}, [=](const Run& r) {
      return kernels::GatedRowsBackward(r.stream(), rows, half, r.At<>(x), r.At<>(dy), r.At<>(dx.ref), t, dx.add);
    });
  });
}

void LowerActivation(Builder& builder, const Node& node) {
  if (node.activation == v1::GLU) return LowerGated(builder, node);
  Value *const in = builder.In(node), *const out = builder.Out(node);
  const Activation f = builder.groups().ActivationOf(node);
  const DType t = out->type;
  const int64_t n = out->numbers, columns = node.output.back();
  const Ref x = builder.Read(*in, t), y = builder.NewLike(*out);
  out->data = y;
  if (f.of_rows()) {
    EmitRows(builder, f, {n / columns, columns, t}, x, y);
  } else {
    builder.Emit(v1::Activation_Name(f.kind), {x}, {y}, [=](const Run& r) {
      return kernels::BiasActivation(r.stream(), f.act(), f.alpha, 1, n, r.At<>(x), nullptr, r.At<>(y), t);
    });
  }
  if (!in->needs_gradient) return;
  builder.Backward([=, &builder] {
    const Ref dy = out->gradient, before = f.needs_input() ? x : Ref{}, after = f.needs_input() ? Ref{} : y;
    const Builder::Sink dx = builder.GradientSink(in);
    if (f.of_rows()) return EmitRowsBackward(builder, f, {n / columns, columns, t}, y, dy, dx);
    builder.Emit(absl::StrCat(v1::Activation_Name(f.kind), " backward", Adds(dx.add)),
                 With({before, after, dy}, dx.add, dx.ref), {dx.ref}, [=](const Run& r) {
                   return kernels::ActivationBackward(r.stream(), f.act(), f.alpha, n, r.At<>(before), r.At<>(after),
                                                      r.At<>(dy), r.At<>(dx.ref), t, dx.add);
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

// Whether the node, or the layer around it, takes the numbers of an input of the model.
bool TakesInputs(Builder& builder, const Node& node) {
  Builder::Outside* const outside = builder.outside();
  return outside == nullptr ? IdInput(builder.graph(), node) != nullptr
                            : TakesInputs(*outside->builder, *outside->node);
}

// Whole numbers up to this one are exact in bfloat16.
constexpr int64_t kExactIds = 256;

void LowerEmbedding(Builder& builder, const Node& node) {
  Value *const in = builder.In(node), *const out = builder.Out(node);
  const DType t = out->type;
  const bool frozen = builder.Frozen(node);
  const int64_t count = in->numbers, rows = node.layer.embedding().input_dim(), width = node.output.back();
  const Variable* embeddings = builder.Find(node, "embeddings");
  if (!TakesInputs(builder, node) && in->type != DType::kFloat32 && rows > kExactIds) {
    return builder.Fail(absl::UnimplementedError(
        absl::StrCat("on a GPU an Embedding of more than ", kExactIds,
                     " ids takes such as layers with variables compute in FLOAT32 alone; use that, or --device=cpu")));
  }
  // The model's inputs are checked on the host before (ids.h).
  const Ref ids = TakesInputs(builder, node) ? in->data : CheckedIds(builder, node);
  const Ref table = builder.ValueOf(embeddings), y = builder.NewLike(*out);
  out->data = y;
  builder.Emit(absl::StrCat("embedding ", rows, "x", width), {ids, table}, {y}, [=](const Run& r) {
    return kernels::Embedding(r.stream(), count, width, r.At<float>(ids), r.At<float>(table), r.At<>(y), t);
  });
  if (node.mask == node.id) {
    const Ref mask = builder.NewNumbers(count, DType::kFloat32);
    builder.handover().SetStepMask(node, mask);
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

// Emits nothing: the node has joined the one before it and only renames its output.
void LowerNothing(Builder&, const Node&) {}

constexpr Layer kLayers[] = {
    {LayerKind::kInput, LowerInput},           {LayerKind::kRescaling, LowerRescaling},
    {LayerKind::kActivation, LowerActivation}, {LayerKind::kEmbedding, LowerEmbedding},
    {LayerKind::kPermute, LowerPermute},       {LayerKind::kFlatten, LowerNothing},
    {LayerKind::kReshape, LowerNothing},
};

}  // namespace

absl::Span<const Layer> OtherLayers() { return kLayers; }

}  // namespace cairn::cudnn
