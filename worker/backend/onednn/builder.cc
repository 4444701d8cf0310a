#include "worker/backend/onednn/builder.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/model/inner_node.h"
#include "worker/backend/fusion.h"
#include "worker/backend/onednn/layer.h"
#include "worker/backend/onednn/ops.h"

namespace cairn::onednn {

const Layer* FindLayer(LayerKind kind) {
  for (const absl::Span<const Layer> family :
       {ActivationLayers(), AttentionLayers(), DotLayers(), ElementwiseLayers(), EmbeddingLayers(), KernelLayers(),
        LayoutLayers(), MergingLayers(), NormalizationLayers(), PoolingLayers(), RecurrentLayers()}) {
    for (const Layer& layer : family) {
      if (layer.kind == kind) return &layer;
    }
  }
  return nullptr;
}

Desc MakeDesc(const dnnl::memory::dims& dims, Tag tag) { return Desc(dims, dnnl::memory::data_type::f32, tag); }

dnnl::memory::dims MakeDims(int64_t examples, const Shape& shape) {
  switch (shape.size()) {
    case 1: return {examples, shape[0]};
    case 2: return {examples, shape[1], 1, shape[0]};
    default:
      CAIRN_CHECK(shape.size() == 3, "Graph::Build knows no other shapes");
      return {examples, shape[2], shape[0], shape[1]};
  }
}

Desc PlainDesc(int64_t examples, const Shape& shape) {
  return MakeDesc(MakeDims(examples, shape), shape.size() == 1 ? Tag::nc : Tag::nhwc);
}

bool IsPlain(const Desc& desc) {
  const dnnl::memory::dims dims = desc.dims();
  if (dims.size() == 2) return desc == MakeDesc(dims, Tag::nc);
  if (desc == MakeDesc(dims, Tag::nhwc)) return true;
  return desc == MakeDesc(dims, Tag::nchw) && (dims[1] == 1 || dims[2] * dims[3] == 1);
}

void Sink::Finish(const Run& run) const {
  if (reorder) reorder(run);
  if (sum != nullptr) AddTo(tensor->data(), sum->data(), sum->numbers());
}

PlanBuilder::PlanBuilder(const Graph& graph, const LossPlan& loss_plan, int64_t examples, Mode mode,
                         const dnnl::engine& engine, bool bfloat16)
    : graph_(graph),
      loss_plan_(loss_plan),
      mode_(mode),
      bfloat16_(bfloat16),
      engine_(engine),
      plan_(std::make_unique<Plan>()) {
  plan_->examples_ = examples;
}

std::unique_ptr<Plan> PlanBuilder::Build() {
  MakeValues();
  for (const Node& node : graph_.nodes()) {
    current_layer_ = node.name;
    if (!joined_[node.id]) CompileNode(node);
  }
  Value* output = node_values_.back();
  const Shape& shape = graph_.output().output;
  plan_->outputs_ = examples() * NumElements(shape);
  if (!IsPlain(output->data->desc)) {
    Value* plain = NewValue(output->needs_gradient);
    AddOp({}, plain, MakePlain(*this, shape, output, plain));
    output = plain;
  }
  Use(output->data);
  if (training()) {
    output->gradient = New(output->data->desc);
    output->gradient_written = true;
    const int count = static_cast<int>(plan_->steps_.size());
    for (int i = count - 1; i >= 0; --i) {
      Plan::Step& step = plan_->steps_[i];
      if (!step.backward) continue;
      now_ = 2 * count - i;
      current_layer_ = step.layer;
      step.op->CompileBackward(*this);
      NoteReads(step);
    }
    PlanVariables();
  }
  plan_->output_ = *output;
  PlaceTensors();
  return std::move(plan_);
}

// ---- which values there are, and which nodes need no operation ----

void PlanBuilder::MakeValues() {
  const std::vector<Node>& nodes = graph_.nodes();
  consumers_.resize(nodes.size());
  joined_.resize(nodes.size());
  node_values_.resize(nodes.size());
  for (const Node& node : nodes) {
    for (int input : node.inputs) consumers_[input].push_back(node.id);
  }
  for (const Node& node : nodes) {
    joined_[node.id] = JoinsProducer(node);
    bool trains = false;
    for (int v : node.variables) trains |= graph_.variables()[v].kind == VariableKind::kTrainable;
    if (joined_[node.id]) {
      node_values_[node.id] = node_values_[node.inputs[0]];
      continue;
    }
    for (int input : node.inputs) {
      trains |= node_values_[input]->needs_gradient;
      ++node_values_[input]->readers;
    }
    // The last input, the key, is the value too where there are two.
    if (node.kind == LayerKind::kMultiHeadAttention) ++node_values_[node.inputs.back()]->readers;
    node_values_[node.id] = NewValue(trains);
  }
  ++node_values_.back()->readers;  // the loss
}

// Whether the node's output is the value of its input's node, either because it changes nothing or because that node's
// operation does its work.
bool PlanBuilder::JoinsProducer(const Node& node) {
  if (node.inputs.empty()) return false;
  const Node& producer = graph_.nodes()[node.inputs[0]];
  const bool alone = consumers_[producer.id].size() == 1 && producer.id != graph_.output().id;
  switch (node.kind) {
    case LayerKind::kFlatten: return true;
    case LayerKind::kDropout: return !Trains(node) || node.layer.dropout().rate() == 0;
    case LayerKind::kSpatialDropout2D: return !Trains(node) || node.layer.spatial_dropout2d().rate() == 0;
    case LayerKind::kTimeDistributed: {
      const Node inner = InnerNode(node);
      return inner.kind == LayerKind::kDropout && JoinsProducer(inner);
    }
    case LayerKind::kRescaling: return alone && producer.kind == LayerKind::kInput;
    case LayerKind::kZeroPadding2D:
      return std::all_of(consumers_[node.id].begin(), consumers_[node.id].end(),
                         [&](int id) { return TakesPads(graph_.nodes()[id].kind); }) &&
             node.id != graph_.output().id;
    case LayerKind::kActivation: {
      const Activation activation = ActivationOf(node);
      if (activation.linear()) return true;
      if (!alone) return false;
      if (producer.kind == LayerKind::kBatchNormalization) return activation.kind == v1::RELU;
      return AppliesActivation(producer.kind) && ActivationOf(producer).linear() && Fusible(activation);
    }
    default: return false;
  }
}

Activation PlanBuilder::ActivationOf(const Node& node) const {
  if (node.id == graph_.output().id && loss_plan_.fused && mode_ != Mode::kPredict) return {};
  return {node.activation, node.activation == v1::ELU ? node.alpha : node.negative_slope};
}

// Whether an operation may apply it to its own output: backward must be able to take the derivative from there.
bool PlanBuilder::Fusible(const Activation& activation) const {
  return activation.elementwise() && !(training() && activation.needs_input());
}

Value* PlanBuilder::NewValue(bool needs_gradient) {
  Value* value = plan_->values_.emplace_back(std::make_unique<Value>()).get();
  value->needs_gradient = needs_gradient;
  return value;
}

Value* PlanBuilder::NewInnerValue(bool needs_gradient) {
  Value* value = NewValue(needs_gradient);
  value->readers = 1;
  return value;
}

const Node* PlanBuilder::JoinedPadding(const Node& node) const {
  const Node& producer = graph_.nodes()[node.inputs[0]];
  return producer.kind == LayerKind::kZeroPadding2D && joined_[producer.id] ? &producer : nullptr;
}

// ---- compiling the nodes ----

void PlanBuilder::AddOp(std::vector<int> variables, const Value* out, std::unique_ptr<Op> op) {
  Plan::Step& step = plan_->steps_.emplace_back();
  step.op = std::move(op);
  step.layer = current_layer_;
  step.variables = std::move(variables);
  step.backward = out->needs_gradient;
  for (int v : step.variables) step.backward |= Trains(graph_.variables()[v]);  // moving averages too
  NoteReads(step);
  now_ = static_cast<int>(plan_->steps_.size());
}

void PlanBuilder::CompileNode(const Node& node) {
  std::vector<Value*> in;
  for (int input : node.inputs) in.push_back(FlatIfNeeded(node, input));
  Value* out = node_values_[node.id];
  FindLayer(node.kind)->compile(*this, node, in, out);
}

const Node* PlanBuilder::JoinedActivationLayer(const Node& node) const {
  if (consumers_[node.id].size() != 1) return nullptr;
  const Node& next = graph_.nodes()[consumers_[node.id][0]];
  return next.kind == LayerKind::kActivation && joined_[next.id] ? &next : nullptr;
}

Activation PlanBuilder::ActivationWithJoined(const Node& node) const {
  const Activation own = ActivationOf(node);
  const Node* const next = JoinedActivationLayer(node);
  return next != nullptr && own.linear() ? ActivationOf(*next) : own;
}

void PlanBuilder::CompileInput(const Node& node) {
  Value* out = node_values_[node.id];
  float scale = 1, offset = 0;
  int last = node.id;
  const Node* next = consumers_[last].empty() ? nullptr : &graph_.nodes()[consumers_[last][0]];
  if (next != nullptr && next->kind == LayerKind::kRescaling && joined_[next->id]) {
    scale = next->layer.rescaling().scale();
    offset = next->layer.rescaling().offset();
    last = next->id;
  }
  // oneDNN's first-layer convolutions take few channels one after another.
  bool channels_first = node.output.size() == 3 && node.output[2] < 16;
  for (int id : consumers_[last]) {
    channels_first &= graph_.nodes()[id].kind == LayerKind::kConv2D ||
                      (graph_.nodes()[id].kind == LayerKind::kZeroPadding2D && joined_[id]);
  }
  AddOp({}, out, MakeInput(*this, node, scale, offset, channels_first, out));
}

// The input's value; a plain vector where it is a flattened image and the node's operation needs the order of its
// numbers.
Value* PlanBuilder::FlatIfNeeded(const Node& node, int input) {
  Value* value = node_values_[input];
  const Shape& shape = graph_.nodes()[input].output;
  if (shape.size() != 1 || value->data->desc.dims().size() == 2) return value;
  const bool any_order = node.kind == LayerKind::kDense || node.kind == LayerKind::kDropout ||
                         node.kind == LayerKind::kRescaling || node.kind == LayerKind::kReshape ||
                         (node.kind == LayerKind::kActivation && node.activation != v1::SOFTMAX);
  if (any_order) return value;
  Value* flat = NewInnerValue(value->needs_gradient);
  AddOp({}, flat, MakePlain(*this, shape, value, flat));
  return flat;
}

}  // namespace cairn::onednn
