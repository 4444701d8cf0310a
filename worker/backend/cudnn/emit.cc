// Buffers and steps.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/model/model_inputs.h"
#include "worker/backend/cudnn/builder.h"
#include "worker/backend/cudnn/launches.h"

namespace cairn::cudnn {
namespace {

constexpr size_t kConstantAlignment = 64;  // numbers

// The variable of the layer around the graph.
const Variable& OutsideOf(const Graph& graph, const Builder::Outside& outside, const Variable& variable) {
  const auto index = static_cast<size_t>(&variable - graph.variables().data());
  return outside.builder->graph().variables()[outside.node->variables[index]];
}

std::string NameOf(const Graph& graph, const Ref& ref) {
  const auto variable = [&]() -> std::string {
    for (const Variable& v : graph.variables()) {
      if (v.offset * 4 == ref.offset) return v.name;
    }
    return absl::StrCat("+", ref.offset);
  };
  switch (ref.place) {
    case Ref::kArena: return absl::StrCat("%", ref.buffer);
    case Ref::kValues: return variable();
    case Ref::kGradients: return absl::StrCat("d ", variable());
    case Ref::kConstants: return absl::StrCat("constants+", ref.offset);
    case Ref::kInputs: return "inputs";
    case Ref::kLabels: return "labels";
    case Ref::kClassWeights: return "class_weights";
    case Ref::kKey: return "key";
    case Ref::kResults: return "results";
    case Ref::kRefusals: return "refusals";
    case Ref::kNone: break;
  }
  return "nothing";
}

// The size of the tensor there; 0 for small ones, such as labels.
int64_t BytesOf(const Graph& graph, const LoweringOptions& options, const Plan& plan, const Ref& ref) {
  switch (ref.place) {
    case Ref::kArena: return plan.buffers()[ref.buffer].bytes;
    case Ref::kValues:
    case Ref::kGradients:
      for (const Variable& v : graph.variables()) {
        if (v.offset * 4 == ref.offset) return v.size * 4;
      }
      return 0;
    case Ref::kInputs: return options.examples * ModelInputSize(graph) * cairn::SizeOf(options.inputs);
    default: return 0;
  }
}

}  // namespace

// ---- buffers ----

Ref Builder::New(int64_t bytes) {
  if (outside_ != nullptr) return outside_->builder->New(bytes);
  plan_->buffers_.push_back({std::max<int64_t>(bytes, 1)});
  return {Ref::kArena, static_cast<int>(plan_->buffers_.size()) - 1, 0};
}

Value* Builder::NewValue(int64_t numbers, bool needs_gradient, DType type) {
  Value* value = values_.emplace_back(std::make_unique<Value>()).get();
  value->numbers = numbers;
  value->needs_gradient = needs_gradient && training();
  value->type = type;
  return value;
}

const Variable* Builder::Find(const Node& node, const char* name) const {
  for (int v : node.variables) {
    const Variable& variable = graph_.variables()[v];
    if (absl::EndsWith(variable.name, absl::StrCat("/", name))) return &variable;
  }
  return nullptr;
}

Ref Builder::ValueOf(const Variable* variable) const {
  if (variable == nullptr) return {};
  if (outside_ != nullptr) return outside_->builder->ValueOf(&OutsideOf(graph_, *outside_, *variable));
  return {Ref::kValues, 0, variable->offset * 4};
}

Ref Builder::GradientOf(const Variable* variable) {
  if (variable == nullptr) return {};
  if (outside_ != nullptr) return outside_->builder->GradientOf(&OutsideOf(graph_, *outside_, *variable));
  if (current_->shares < 0) {
    handover_.SetOwnGradient(*variable);
    return {Ref::kGradients, 0, variable->offset * 4};
  }
  Ref& part = handover_.GradientPart(*variable, current_->id);
  if (!part) part = NewNumbers(variable->size, DType::kFloat32);
  return part;
}

Ref Builder::Constant(const std::vector<float>& numbers) {
  if (outside_ != nullptr) return outside_->builder->Constant(numbers);
  std::vector<float>& all = plan_->constants_;
  all.resize((all.size() + kConstantAlignment - 1) / kConstantAlignment * kConstantAlignment);
  const Ref ref{Ref::kConstants, 0, static_cast<int64_t>(all.size() * sizeof(float))};
  all.insert(all.end(), numbers.begin(), numbers.end());
  return ref;
}

Ref Builder::AddCheck(int64_t numbers, std::function<absl::Status(const double*)> error) {
  if (outside_ != nullptr) return outside_->builder->AddCheck(numbers, std::move(error));
  const int64_t begin = plan_->refusal_numbers_;
  plan_->checks_.push_back({begin, std::move(error)});
  plan_->refusal_numbers_ += numbers;
  plan_->checked_after_ = static_cast<int>(plan_->steps_.size());
  return {Ref::kRefusals, 0, begin * static_cast<int64_t>(sizeof(double))};
}

Ref Builder::Read(const Value& v, DType type) {
  if (v.type == type) return v.data;
  const Ref copy = NewNumbers(v.numbers, type);
  EmitConvert(*this, {v.data, v.type}, {copy, type}, v.numbers);
  return copy;
}

Builder::Sink Builder::GradientSink(Value* v) {
  CAIRN_CHECK(v->needs_gradient, "asked by its reader");
  if (!v->gradient) v->gradient = NewLike(*v);
  return {v->gradient, std::exchange(v->gradient_written, true)};
}

// ---- steps ----

void Builder::Fail(const absl::Status& status) {
  if (outside_ != nullptr) return outside_->builder->Fail(status);
  if (error_.ok() && !status.ok()) error_ = Annotate(status, absl::StrCat("layer \"", current_->name, "\""));
}

void Builder::EmitChecked(std::string what, std::vector<Ref> reads, std::vector<Ref> writes,
                          std::function<absl::Status(const Run&)> fn, double flop) {
  if (outside_ != nullptr) {
    return outside_->builder->EmitChecked(std::move(what), std::move(reads), std::move(writes), std::move(fn), flop);
  }
  const auto drop_none = [](std::vector<Ref>* refs) {
    refs->erase(std::remove_if(refs->begin(), refs->end(), [](const Ref& r) { return !r; }), refs->end());
  };
  drop_none(&reads);
  drop_none(&writes);
  const int step = static_cast<int>(plan_->steps_.size());
  for (const std::vector<Ref>* refs : {&reads, &writes}) {
    for (const Ref& ref : *refs) {
      if (ref.place == Ref::kArena) plan_->buffers_[ref.buffer].Use(step);
    }
  }
  const auto name = [this](std::string* out, const Ref& ref) { out->append(NameOf(graph_, ref)); };
  std::string text =
      absl::StrCat(absl::StrJoin(writes, ", ", name), " = ", what, " of ", absl::StrJoin(reads, ", ", name));
  int64_t read = 0, written = 0;
  for (const Ref& ref : reads) read += BytesOf(graph_, options_, *plan_, ref);
  for (const Ref& ref : writes) written += BytesOf(graph_, options_, *plan_, ref);
  plan_->steps_.push_back(
      {std::move(text), current_->name, std::move(reads), std::move(writes), std::move(fn), read, written, flop});
}

void Builder::Emit(std::string what, std::vector<Ref> reads, std::vector<Ref> writes, Fn fn) {
  EmitChecked(std::move(what), std::move(reads), std::move(writes),
              [fn = std::move(fn)](const Run& run) -> absl::Status {
                const kernels::Error error = fn(run);
                if (error == 0) return absl::OkStatus();
                return absl::InternalError(absl::StrCat("the launch failed (CUDA error ", error, ")"));
              });
}

}  // namespace cairn::cudnn
