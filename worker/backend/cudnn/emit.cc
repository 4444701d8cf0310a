// Buffers and steps, and the launches that several layers are made of.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "worker/backend/cudnn/builder.h"

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
  EmitConvert(v.data, v.type, copy, type, v.numbers);
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

void Builder::EmitConvert(const Ref& from, DType from_type, const Ref& to, DType to_type, int64_t n, bool add) {
  std::vector<Ref> reads = {from};
  if (add) reads.push_back(to);
  Emit(absl::StrCat(add ? "add " : "copy ", Name(from_type), " ", Name(to_type)), std::move(reads), {to},
       [=](const Run& r) {
         return kernels::Affine(r.stream(), n, 1, 0, r.At<>(from), from_type, r.At<>(to), to_type, add);
       });
}

void Builder::EmitProduct(Product p, const Ref& a, const Ref& b, const Ref& bias, const Ref& c, bool add) {
  p.beta = add ? 1.0f : 0.0f;
  p.bias = static_cast<bool>(bias);
  absl::StatusOr<int64_t> bytes = machine_.Prepare(p);
  if (!bytes.ok()) return Fail(bytes.status());
  const Ref workspace = *bytes > 0 ? New(*bytes) : Ref{};
  std::vector<Ref> reads = {a, b, bias};
  if (add) reads.push_back(c);
  EmitChecked(
      absl::StrCat("product ", ToString(p)), std::move(reads), {c, workspace},
      [=](const Run& r) {
        return r.machine.Multiply(p, r.At<>(a), r.At<>(b), r.At<>(bias), r.At<>(c), r.At<>(workspace));
      },
      2.0 * static_cast<double>(p.batch * p.m) * static_cast<double>(p.n * p.k));
}

// ---- activations ----

Ref Builder::EmitActivation(const Activation& f, const Ref& y, const Ref& bias, int64_t columns, Value* out) {
  const int64_t rows = out->numbers / columns;
  const DType type = out->type;
  const auto emit = [&](const Activation& g, const Ref& from, const Ref& with, const Ref& to) {
    if (g.linear() && !with) return;
    Emit(absl::StrCat(with ? "bias " : "", v1::Activation_Name(g.kind)), {from, with}, {to}, [=](const Run& r) {
      // One long row where there is no bias.
      return with ? kernels::BiasActivation(r.stream(), g.act(), g.alpha, rows, columns, r.At<>(from),
                                            r.At<float>(with), r.At<>(to), type)
                  : kernels::BiasActivation(r.stream(), g.act(), g.alpha, 1, rows * columns, r.At<>(from), nullptr,
                                            r.At<>(to), type);
    });
  };
  out->data = y;
  if (f.softmax()) {
    emit({}, y, bias, y);
    Emit("softmax", {y}, {y},
         [=](const Run& r) { return kernels::Softmax(r.stream(), rows, columns, 0, r.At<>(y), r.At<>(y), type); });
    return {};
  }
  if (!training() || !f.needs_input()) {
    emit(f, y, bias, y);
    return {};
  }
  emit({}, y, bias, y);
  out->data = NewLike(*out);
  emit(f, y, {}, out->data);
  return y;
}

void Builder::EmitActivationBackward(const Activation& f, const Ref& before, int64_t columns, Value* out) {
  if (f.linear()) return;
  const Ref g = out->gradient, y = before ? Ref{} : out->data;
  const int64_t n = out->numbers;
  const DType type = out->type;
  if (f.softmax()) {
    return Emit("softmax backward", {y, g}, {g}, [=](const Run& r) {
      return kernels::SoftmaxBackward(r.stream(), n / columns, columns, r.At<>(y), r.At<>(g), r.At<>(g), type, false);
    });
  }
  Emit(absl::StrCat(v1::Activation_Name(f.kind), " backward"), {before, y, g}, {g}, [=](const Run& r) {
    return kernels::ActivationBackward(r.stream(), f.act(), f.alpha, n, r.At<>(before), r.At<>(y), r.At<>(g), r.At<>(g),
                                       type, false);
  });
}

Permutation PermutationOf(int64_t examples, const Shape& from, absl::Span<const int32_t> order) {
  const size_t rank = from.size(), lead = 4 - rank;
  Permutation p;
  p.forward.dims[0] = p.backward.dims[0] = examples;
  p.forward.strides[0] = p.backward.strides[0] = NumElements(from);
  Shape to;
  for (const int32_t axis : order) to.push_back(from[static_cast<size_t>(axis) - 1]);
  const auto stride_of = [&](const Shape& shape, size_t axis) {
    int64_t stride = 1;
    for (size_t i = axis + 1; i < rank; ++i) stride *= shape[i];
    return stride;
  };
  for (size_t axis = 0; axis < rank; ++axis) {
    const size_t other = static_cast<size_t>(order[axis]) - 1;
    p.forward.dims[lead + axis] = to[axis];
    p.forward.strides[lead + axis] = stride_of(from, other);
    p.backward.dims[lead + other] = from[other];
    p.backward.strides[lead + other] = stride_of(to, axis);
  }
  return p;
}

void Builder::EmitPermute(const Permutation::Axes& axes, const Ref& from, const Ref& to, DType t, bool add) {
  std::vector<Ref> reads = {from};
  if (add) reads.push_back(to);
  Emit(add ? "permute add" : "permute", std::move(reads), {to}, [=](const Run& r) {
    return kernels::Permute(r.stream(), axes.dims, axes.strides, r.At<>(from), r.At<>(to), t, add);
  });
}

void Builder::EmitColumnSums(const Ref& x, int64_t rows, int64_t columns, const Ref& sums, DType type) {
  const Ref scratch = Scratch(kernels::ColumnSumsScratch(rows, columns));
  Emit(absl::StrCat("column sums ", rows, "x", columns), {x}, {sums, scratch}, [=](const Run& r) {
    return kernels::ColumnSums(r.stream(), rows, columns, r.At<>(x), r.At<float>(sums), r.At<float>(scratch), type);
  });
}

}  // namespace cairn::cudnn
