#include "worker/backend/onednn/builder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "worker/backend/onednn/ops.h"

namespace cairn::onednn {
namespace {

int64_t AlignUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

bool Elementwise(v1::Activation activation) { return activation != v1::SOFTMAX; }

bool HasKernel(LayerKind kind) {
  return kind == LayerKind::kConv2D || kind == LayerKind::kDepthwiseConv2D || kind == LayerKind::kDense;
}

}  // namespace

Desc MakeDesc(const dnnl::memory::dims& dims, Tag tag) { return Desc(dims, dnnl::memory::data_type::f32, tag); }

dnnl::memory::dims MakeDims(int64_t examples, const Shape& shape) {
  switch (shape.size()) {
    case 1:
      return {examples, shape[0]};
    case 2:
      return {examples, shape[1], 1, shape[0]};
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
                         const dnnl::engine& engine)
    : graph_(graph), loss_plan_(loss_plan), mode_(mode), engine_(engine), plan_(std::make_unique<Plan>()) {
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
    AddOp(nullptr, MakePlain(*this, shape, output, plain));
    output = plain;
  }
  Use(output->data);
  if (training()) {
    output->gradient = New(output->data->desc);
    output->gradient_written = true;
    const int count = static_cast<int>(plan_->steps_.size());
    for (int i = count - 1; i >= 0; --i) {
      now_ = 2 * count - i;
      current_layer_ = plan_->steps_[i].layer;
      plan_->steps_[i].op->CompileBackward(*this);
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
    case LayerKind::kFlatten:
      return true;
    case LayerKind::kDropout:
      return !training() || node.layer.dropout().rate() == 0;
    case LayerKind::kRescaling:
      return alone && producer.kind == LayerKind::kInput;
    case LayerKind::kZeroPadding2D:
      return std::all_of(consumers_[node.id].begin(), consumers_[node.id].end(),
                         [&](int id) {
                           const LayerKind kind = graph_.nodes()[id].kind;
                           return kind == LayerKind::kConv2D || kind == LayerKind::kDepthwiseConv2D;
                         }) &&
             node.id != graph_.output().id;
    case LayerKind::kActivation: {
      const Activation activation = ActivationOf(node);
      if (activation.linear()) return true;
      if (!alone) return false;
      if (producer.kind == LayerKind::kBatchNormalization) return activation.kind == v1::RELU;
      return HasKernel(producer.kind) && ActivationOf(producer).linear() && Elementwise(activation.kind);
    }
    default:
      return false;
  }
}

Activation PlanBuilder::ActivationOf(const Node& node) const {
  if (node.id == graph_.output().id && loss_plan_.fused && mode_ != Mode::kPredict) return {};
  return {node.activation, node.negative_slope};
}

Value* PlanBuilder::NewValue(bool needs_gradient) {
  Value* value = plan_->values_.emplace_back(std::make_unique<Value>()).get();
  value->needs_gradient = needs_gradient;
  return value;
}

// ---- compiling the nodes ----

void PlanBuilder::AddOp(const Node* node, std::unique_ptr<Op> op) {
  Plan::Step& step = plan_->steps_.emplace_back();
  step.op = std::move(op);
  step.layer = current_layer_;
  if (node != nullptr) step.variables = node->variables;
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
      if (activation.linear() && HasKernel(node.kind)) activation = joined;
    }
  }
  switch (node.kind) {
    case LayerKind::kInput:
      return CompileInput(node);
    case LayerKind::kConv2D:
    case LayerKind::kDepthwiseConv2D:
    case LayerKind::kDense:
      return CompileKernel(node, activation, in[0], out);
    case LayerKind::kActivation:
      if (activation.kind == v1::SOFTMAX) return AddOp(nullptr, MakeSoftmax(*this, in[0], out));
      return AddOp(&node, MakeActivation(*this, activation, in[0], out));
    case LayerKind::kRescaling:
      return AddOp(&node, MakeRescaling(*this, node, in[0], out));
    case LayerKind::kBatchNormalization:
      return AddOp(&node, MakeBatchNormalization(*this, node, relu, in[0], out));
    case LayerKind::kMaxPooling2D:
    case LayerKind::kAveragePooling2D:
      return AddOp(&node, MakePooling(*this, node, in[0], out));
    case LayerKind::kGlobalAveragePooling2D:
      return AddOp(&node, MakeGlobalAveragePooling(*this, node, in[0], out));
    case LayerKind::kAdd:
      return AddOp(&node, MakeAdd(*this, in, out));
    case LayerKind::kConcatenate:
      return AddOp(&node, MakeConcatenate(*this, node, in, out));
    case LayerKind::kDropout:
      return AddOp(&node, MakeDropout(*this, node, in[0], out));
    case LayerKind::kZeroPadding2D:
      return AddOp(&node, MakeZeroPadding(*this, node, in[0], out));
    case LayerKind::kFlatten:
      break;  // always joined
    default:
      throw dnnl::error(dnnl_unimplemented, "no operation for this type of layer");
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
  AddOp(&node, MakeInput(*this, node, scale, offset, channels_first, out));
}

void PlanBuilder::CompileKernel(const Node& node, Activation activation, Value* in, Value* out) {
  Value* target = out;
  const bool softmax = !Elementwise(activation.kind);
  if (softmax) {
    activation = {};
    target = NewValue(out->needs_gradient);
    target->readers = 1;
  }
  const Node& producer = graph_.nodes()[node.inputs[0]];
  if (node.kind == LayerKind::kDense && producer.output.size() == 1) {
    AddOp(&node, MakeDense(*this, node, activation, in, target));
  } else {
    const bool padded = producer.kind == LayerKind::kZeroPadding2D && joined_[producer.id];
    AddOp(&node, MakeConvolution(*this, node, padded ? &producer.window : nullptr, activation, in, target));
  }
  if (softmax) AddOp(nullptr, MakeSoftmax(*this, target, out));
}

// The input's value; a plain vector where it is a flattened image and the node's operation needs the order of its
// numbers.
Value* PlanBuilder::FlatIfNeeded(const Node& node, int input) {
  Value* value = node_values_[input];
  const Shape& shape = graph_.nodes()[input].output;
  if (shape.size() != 1 || value->data->desc.dims().size() == 2) return value;
  const bool any_order = node.kind == LayerKind::kDense || node.kind == LayerKind::kDropout ||
                         node.kind == LayerKind::kRescaling ||
                         (node.kind == LayerKind::kActivation && Elementwise(node.activation));
  if (any_order) return value;
  Value* flat = NewValue(value->needs_gradient);
  flat->readers = 1;
  AddOp(nullptr, MakePlain(*this, shape, value, flat));
  return flat;
}

// ---- buffers ----

dnnl::primitive_attr PlanBuilder::Attributes() const {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

Tensor* PlanBuilder::New(const Desc& desc) {
  Tensor* tensor = plan_->tensors_.emplace_back(std::make_unique<Tensor>()).get();
  tensor->desc = desc;
  tensor->bytes = static_cast<int64_t>(desc.get_size());
  tensor->memory = dnnl::memory(desc, engine_, DNNL_MEMORY_NONE);
  Use(tensor);
  return tensor;
}

Tensor* PlanBuilder::NewBytes(int64_t bytes) {
  return New(Desc({std::max<int64_t>(bytes, 1)}, dnnl::memory::data_type::u8, Tag::a));
}

Tensor* PlanBuilder::NewInputs(const Desc& desc) {
  Tensor* tensor = New(desc);
  tensor->offset = -1;
  plan_->input_bindings_.push_back(tensor->memory);
  return tensor;
}

dnnl::memory PlanBuilder::Use(Tensor* tensor) {
  tensor->first_use = std::min(tensor->first_use, now_);
  tensor->last_use = std::max(tensor->last_use, now_);
  return tensor->memory;
}

dnnl::memory PlanBuilder::Use(Tensor* tensor, const Desc& view) {
  Use(tensor);
  if (view == tensor->desc) return tensor->memory;
  tensor->views.push_back(dnnl::memory(view, engine_, DNNL_MEMORY_NONE));
  if (tensor->offset < 0) plan_->input_bindings_.push_back(tensor->views.back());
  return tensor->views.back();
}

const Variable* PlanBuilder::FindVariable(const Node& node, const char* name) const {
  for (int v : node.variables) {
    const Variable& variable = graph_.variables()[v];
    if (absl::EndsWith(variable.name, absl::StrCat("/", name))) return &variable;
  }
  return nullptr;
}

dnnl::memory PlanBuilder::ValueOf(const Variable& variable, const Desc& desc) {
  dnnl::memory memory(desc, engine_, DNNL_MEMORY_NONE);
  plan_->value_bindings_.push_back({memory, variable.offset});
  return memory;
}

dnnl::memory PlanBuilder::GradientOf(const Variable& variable, const Desc& desc) {
  dnnl::memory memory(desc, engine_, DNNL_MEMORY_NONE);
  plan_->gradient_bindings_.push_back({memory, variable.offset});
  return memory;
}

// ---- calls ----

Call PlanBuilder::CallOf(const dnnl::primitive& primitive, const Desc& scratchpad,
                         std::vector<std::pair<int, dnnl::memory>> arguments) {
  if (const int64_t bytes = static_cast<int64_t>(scratchpad.get_size()); bytes > 0) {
    arguments.emplace_back(DNNL_ARG_SCRATCHPAD, Use(NewBytes(bytes), scratchpad));
  }
  return Call(primitive, std::move(arguments));
}

Call PlanBuilder::Reorder(const dnnl::memory& from, const dnnl::memory& to, bool add) {
  dnnl::primitive_attr attributes = Attributes();
  if (add) {
    dnnl::post_ops post;
    post.append_sum(1.0f);
    attributes.set_post_ops(post);
  }
  const dnnl::reorder::primitive_desc desc(engine_, from.get_desc(), engine_, to.get_desc(), attributes);
  return MakeCall(desc, dnnl::reorder(desc), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

Source PlanBuilder::Read(Tensor* tensor, const Desc& wanted) {
  const dnnl::memory from = Use(tensor);
  if (tensor->desc == wanted) return {tensor, Call()};
  Source source{New(wanted), Call()};
  source.reorder = Reorder(from, source.tensor->memory);
  return source;
}

Sink PlanBuilder::WriteGradient(Value* value, const Desc& wanted) {
  if (value->gradient == nullptr) value->gradient = New(value->data->desc);
  const dnnl::memory gradient = Use(value->gradient);
  const bool add = std::exchange(value->gradient_written, true);
  const bool same = wanted == value->gradient->desc;
  if (same && !add) return {value->gradient, nullptr, Call()};
  Sink sink{New(wanted), nullptr, Call()};
  if (same) {
    sink.sum = value->gradient;
  } else {
    sink.reorder = Reorder(sink.tensor->memory, gradient, add);
  }
  return sink;
}

// ---- the end ----

// Each step announces the variables of its node, with the padding after each.
void PlanBuilder::PlanVariables() {
  for (Plan::Step& step : plan_->steps_) {
    for (int v : step.variables) {
      const Variable& variable = graph_.variables()[v];
      const int64_t end = variable.offset + variable.size, aligned = AlignUp(end, kSpaceAlignment);
      if (step.begin == step.end) step.begin = variable.offset;
      if (end < aligned) step.gaps.emplace_back(end, aligned);
      step.end = aligned;
    }
  }
}

// The largest first, each at the lowest place where it overlaps no buffer that is in use at the same time.
void PlanBuilder::PlaceTensors() {
  constexpr int64_t kAlignment = 64;
  std::vector<Tensor*> order, placed;
  for (const auto& tensor : plan_->tensors_) {
    if (tensor->offset >= 0) order.push_back(tensor.get());
  }
  std::stable_sort(order.begin(), order.end(), [](const Tensor* a, const Tensor* b) { return a->bytes > b->bytes; });
  for (Tensor* tensor : order) {
    int64_t offset = 0;
    for (const Tensor* other : placed) {  // by offset
      if (other->last_use < tensor->first_use || other->first_use > tensor->last_use) continue;
      if (offset + tensor->bytes <= other->offset) break;
      offset = std::max(offset, AlignUp(other->offset + other->bytes, kAlignment));
    }
    tensor->offset = offset;
    plan_->arena_bytes_ = std::max(plan_->arena_bytes_, AlignUp(offset + tensor->bytes, kAlignment));
    placed.insert(std::upper_bound(placed.begin(), placed.end(), tensor,
                                   [](const Tensor* a, const Tensor* b) { return a->offset < b->offset; }),
                  tensor);
  }
}

}  // namespace cairn::onednn
