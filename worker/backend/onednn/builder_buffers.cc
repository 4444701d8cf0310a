// What operations ask PlanBuilder for while they are compiled, and where the buffers end up.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/limits.h"
#include "worker/backend/onednn/builder.h"

namespace cairn::onednn {

namespace {

int64_t AlignUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

}  // namespace

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
  tensor->ArenaBuffer::Use(now_);
  return tensor->memory;
}

dnnl::memory PlanBuilder::Use(Tensor* tensor, const Desc& view) {
  Use(tensor);
  if (view == tensor->desc) return tensor->memory;
  tensor->views.push_back(dnnl::memory(view, engine_, DNNL_MEMORY_NONE));
  if (tensor->offset < 0) plan_->input_bindings_.push_back(tensor->views.back());
  return tensor->views.back();
}

Tensor* PlanBuilder::StepMaskOf(int node) const {
  const int maker = graph_.nodes()[node].mask;
  return maker < 0 ? nullptr : step_masks_.at(maker);
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
  reads_.push_back(&variable);
  return memory;
}

dnnl::memory PlanBuilder::GradientOf(const Variable& variable, const Desc& desc) {
  const int last = last_users_[static_cast<size_t>(&variable - graph_.variables().data())];
  if (last >= 0 && last != current_node_) {
    Tensor* part = New(MakeDesc({variable.size}, Tag::x));
    parts_.push_back({part, variable.offset, variable.size});
    return Use(part, desc);
  }
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

// The values that the step's operation has asked for since the last call, with the padding after them.
void PlanBuilder::NoteReads(Plan::Step& step) {
  for (const Variable* variable : reads_) {
    const int64_t end = AlignUp(variable->offset + variable->size, kSpaceAlignment);
    const bool first = step.reads_begin == step.reads_end;
    step.reads_begin = first ? variable->offset : std::min(step.reads_begin, variable->offset);
    step.reads_end = first ? end : std::max(step.reads_end, end);
  }
  reads_.clear();
}

// Each step announces the variables of its node, with the padding after each; frozen ones as zeros.
void PlanBuilder::PlanVariables() {
  for (Plan::Step& step : plan_->steps_) {
    for (int v : step.variables) {
      const Variable& variable = graph_.variables()[v];
      const int64_t end = variable.offset + variable.size, aligned = AlignUp(end, kSpaceAlignment);
      const int64_t written = Trains(variable) ? end : variable.offset;
      if (step.begin == step.end) step.begin = variable.offset;
      if (written < aligned) step.gaps.emplace_back(written, aligned);
      step.end = aligned;
    }
  }
}

void PlanBuilder::PlaceTensors() {
  std::vector<ArenaBuffer*> buffers;
  for (const auto& tensor : plan_->tensors_) {
    if (tensor->offset >= 0) buffers.push_back(tensor.get());
  }
  plan_->arena_bytes_ = PlaceBuffers(buffers, 64);
}

}  // namespace cairn::onednn
