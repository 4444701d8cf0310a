// SimpleRNN, LSTM, GRU, Bidirectional, Masking and TimeDistributed.
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
  Ref h[2], mask;

  kernels::RecurrentOutputs At(const Run& r) const {
    kernels::RecurrentOutputs o = fixed;
    o.mask = r.At<float>(mask);
    for (int i = 0; i < 2; ++i) o.of[i].h = r.At<float>(h[i]);
    return o;
  }
  std::vector<Ref> Reads() const { return {h[0], h[1], mask}; }
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

void LowerRecurrent(Builder& b, const Node& node) {
  Value *const out = b.Out(node), *const in = b.In(node);
  const RecurrentLayer layer = RecurrentLayerOf(b.graph(), node);
  const Ref mask = b.handover().StepMaskOf(node.inputs[0]);
  const DType type = out->type;
  if (type != b.type()) {
    return b.Fail(absl::UnimplementedError(
        "on a GPU a recurrent layer that gives ids to an Embedding is computed in FLOAT32 alone; use that, or "
        "--device=cpu"));
  }
  Outputs outputs;
  outputs.mask = mask;
  outputs.fixed.examples = b.examples();
  outputs.fixed.steps = b.ShapeOf(node)[0];
  outputs.fixed.sequences = layer.recurrences[0].return_sequences;
  outputs.fixed.merge = MergeOf(layer.merge);
  std::vector<std::shared_ptr<RecurrenceLowering>> parts;
  struct States {
    Value *h = nullptr, *c = nullptr;
  };
  std::vector<States> states;
  for (size_t i = 0; i < layer.recurrences.size(); ++i) {
    const Recurrence& r = layer.recurrences[i];
    States& s = states.emplace_back();
    if (r.state_input >= 0) s.h = b.In(node, static_cast<size_t>(r.state_input));
    if (r.state_input >= 0 && r.cell == RecurrentCell::kLstm) s.c = b.In(node, static_cast<size_t>(r.state_input) + 1);
    parts.push_back(std::make_shared<RecurrenceLowering>(b, node, r, mask));
    parts.back()->Forward(*in, s.h, s.c);
    outputs.h[i] = parts.back()->states();
    outputs.fixed.of[i] = {nullptr, r.units, r.go_backwards, r.turned, r.zero_masked};
  }
  const Ref y = b.NewLike(*out);
  out->data = y;
  b.Emit("outputs", outputs.Reads(), {y},
         [=](const Run& r) { return kernels::JoinOutputs(r.stream(), outputs.At(r), r.At<>(y), type); });
  if (!out->needs_gradient) return;
  b.Backward([=, &b] {
    const int64_t places = outputs.fixed.sequences ? outputs.fixed.steps : 1;
    for (size_t i = 0; i < parts.size(); ++i) {
      const Ref d = b.NewNumbers(places * b.examples() * parts[i]->recurrence().units, DType::kFloat32);
      std::vector<Ref> reads = outputs.Reads();
      const Ref dy = out->gradient;
      reads.push_back(dy);
      b.Emit("outputs backward", std::move(reads), {d}, [=](const Run& r) {
        return kernels::SplitOutputGradient(r.stream(), outputs.At(r), static_cast<int>(i), r.At<>(dy), type,
                                            r.At<float>(d));
      });
      parts[i]->Backward(d, in, states[i].h, states[i].c);
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

// The layer within computes all steps at once.
void LowerDistributed(Builder& b, const Node& node) {
  if (FoldsSteps(node)) return b.LowerWithin(node);
  const Node& inner = b.handover().Keep(InnerNode(node));
  FindLayer(inner.kind)->lower(b, inner);
}

constexpr Layer kLayers[] = {
    {LayerKind::kTimeDistributed, LowerDistributed},
    {LayerKind::kSimpleRNN, LowerRecurrent},
    {LayerKind::kLSTM, LowerRecurrent},
    {LayerKind::kGRU, LowerRecurrent},
    {LayerKind::kBidirectional, LowerRecurrent},
    {LayerKind::kMasking, LowerMasking},
};

}  // namespace

absl::Span<const Layer> RecurrentLayers() { return kLayers; }

}  // namespace cairn::cudnn
