// SimpleRNN, LSTM, GRU, ConvLSTM1D .. ConvLSTM3D, Bidirectional, Masking; TimeDistributed and SpectralNormalization.
#include "common/model/recurrent.h"

#include <memory>
#include <vector>

#include "common/model/inner_node.h"
#include "worker/backend/cudnn/builder.h"
#include "worker/backend/cudnn/kernels/recurrent.h"
#include "worker/backend/cudnn/layer.h"
#include "worker/backend/cudnn/recurrence.h"

namespace cairn::cudnn {
namespace {

// The output of one or two recurrences, made from their states.
struct Outputs {
  kernels::RecurrentOutputs fixed;
  Ref h[2], c[2], mask;  // c: with return_cell

  kernels::RecurrentOutputs At(const Run& r) const {
    kernels::RecurrentOutputs o = fixed;
    o.mask = r.At<float>(mask);
    for (int i = 0; i < 2; ++i) o.of[i].h = r.At<float>(h[i]), o.of[i].c = r.At<float>(c[i]);
    return o;
  }
  std::vector<Ref> Reads() const { return {h[0], h[1], c[0], c[1], mask}; }
};

kernels::Merge MergeOf(RecurrentMerge merge) {
  switch (merge) {
    case RecurrentMerge::kOne: return kernels::Merge::kOne;
    case RecurrentMerge::kConcat: return kernels::Merge::kConcat;
    case RecurrentMerge::kSum: return kernels::Merge::kSum;
    case RecurrentMerge::kMultiply: return kernels::Merge::kMultiply;
    case RecurrentMerge::kAverage: break;
  }
  return kernels::Merge::kAverage;
}

// The recurrences of a layer, and the values of their first states.
struct Recurrences {
  struct Part {
    std::shared_ptr<RecurrenceLowering> lowering;
    Value *h = nullptr, *c = nullptr;
  };
  std::vector<Part> parts;
  Outputs outputs;

  Recurrences(Builder& b, const Node& node) {
    const RecurrentLayer layer = RecurrentLayerOf(b.graph(), node);
    outputs.mask = b.handover().StepMaskOf(node.inputs[0]);
    outputs.fixed.examples = b.examples();
    outputs.fixed.steps = b.ShapeOf(node)[0];
    outputs.fixed.positions = layer.recurrences[0].windows.positions();
    outputs.fixed.sequences = layer.recurrences[0].return_sequences;
    outputs.fixed.merge = MergeOf(layer.merge);
    for (size_t i = 0; i < layer.recurrences.size(); ++i) {
      const Recurrence& r = layer.recurrences[i];
      Part& part = parts.emplace_back();
      if (r.state_input >= 0) part.h = b.In(node, static_cast<size_t>(r.state_input));
      if (r.state_input >= 0 && r.cell == RecurrentCell::kLstm) {
        part.c = b.In(node, static_cast<size_t>(r.state_input) + 1);
      }
      part.lowering = std::make_shared<RecurrenceLowering>(b, node, r, outputs.mask);
      part.lowering->Forward(*b.In(node), part.h, part.c);
      outputs.h[i] = part.lowering->states();
      if (r.return_cell) outputs.c[i] = part.lowering->cells();
      outputs.fixed.of[i] = {nullptr, nullptr, r.units, r.go_backwards, r.turned, r.zero_masked};
    }
  }

