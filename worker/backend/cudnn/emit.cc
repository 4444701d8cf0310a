// Buffers and steps.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "worker/backend/cudnn/builder.h"
#include "worker/backend/cudnn/launches.h"

namespace cairn::cudnn {

// ---- buffers ----

Ref Builder::New(int64_t bytes) {
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
  return variable == nullptr ? Ref{} : Ref{Ref::kValues, 0, variable->offset * 4};
}

Ref Builder::GradientOf(const Variable* variable) const {
  return variable == nullptr ? Ref{} : Ref{Ref::kGradients, 0, variable->offset * 4};
}

std::string Builder::NameOf(const Ref& ref) const {
  const auto variable = [&]() -> std::string {
    for (const Variable& v : graph_.variables()) {
      if (v.offset * 4 == ref.offset) return v.name;
    }
    return absl::StrCat("+", ref.offset);
  };
  switch (ref.place) {
    case Ref::kArena: return absl::StrCat("%", ref.buffer);
    case Ref::kValues: return variable();
    case Ref::kGradients: return absl::StrCat("d ", variable());
    case Ref::kInputs: return "inputs";
    case Ref::kLabels: return "labels";
    case Ref::kClassWeights: return "class_weights";
    case Ref::kKey: return "key";
    case Ref::kResults: return "results";
    case Ref::kNone: break;
  }
  return "nothing";
}

int64_t Builder::BytesOf(const Ref& ref) const {
  switch (ref.place) {
    case Ref::kArena: return plan_->buffers_[ref.buffer].bytes;
    case Ref::kValues:
    case Ref::kGradients:
      for (const Variable& v : graph_.variables()) {
        if (v.offset * 4 == ref.offset) return v.size * 4;
      }
      return 0;
    case Ref::kInputs: return examples() * NumElements(graph_.input_shape()) * cairn::SizeOf(options_.inputs);
    default: return 0;
  }
}

Ref Builder::Read(const Value& v, DType type) {
  if (v.type == type) return v.data;
  const Ref copy = NewNumbers(v.numbers, type);
  EmitConvert(*this, v.data, v.type, copy, type, v.numbers);
  return copy;
}

Builder::Sink Builder::GradientSink(Value* v) {
  CAIRN_CHECK(v->needs_gradient, "asked by its reader");
  if (!v->gradient) v->gradient = NewLike(*v);
  return {v->gradient, std::exchange(v->gradient_written, true)};
}

// ---- steps ----

void Builder::Fail(const absl::Status& status) {
  if (error_.ok() && !status.ok()) error_ = Annotate(status, absl::StrCat("layer \"", current_->name, "\""));
}

void Builder::EmitChecked(std::string what, std::vector<Ref> reads, std::vector<Ref> writes,
                          std::function<absl::Status(const Run&)> fn, double flop) {
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
  const auto name = [this](std::string* out, const Ref& ref) { out->append(NameOf(ref)); };
  std::string text =
      absl::StrCat(absl::StrJoin(writes, ", ", name), " = ", what, " of ", absl::StrJoin(reads, ", ", name));
  int64_t read = 0, written = 0;
  for (const Ref& ref : reads) read += BytesOf(ref);
  for (const Ref& ref : writes) written += BytesOf(ref);
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
