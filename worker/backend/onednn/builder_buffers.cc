// What operations ask PlanBuilder for while they are compiled: buffers, variables, calls.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/backend/onednn/builder.h"

namespace cairn::onednn {

// ---- buffers ----

dnnl::primitive_attr PlanBuilder::Attributes() const {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

Tensor* PlanBuilder::New(const Desc& desc) {
  Tensor* tensor = plan_->tensors_.Add();
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
  plan_->input_bindings_.Add(tensor->memory);
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
  if (tensor->offset < 0) plan_->input_bindings_.Add(tensor->views.back());
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
  plan_->value_bindings_.Add(memory, variable.offset);
  variables_.NoteRead(variable);
  return memory;
}

dnnl::memory PlanBuilder::GradientOf(const Variable& variable, const Desc& desc) {
  if (variables_.IsPart(variable, current_node_)) {
    Tensor* part = New(MakeDesc({variable.size}, Tag::x));
    variables_.NotePart(variable, part);
    return Use(part, desc);
  }
  dnnl::memory memory(desc, engine_, DNNL_MEMORY_NONE);
  plan_->gradient_bindings_.Add(memory, variable.offset);
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

}  // namespace cairn::onednn
