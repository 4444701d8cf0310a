#include "worker/backend/cudnn/recurrence.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/backend/cudnn/launches.h"
#include "worker/backend/cudnn/layer.h"

namespace cairn::cudnn {
namespace {

using kernels::Cell;

kernels::Act ActOf(v1::Activation kind) { return Activation{kind, 0}.act(); }

}  // namespace

RecurrenceLowering::RecurrenceLowering(Builder& builder, const Node& node, const Recurrence& recurrence, Ref mask)
    : b_(builder),
      node_(node.id),
      s_(recurrence, builder.examples(), builder.ShapeOf(node)),
      mask_(mask),
      trains_(builder.groups().Trains(node)),
      weights_(builder, s_),
      windows_(recurrence.windows.axes > 0 ? std::make_unique<RecurrenceWindows>(builder, s_) : nullptr) {}

void RecurrenceLowering::Forward(const Value& in, const Value* h, const Value* c) {
  const int64_t states = s_.state_numbers();
  input_factors_ = Factors(false, s_.r.dropout, s_.features);
  state_factors_ = Factors(true, s_.r.recurrent_dropout, states);
  EmitPack(in);
  EmitInputParts();
  kept_.h = NewSteps(s_.steps + 1, states, DType::kFloat32);
  kept_.states = NewSteps(s_.steps, states, b_.type());
  if (s_.r.cell == RecurrentCell::kLstm) kept_.c = NewSteps(s_.steps + 1, states, DType::kFloat32);
  if (s_.r.cell == RecurrentCell::kGru) {
    kept_.candidate = NewSteps(s_.steps, states, s_.r.reset_after ? DType::kFloat32 : b_.type());
    kept_.state_parts = b_.NewNumbers(s_.examples * s_.width(), DType::kFloat32);
  }
  EmitStart(h, kept_.h.ref, kept_.states.ref, state_factors_);
  if (s_.r.cell == RecurrentCell::kLstm) EmitStart(c, kept_.c.ref, {}, {});
  for (int64_t step = 0; step < s_.steps; ++step) EmitForward(step);
}

// x W of all steps.
void RecurrenceLowering::EmitInputParts() {
  kept_.parts = NewSteps(s_.steps, s_.positions() * s_.width(), DType::kFloat32);
  if (windows_ != nullptr) {
    windows_->ReadKernels();
    return windows_->EmitInput(kept_.packed, kept_.parts.ref);
  }
  weights_.ReadKernel();
  EmitProduct(b_, {.m = s_.rows(), .n = s_.width(), .k = s_.features, .out = DType::kFloat32}, kept_.packed,
              weights_.kernel(), kept_.parts.ref);
  weights_.ReadRecurrent();
}

void RecurrenceLowering::Backward(const StateGradients& d, Value* in, Value* h, Value* c) {
  const int64_t units = s_.units(), numbers = step_numbers();
  gradients_.parts = NewSteps(s_.steps, s_.positions() * s_.width(), b_.type());
  if (s_.r.cell == RecurrentCell::kGru) {
    gradients_.state_parts = NewSteps(s_.steps, (s_.r.reset_after ? 3 : 2) * units, b_.type());
  }
  if (s_.ResetsBefore()) gradients_.candidate = NewSteps(s_.steps, units, b_.type());
  gradients_.h = b_.NewNumbers(numbers, DType::kFloat32);
  gradients_.state = b_.NewNumbers(numbers, DType::kFloat32);
  if (s_.r.cell == RecurrentCell::kLstm) gradients_.c = b_.NewNumbers(numbers, DType::kFloat32);
  for (int64_t step = s_.steps; step-- > 0;) EmitBackward(step, d);
  EmitFirstGradient(h, gradients_.h, gradients_.state, state_factors_);
  if (s_.r.cell == RecurrentCell::kLstm) EmitFirstGradient(c, gradients_.c, {}, {});
  if (!b_.Frozen(b_.current())) EmitWeightGradients();
  if (in->needs_gradient) EmitInputGradient(in);
}

// ---- buffers ----

StepBuffer RecurrenceLowering::NewSteps(int64_t steps, int64_t numbers, DType type) const {
  const int64_t each = s_.examples * numbers;
  return {b_.NewNumbers(steps * each, type), each * SizeOf(type)};
}

Ref RecurrenceLowering::Factors(bool of_state, float rate, int64_t numbers) const {
  if (!trains_ || rate == 0) return {};
  const Ref factors = b_.NewNumbers(s_.examples * numbers, DType::kFloat32), key = KeyOf(b_);
  const int64_t begin = RecurrentMaskBegin(s_.r, of_state, s_.examples, s_.features);
  b_.Emit(absl::StrCat("dropout ", rate), {key}, {factors},
          [=, count = s_.examples * numbers, node = node_](const Run& r) {
            return kernels::DropoutFactors(r.stream(), begin, count, r.At<kernels::StepKey>(key), node, rate,
                                           r.At<float>(factors));
          });
  return factors;
}

void RecurrenceLowering::EmitPack(const Value& in) {
  const Ref x = b_.Read(in, b_.type());
  kept_.packed = b_.NewNumbers(s_.steps * s_.examples * s_.features, b_.type());
  b_.Emit("pack steps", {x, input_factors_}, {kept_.packed},
          [s = Packing(), x, to = kept_.packed, f = input_factors_, t = b_.type()](const Run& r) mutable {
            s.factors = r.At<float>(f);
            return kernels::PackSteps(r.stream(), s, r.At<>(x), r.At<>(to), t);
          });
}

void RecurrenceLowering::EmitStart(const Value* from, const Ref& to, const Ref& state, const Ref& factors) const {
  const Ref given = from == nullptr ? Ref{} : b_.Read(*from, b_.type());
  b_.Emit("first state", {given, factors}, {to, state}, [=, n = step_numbers(), t = b_.type()](const Run& r) {
    return kernels::StartState(r.stream(), n, r.At<>(given), r.At<float>(factors), r.At<float>(to), r.At<>(state), t);
  });
}

// ---- one step ----

kernels::CellShape RecurrenceLowering::CellShapeOf() const {
  kernels::CellShape shape;
  shape.rows = s_.step_rows();
  shape.positions = s_.positions();
  shape.units = s_.units();
  shape.mask_stride = s_.steps;
  shape.f = ActOf(s_.r.activation);
  shape.gate = ActOf(s_.r.recurrent_activation);
  shape.f_alpha = RecurrentAlpha(s_.r.activation);
  shape.gate_alpha = RecurrentAlpha(s_.r.recurrent_activation);
  shape.type = b_.type();
  return shape;
}

void RecurrenceLowering::StepRefs::Bind(const Run& r, kernels::CellStep* s) const {
  s->mask = r.At<float>(mask);
  s->factors = r.At<float>(factors);
  s->parts = r.At<float>(parts);
  s->h = r.At<float>(h), s->c = r.At<float>(c);
  s->c_next = r.At<float>(c_next);
  s->candidate = r.At<float>(candidate);
}
void RecurrenceLowering::ForwardRefs::Bind(const Run& r, kernels::CellForwardStep* s) const {
  StepRefs::Bind(r, s);
  s->bias = r.At<float>(bias);
  s->state_parts = r.At<float>(state_parts);
  s->state_bias = r.At<float>(state_bias);
  s->h_next = r.At<float>(h_next);
  s->state_next = r.At<>(state_next);
  s->reset = r.At<>(reset);
}
void RecurrenceLowering::BackwardRefs::Bind(const Run& r, kernels::CellBackwardStep* s) const {
  StepRefs::Bind(r, s);
  s->dy = r.At<float>(dy);
  s->dcell = r.At<float>(dcell);
  s->dstate = r.At<float>(dstate);
  s->dh = r.At<float>(dh), s->dc = r.At<float>(dc);
  s->dparts = r.At<>(dparts);
  s->dstate_parts = r.At<>(dstate_parts);
  s->dreset = r.At<float>(dreset);
  s->dcandidate = r.At<>(dcandidate);
}

RecurrenceLowering::StepRefs RecurrenceLowering::RefsOf(int64_t step) const {
  StepRefs f;
  f.mask = mask_;
  if (mask_) f.mask.offset += s_.InputStep(step) * SizeOf(DType::kFloat32);
  f.factors = state_factors_;
  f.parts = kept_.parts.At(step);
  f.h = kept_.h.At(step);
  f.c = kept_.c.At(step);
  f.c_next = kept_.c.At(step + 1);
  if (s_.ResetsAfter()) f.candidate = kept_.candidate.At(step);
  return f;
}

void RecurrenceLowering::EmitForward(int64_t step) const {
  ForwardRefs f{RefsOf(step)};
  f.h_next = kept_.h.At(step + 1);
  if (step + 1 < s_.steps) f.state_next = kept_.states.At(step + 1);
  f.bias = weights_.bias();
  const Ref state = kept_.states.At(step);
  if (windows_ != nullptr) {
    windows_->EmitState(state, f.parts);
    return EmitCellForward(Cell::kLstm, f);
  }
  Product product{.m = s_.examples, .n = s_.width(), .k = s_.units(), .out = DType::kFloat32};
  if (s_.r.cell != RecurrentCell::kGru) {
    EmitProduct(b_, product, state, weights_.recurrent(), f.parts, /*add=*/true);
    return EmitCellForward(s_.r.cell == RecurrentCell::kSimple ? Cell::kSimple : Cell::kLstm, f);
  }
  f.state_parts = kept_.state_parts;
  if (s_.r.reset_after) {
    f.state_bias = weights_.state_bias();
    EmitProduct(b_, product, state, weights_.recurrent(), f.state_parts);
    return EmitCellForward(Cell::kGru, f);
  }
  product.n = 2 * s_.units();
  EmitProduct(b_, product, state, weights_.recurrent(), f.state_parts);
  f.reset = kept_.candidate.At(step);
  EmitCellForward(Cell::kGruGates, f);
  product.n = s_.units();
  EmitProduct(b_, product, f.reset, weights_.candidate(), f.state_parts);
  f.reset = {};
  EmitCellForward(Cell::kGruCandidate, f);
}

void RecurrenceLowering::EmitCellForward(Cell cell, ForwardRefs f) const {
  std::vector<Ref> writes = {f.parts};
  if (cell == Cell::kGruGates) {
    f.h_next = f.state_next = {};
    writes.push_back(f.reset);
  } else {
    for (const Ref& ref : {f.h_next, f.state_next, f.candidate}) writes.push_back(ref);
  }
  if (cell == Cell::kLstm) writes.push_back(f.c_next);
  b_.Emit("cell", {f.mask, f.factors, f.parts, f.bias, f.state_parts, f.state_bias, f.h, f.c}, std::move(writes),
          [cell, f, shape = CellShapeOf()](const Run& r) {
            kernels::CellForwardStep s{{shape}};
            f.Bind(r, &s);
            return kernels::CellForward(r.stream(), cell, s);
          });
}

void RecurrenceLowering::SetOutputGradients(int64_t step, const StateGradients& d, BackwardRefs* f) const {
  if (!s_.r.return_sequences && step + 1 < s_.steps) return;
  const int64_t bytes = s_.r.return_sequences ? step_numbers() * SizeOf(DType::kFloat32) : 0;
  f->dy = StepBuffer{d.h, bytes}.At(step);
  f->dcell = StepBuffer{d.c, bytes}.At(step);
}

void RecurrenceLowering::EmitBackward(int64_t step, const StateGradients& d) const {
  BackwardRefs f{RefsOf(step)};
  const bool last = step + 1 == s_.steps;
  SetOutputGradients(step, d, &f);
  if (!last) f.dstate = gradients_.state;
  f.dh = gradients_.h;
  f.dc = gradients_.c;
  f.dparts = gradients_.parts.At(step);
  if (windows_ != nullptr) {
    EmitCellBackward(Cell::kLstm, f, last);
    return windows_->EmitStateGradient(f.dparts, gradients_.state);
  }
  Product product{.m = s_.examples, .n = s_.units(), .k = s_.width(), .transpose_b = true, .out = DType::kFloat32};
  if (s_.r.cell != RecurrentCell::kGru) {
    EmitCellBackward(s_.r.cell == RecurrentCell::kSimple ? Cell::kSimple : Cell::kLstm, f, last);
    return EmitProduct(b_, product, f.dparts, weights_.recurrent(), gradients_.state);
  }
  f.dstate_parts = gradients_.state_parts.At(step);
  if (s_.r.reset_after) {
    EmitCellBackward(Cell::kGru, f, last);
    return EmitProduct(b_, product, f.dstate_parts, weights_.recurrent(), gradients_.state);
  }
  f.dcandidate = gradients_.candidate.At(step);
  EmitCellBackward(Cell::kGruCandidate, f, last);
  product.k = s_.units();
  EmitProduct(b_, product, f.dcandidate, weights_.candidate(), gradients_.state);
  f.dreset = gradients_.state;
  EmitCellBackward(Cell::kGruGates, f, last);
  product.k = 2 * s_.units();
  EmitProduct(b_, product, f.dstate_parts, weights_.recurrent(), gradients_.state, /*add=*/true);
}

void RecurrenceLowering::EmitCellBackward(Cell cell, BackwardRefs f, bool last) const {
  std::vector<Ref> reads = {f.mask, f.factors, f.parts, f.h, f.c, f.c_next, f.candidate}, writes = {f.dparts};
  if (cell == Cell::kGruGates) {
    f.dy = f.dcell = f.dstate = f.dh = f.dc = {};
    reads.push_back(f.dreset);
    for (const Ref& ref : {f.dreset, f.dstate_parts}) writes.push_back(ref);
  } else {
    for (const Ref& ref : {f.dy, f.dcell, f.dstate}) reads.push_back(ref);
    if (!last) {
      for (const Ref& ref : {f.dh, f.dc}) reads.push_back(ref);
    }
    for (const Ref& ref : {f.dh, f.dc, f.dstate_parts, f.dcandidate}) writes.push_back(ref);
  }
  b_.Emit("cell backward", std::move(reads), std::move(writes), [cell, f, last, shape = CellShapeOf()](const Run& r) {
    kernels::CellBackwardStep s{{shape}};
    f.Bind(r, &s);
    s.last = last;
    return kernels::CellBackward(r.stream(), cell, s);
  });
}

// ---- the gradients of the first states, of the weights and of the input ----

void RecurrenceLowering::EmitFirstGradient(Value* to, const Ref& d, const Ref& dstate, const Ref& factors) const {
  if (to == nullptr || !to->needs_gradient) return;
  const Builder::Sink sink = b_.GradientSink(to);
  std::vector<Ref> reads = {d, dstate, factors};
  if (sink.add) reads.push_back(sink.ref);
  b_.Emit("first state backward", std::move(reads), {sink.ref}, [=, n = step_numbers(), t = b_.type()](const Run& r) {
    return kernels::StateGradient(r.stream(), n, r.At<float>(d), r.At<float>(dstate), r.At<float>(factors),
                                  r.At<>(sink.ref), t, sink.add);
  });
}

void RecurrenceLowering::EmitWeightGradients() const {
  const Ref& dparts = gradients_.parts.ref;
  const Ref& dstate_parts = gradients_.state_parts.ref;
  if (windows_ != nullptr) {
    windows_->EmitKernelGradients(kept_.packed, kept_.states.ref, dparts);
    return weights_.EmitBiasGradient(dparts, dstate_parts);
  }
  weights_.EmitKernelGradient(kept_.packed, dparts);
  if (s_.ResetsBefore()) {
    weights_.EmitRecurrentGradient(kept_.states.ref, dstate_parts, 0, 2 * s_.units());
    weights_.EmitRecurrentGradient(kept_.candidate.ref, gradients_.candidate.ref, 2 * s_.units(), s_.units());
  } else {
    weights_.EmitRecurrentGradient(kept_.states.ref, s_.r.cell == RecurrentCell::kGru ? dstate_parts : dparts, 0,
                                   s_.width());
  }
  weights_.EmitBiasGradient(dparts, dstate_parts);
}

void RecurrenceLowering::EmitInputGradient(Value* in) const {
  const Ref dx = b_.NewNumbers(s_.steps * s_.examples * s_.features, b_.type());
  if (windows_ != nullptr) {
    windows_->EmitInputGradient(gradients_.parts.ref, dx);
  } else {
    EmitProduct(b_, {.m = s_.rows(), .n = s_.features, .k = s_.width(), .transpose_b = true, .out = b_.type()},
                gradients_.parts.ref, weights_.kernel(), dx);
  }
  const Builder::Sink sink = b_.GradientSink(in);
  std::vector<Ref> reads = {dx, input_factors_};
  if (sink.add) reads.push_back(sink.ref);
  b_.Emit("unpack steps", std::move(reads), {sink.ref},
          [s = Packing(), dx, sink, f = input_factors_, t = b_.type()](const Run& r) mutable {
            s.factors = r.At<float>(f);
            return kernels::UnpackSteps(r.stream(), s, r.At<>(dx), r.At<>(sink.ref), t, sink.add);
          });
}

}  // namespace cairn::cudnn