  // The gradient of the states of recurrence `of.which` that the outputs have.
  Ref EmitStateGradient(Builder& b, const kernels::StatesOf& of, const Value& out) const {
    const int64_t places = outputs.fixed.sequences ? outputs.fixed.steps : 1;
    const Recurrence& r = parts[static_cast<size_t>(of.which)].lowering->recurrence();
    const Ref dy = out.gradient, d = b.NewNumbers(places * b.examples() * r.state_numbers(), DType::kFloat32);
    std::vector<Ref> reads = outputs.Reads();
    reads.push_back(dy);
    b.Emit("outputs backward", std::move(reads), {d}, [=, outputs = outputs, type = out.type](const Run& run) {
      return kernels::SplitOutputGradient(run.stream(), outputs.At(run), of, run.At<>(dy), type, run.At<float>(d));
    });
    return d;
  }
};

void LowerRecurrent(Builder& b, const Node& node) {
  Value *const in = b.In(node), *const out = b.Out(node);
  const DType type = out->type;
  if (type != b.type()) {
    return b.Fail(absl::UnimplementedError(
        "on a GPU a recurrent layer that gives ids to an Embedding is computed in FLOAT32 alone; use that, or "
        "--device=cpu"));
  }
  const Recurrences all(b, node);
  const Ref y = b.NewLike(*out);
  out->data = y;
  b.Emit("outputs", all.outputs.Reads(), {y}, [=, outputs = all.outputs](const Run& r) {
    return kernels::JoinOutputs(r.stream(), outputs.At(r), r.At<>(y), type);
  });
  if (!out->needs_gradient) return;
  b.Backward([=, &b] {
    for (int i = 0; i < static_cast<int>(all.parts.size()); ++i) {
      const Recurrences::Part& part = all.parts[static_cast<size_t>(i)];
      RecurrenceLowering::StateGradients d;
      d.h = all.EmitStateGradient(b, {i, false}, *out);
      if (part.lowering->recurrence().return_cell) d.c = all.EmitStateGradient(b, {i, true}, *out);
      part.lowering->Backward(d, in, part.h, part.c);
    }
  });
}

void LowerMasking(Builder& b, const Node& node) {
  Value *const in = b.In(node), *const out = b.Out(node);
  const DType type = out->type;
  const int64_t columns = node.output[1], rows = b.examples() * node.output[0];
  const float value = node.layer.masking().mask_value();
  const Ref x = b.Read(*in, type), y = b.NewLike(*out), mask = b.NewNumbers(rows, DType::kFloat32);
  out->data = y;
  b.handover().SetStepMask(node, mask);
  b.Emit("mask steps", {x}, {y, mask}, [=](const Run& r) {
    return kernels::MaskRows(r.stream(), rows, columns, value, r.At<>(x), r.At<float>(mask), r.At<>(y), type);
  });
  if (!in->needs_gradient) return;
  b.Backward([=, &b] {
    const Builder::Sink dx = b.GradientSink(in);
    const Ref dy = out->gradient;
    std::vector<Ref> reads = {mask, dy};
    if (dx.add) reads.push_back(dx.ref);
    b.Emit("mask steps backward", std::move(reads), {dx.ref}, [=](const Run& r) {
      return kernels::MultiplyByMask(r.stream(), rows, columns, r.At<float>(mask), r.At<>(dy), r.At<>(dx.ref), type,
                                     dx.add);
    });
  });
}

// The layer within computes all steps at once; that of a spectral normalization is computed as it is.
void LowerDistributed(Builder& b, const Node& node) {
  if (FoldsSteps(node)) return b.LowerWithin(node);
  const Node& inner = b.handover().Keep(InnerNode(node));
  FindLayer(inner.kind)->lower(b, inner);
}

constexpr Layer kLayers[] = {
    {LayerKind::kTimeDistributed, LowerDistributed},
    {LayerKind::kSpectralNormalization, LowerDistributed},
    {LayerKind::kSimpleRNN, LowerRecurrent},
    {LayerKind::kLSTM, LowerRecurrent},
    {LayerKind::kGRU, LowerRecurrent},
    {LayerKind::kConvLSTM1D, LowerRecurrent},
    {LayerKind::kConvLSTM2D, LowerRecurrent},
    {LayerKind::kConvLSTM3D, LowerRecurrent},
    {LayerKind::kBidirectional, LowerRecurrent},
    {LayerKind::kMasking, LowerMasking},
};

}  // namespace

absl::Span<const Layer> RecurrentLayers() { return kLayers; }

}  // namespace cairn::cudnn
