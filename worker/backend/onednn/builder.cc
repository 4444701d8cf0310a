#include "worker/backend/onednn/builder.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "worker/backend/fusion.h"
#include "worker/backend/onednn/ops.h"

namespace cairn::onednn {

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
  // The activation of an Activation layer that joined this node.
  Activation activation = ActivationOf(node);
  bool relu = false;
  if (consumers_[node.id].size() == 1) {
    const Node& next = graph_.nodes()[consumers_[node.id][0]];
    if (next.kind == LayerKind::kActivation && joined_[next.id]) {
      const Activation joined = ActivationOf(next);
      relu = joined.kind == v1::RELU;
      if (activation.linear() && AppliesActivation(node.kind)) activation = joined;
    }
  }
  if (AppliesActivation(node.kind)) return CompileKernel(node, activation, in[0], out);
  if (node.kind == LayerKind::kInput) return CompileInput(node);
  if (node.kind == LayerKind::kMultiHeadAttention) return CompileAttention(node, in, out);
  AddOp(node.variables, out, MakeOp(node, activation, relu, in, out));
}

std::unique_ptr<Op> PlanBuilder::MakeOp(const Node& node, const Activation& activation, bool relu,
                                        const std::vector<Value*>& in, Value* out) {
  switch (node.kind) {
    case LayerKind::kActivation:
      if (!activation.elementwise()) return MakeSoftmax(*this, in[0], out);
      return MakeActivation(*this, activation, in[0], out);
    case LayerKind::kRescaling: return MakeRescaling(*this, node, in[0], out);
    case LayerKind::kBatchNormalization: return MakeBatchNormalization(*this, node, relu, in[0], out);
    case LayerKind::kLayerNormalization: return MakeLayerNormalization(*this, node, in[0], out);
    case LayerKind::kGroupNormalization: return MakeGroupNormalization(*this, node, in[0], out);
    case LayerKind::kMaxPooling2D:
    case LayerKind::kAveragePooling2D:
    case LayerKind::kMaxPooling1D:
    case LayerKind::kAveragePooling1D: return MakePooling(*this, node, in[0], out);
    case LayerKind::kGlobalAveragePooling2D:
    case LayerKind::kGlobalAveragePooling1D: return MakeGlobalAveragePooling(*this, node, in[0], out);
    case LayerKind::kUpSampling2D: return MakeUpSampling(*this, node, in[0], out);
    case LayerKind::kAdd:
    case LayerKind::kAverage: return MakeSum(*this, node, in, out);
    case LayerKind::kMaximum: return MakeMaximum(*this, in, out);
    case LayerKind::kMultiply: return MakeMultiply(*this, node, in, out);
    case LayerKind::kConcatenate: return MakeConcatenate(*this, node, in, out);
    case LayerKind::kDropout: return MakeDropout(*this, node, in[0], out);
    case LayerKind::kSpatialDropout2D: return MakeSpatialDropout(*this, node, in[0], out);
    case LayerKind::kZeroPadding2D: return MakeZeroPadding(*this, node, in[0], out);
    case LayerKind::kReshape: return MakePlain(*this, node.output, in[0], out);
    case LayerKind::kPermute: return MakePermute(*this, node, in[0], out);
    case LayerKind::kEmbedding: return MakeEmbedding(*this, node, in[0], out);
    case LayerKind::kInput:
    case LayerKind::kFlatten:  // always joined
    case LayerKind::kConv2D:
    case LayerKind::kConv1D:
    case LayerKind::kDepthwiseConv2D:
    case LayerKind::kSeparableConv2D:
    case LayerKind::kConv2DTranspose:
    case LayerKind::kDense:
    case LayerKind::kMultiHeadAttention: break;  // compiled elsewhere
  }
  CAIRN_CHECK(false, "a layer kind without an operation");
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

// The layer without its activation where that is an operation of its own, then the activation.
void PlanBuilder::CompileKernel(const Node& node, Activation activation, Value* in, Value* out) {
  if (Fusible(activation)) return CompileLinear(node, activation, in, out);
  Value* target = NewInnerValue(out->needs_gradient);
  CompileLinear(node, {}, in, target);
  AddOp({}, out,
        activation.elementwise() ? MakeActivation(*this, activation, target, out) : MakeSoftmax(*this, target, out));
}

void PlanBuilder::CompileLinear(const Node& node, const Activation& activation, Value* in, Value* out) {
  const std::vector<int>& ids = node.variables;
  const Variable* kernel = &graph_.variables()[ids[0]];
  const Variable* bias = FindVariable(node, "bias");
  if (node.kind == LayerKind::kDense && node.output.size() < 3) {
    return AddOp(ids, out, MakeDense(*this, {kernel, bias, kernel->shape[1], node.output}, activation, in, out));
  }
  Convolution convolution{Convolution::kForward, kernel, bias, node.window, node.output};
  const Node& producer = graph_.nodes()[node.inputs[0]];
  if (producer.kind == LayerKind::kZeroPadding2D && joined_[producer.id]) {
    for (int i = 0; i < 2; ++i) {
      convolution.window.pad_begin[i] += producer.window.pad_begin[i];
      convolution.window.pad_end[i] += producer.window.pad_end[i];
    }
  }
  if (node.kind == LayerKind::kConv2DTranspose) convolution.kind = Convolution::kTransposed;
  if (node.kind == LayerKind::kDepthwiseConv2D) convolution.kind = Convolution::kDepthwise;
  if (node.kind != LayerKind::kSeparableConv2D) {
    return AddOp(ids, out, MakeConvolution(*this, convolution, activation, in, out));
  }
  convolution.kind = Convolution::kDepthwise;
  convolution.bias = nullptr;
  convolution.output[2] = kernel->shape[2] * kernel->shape[3];
  Value* between = NewInnerValue(out->needs_gradient);
  AddOp({ids[0]}, between, MakeConvolution(*this, convolution, {}, in, between));
  const Convolution pointwise{Convolution::kForward, &graph_.variables()[ids[1]], bias, Window{}, node.output};
  AddOp({ids.begin() + 1, ids.end()}, out, MakeConvolution(*this, pointwise, activation, between, out));
}

// Three projections, what mixes them, and the projection of that.
void PlanBuilder::CompileAttention(const Node& node, const std::vector<Value*>& in, Value* out) {
  const v1::MultiHeadAttention& mha = node.layer.multi_head_attention();
  const int64_t steps = node.output[0], keys = graph_.nodes()[node.inputs.back()].output[0];
  const int each = mha.use_bias() ? 2 : 1;  // variables of a projection
  const auto project = [&](int number, Shape output, Value* from, Value* to) {
    std::vector<int> ids(node.variables.begin() + number * each, node.variables.begin() + (number + 1) * each);
    const Projection projection{&graph_.variables()[ids[0]], each == 2 ? &graph_.variables()[ids[1]] : nullptr,
                                output[1], output};
    AddOp(std::move(ids), to, MakeDense(*this, projection, {}, from, to));
    return to;
  };
  const int64_t key_width = int64_t{mha.num_heads()} * mha.key_dim();
  const int64_t value_width = int64_t{mha.num_heads()} * mha.value_dim();
  const auto inner = [&] { return NewInnerValue(out->needs_gradient); };
  Value* query = project(0, {steps, key_width}, in[0], inner());
  Value* key = project(1, {keys, key_width}, in.back(), inner());
  Value* value = project(2, {keys, value_width}, in[1], inner());
  Value* heads = inner();
  AddOp({}, heads, MakeAttention(*this, node, query, key, value, heads));
  project(3, {steps, node.output[1]}, heads, out);
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
