#include "worker/backend/onednn/builder.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "worker/backend/affine.h"
#include "worker/backend/fusion.h"
#include "worker/backend/onednn/features.h"
#include "worker/backend/onednn/ops.h"

namespace cairn::onednn {

const Layer* FindLayer(LayerKind kind) {
  for (const absl::Span<const Layer> family :
       {ActivationLayers(), ActivityLayers(),        AffineLayers(),   AttentionLayers(),     DistributedLayers(),
        DotLayers(),        ElementwiseLayers(),     EinsumLayers(),   EmbeddingLayers(),     CategoryLayers(),
        KernelLayers(),     LayoutLayers(),          MergingLayers(),  NormalizationLayers(), PoolingLayers(),
        RecurrentLayers(),  RepeatLayers(),          ResampleLayers(), RowLayers(),           ScoreAttentionLayers(),
        TensorLayers(),     GroupedAttentionLayers()}) {
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
    case 3: return {examples, shape[2], shape[0], shape[1]};
    default: {
      CAIRN_CHECK(shape.size() >= 4, "Graph::Build knows no other shapes");
      const int64_t channels = shape.back(), width = shape[shape.size() - 2];
      return {examples, channels, NumElements(shape) / (channels * width), width};
    }
  }
}

dnnl::memory::dims VolumeDims(int64_t examples, const Shape& shape) {
  if (shape.size() != 4) return MakeDims(examples, shape);
  return {examples, shape[3], shape[0], shape[1], shape[2]};
}

Desc VolumeOf(const Desc& image, const Shape& shape) {
  return shape.size() == 4 ? image.reshape(VolumeDims(image.dims()[0], shape)) : image;
}

Desc ImageOf(const Desc& volume) {
  const dnnl::memory::dims dims = volume.dims();
  return dims.size() == 5 ? volume.reshape({dims[0], dims[1], dims[2] * dims[3], dims[4]}) : volume;
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
      mode_(mode),
      bfloat16_(bfloat16),
      engine_(engine),
      groups_(graph, loss_plan, mode),
      plan_(std::make_unique<Plan>()),
      variables_(graph) {
  plan_->examples_ = examples;
}

std::unique_ptr<Plan> PlanBuilder::Build() {
  MakeValues();
  for (const Node& node : graph_.nodes()) {
    current_layer_ = node.name;
    current_node_ = node.id;
    if (!groups_.Joined(node)) CompileNode(node);
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
  plan_->output_mask_ = StepMaskOf(graph_.output().id);
  if (plan_->output_mask_ != nullptr) Use(plan_->output_mask_);
  if (training()) {
    output->gradient = New(output->data->desc);
    output->gradient_written = true;
    const int count = static_cast<int>(plan_->steps_.size());
    for (int i = count - 1; i >= 0; --i) {
      Plan::Step& step = plan_->steps_[i];
      if (!step.backward) continue;
      now_ = 2 * count - i;
      current_layer_ = step.layer;
      current_node_ = step.node;
      step.op->CompileBackward(*this);
      variables_.Take(step);
      for (const Plan::GradientPart& part : step.parts) Use(part.part);
    }
    variables_.SetRanges(plan_->steps_);
  }
  plan_->output_ = *output;
  if (differentiates_input_) plan_->input_gradient_ = node_values_.front()->gradient;
  plan_->tensors_.Place();
  return std::move(plan_);
}

void PlanBuilder::MakeValues() {
  node_values_.resize(graph_.nodes().size());
  for (const Node& node : graph_.nodes()) {
    bool trains = false;
    for (int v : node.variables) trains |= graph_.variables()[v].kind == VariableKind::kTrainable;
    if (groups_.Joined(node)) {
      node_values_[node.id] = node_values_[node.inputs[0]];
      continue;
    }
    for (int input : node.inputs) {
      trains |= node_values_[input]->needs_gradient;
      ++node_values_[input]->readers;
    }
    // The last input is both the key and the value if there are two inputs.
    const bool attends = node.kind == LayerKind::kMultiHeadAttention || node.kind == LayerKind::kAttention ||
                         node.kind == LayerKind::kAdditiveAttention || node.kind == LayerKind::kGroupQueryAttention;
    if (attends) ++node_values_[node.inputs.back()]->readers;
    node_values_[node.id] = NewValue(trains || (differentiates_input_ && node.kind == LayerKind::kInput));
  }
  ++node_values_.back()->readers;  // the loss
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

// ---- compiling the nodes ----

void PlanBuilder::AddOp(std::vector<int> variables, const Value* out, std::unique_ptr<Op> op) {
  Plan::Step& step = plan_->steps_.emplace_back();
  step.op = std::move(op);
  step.layer = current_layer_;
  step.node = current_node_;
  step.backward = out->needs_gradient;
  for (int v : variables) step.backward |= Trains(graph_.variables()[v]);  // moving averages too
  // Shared variables are complete after the backward pass of their first node, which runs last.
  if (graph_.nodes()[current_node_].shares < 0) step.variables = std::move(variables);
  variables_.Take(step);
  for (const Plan::GradientPart& part : step.parts) {
    static_cast<ArenaBuffer&>(*part.part) = ArenaBuffer{.bytes = part.part->bytes};  // in use in the backward pass only
  }
  now_ = static_cast<int>(plan_->steps_.size());
}

void PlanBuilder::CompileNode(const Node& node) {
  std::vector<Value*> in;
  for (int input : node.inputs) in.push_back(FlatIfNeeded(node, input));
  Value* out = node_values_[node.id];
  FindLayer(node.kind)->compile(*this, node, in, out);
}

void PlanBuilder::CompileInput(const Node& node) {
  Value* out = node_values_[node.id];
  float scale = 1, offset = 0;
  const Node* last = &node;
  if (const Node* const rescaling = groups_.JoinedRescaling(node)) {
    scale = rescaling->layer.rescaling().scale();
    offset = rescaling->layer.rescaling().offset();
    last = rescaling;
  }
  // oneDNN's convolutions of few channels, as in a first layer, want channels first.
  bool channels_first =
      !differentiates_input_ && graph_.inputs().size() == 1 && node.output.size() >= 3 && node.output.back() < 16;
  for (int id : groups_.ReadersOf(*last)) {
    const Node& reader = graph_.nodes()[id];
    channels_first &= reader.kind == LayerKind::kConv2D || reader.kind == LayerKind::kConv3D ||
                      (reader.kind == LayerKind::kZeroPadding2D && groups_.Joined(reader));
  }
  AddOp({}, out, MakeInput(*this, node, scale, offset, channels_first, out));
}

// The value of the input. If that is a flattened image and the node's operation depends on the order of its numbers, it
// is copied to a plain vector.
Value* PlanBuilder::FlatIfNeeded(const Node& node, int input) {
  Value* value = node_values_[input];
  const Shape& shape = graph_.nodes()[input].output;
  if (shape.size() != 1 || value->data->desc.dims().size() == 2) return value;
  const bool any_order =
      node.kind == LayerKind::kDense ||
      (node.kind == LayerKind::kDropout && node.layer.dropout().noise_shape().empty()) ||
      (node.kind == LayerKind::kRescaling && !IsAffine(node)) || node.kind == LayerKind::kReshape ||
      (node.kind == LayerKind::kActivation && node.activation != v1::SOFTMAX && !IsFurtherActivation(node));
  if (any_order) return value;
  Value* flat = NewInnerValue(value->needs_gradient);
  AddOp({}, flat, MakePlain(*this, shape, value, flat));
  return flat;
}

}  // namespace cairn::onednn
