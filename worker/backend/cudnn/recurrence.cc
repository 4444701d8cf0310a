#include "worker/backend/cudnn/recurrence.h"

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
      r_(recurrence),
      t_(builder.type()),
      n_(builder.examples()),
      steps_(builder.ShapeOf(node)[0]),
      features_(builder.ShapeOf(node)[1]),
      units_(recurrence.units),
      width_(recurrence.gates() * recurrence.units),
      mask_(mask),
      trains_(builder.groups().Trains(node)) {
  kernel_ = &builder.VariableAt(r_.kernel);
  recurrent_ = &builder.VariableAt(r_.recurrent_kernel);
  if (r_.bias >= 0) bias_ = &builder.VariableAt(r_.bias);
}

// state: its first h and c, or none.
void RecurrenceLowering::Forward(const Value& in, const Value* h, const Value* c) {
  input_factors_ = Factors(false, r_.dropout, features_);
  state_factors_ = Factors(true, r_.recurrent_dropout, units_);
  const Ref x = b_.Read(in, t_);
  packed_ = b_.NewNumbers(steps_ * n_ * features_, t_);
  b_.Emit("pack steps", {x, input_factors_}, {packed_},
          [s = Packing(), x, to = packed_, f = input_factors_, t = t_](const Run& r) mutable {
            s.factors = r.At<float>(f);
            return kernels::PackSteps(r.stream(), s, r.At<>(x), r.At<>(to), t);
          });
  input_weights_ = InType(b_.ValueOf(kernel_), features_ * width_);
  parts_ = b_.NewNumbers(steps_ * n_ * width_, DType::kFloat32);
  EmitProduct(b_, {.m = steps_ * n_, .n = width_, .k = features_, .out = DType::kFloat32}, packed_, input_weights_, {},
              parts_);
  PrepareWeights();
  h_ = b_.NewNumbers((steps_ + 1) * n_ * units_, DType::kFloat32);
  states_ = b_.NewNumbers(steps_ * n_ * units_, t_);
  if (r_.cell == RecurrentCell::kLstm) c_ = b_.NewNumbers((steps_ + 1) * n_ * units_, DType::kFloat32);
  if (r_.cell == RecurrentCell::kGru) {
    candidate_ = b_.NewNumbers(steps_ * n_ * units_, r_.reset_after ? DType::kFloat32 : t_);
    state_parts_ = b_.NewNumbers(n_ * width_, DType::kFloat32);
  }
  EmitStart(h, h_, states_, state_factors_);
  if (r_.cell == RecurrentCell::kLstm) EmitStart(c, c_, {}, {});
  for (int64_t step = 0; step < steps_; ++step) EmitForward(step);
}

// d: of the states behind the steps, or, of the last one alone. h, c: where the first states' gradients go, or null.
void RecurrenceLowering::Backward(const Ref& d, Value* in, Value* h, Value* c) {
  dparts_ = b_.NewNumbers(steps_ * n_ * width_, t_);
  if (r_.cell == RecurrentCell::kGru)
    dstate_parts_ = b_.NewNumbers(steps_ * n_ * (r_.reset_after ? 3 : 2) * units_, t_);
  if (ResetsBefore()) dcandidate_ = b_.NewNumbers(steps_ * n_ * units_, t_);
  dh_ = b_.NewNumbers(n_ * units_, DType::kFloat32);
  dstate_ = b_.NewNumbers(n_ * units_, DType::kFloat32);
  if (r_.cell == RecurrentCell::kLstm) dc_ = b_.NewNumbers(n_ * units_, DType::kFloat32);
  for (int64_t step = steps_; step-- > 0;) EmitBackward(step, d);
  EmitFirstGradient(h, dh_, dstate_, state_factors_);
  if (r_.cell == RecurrentCell::kLstm) EmitFirstGradient(c, dc_, {}, {});
  if (!b_.Frozen(b_.current())) EmitWeightGradients();
  if (!in->needs_gradient) return;
  const Ref dx = b_.NewNumbers(steps_ * n_ * features_, t_);
  EmitProduct(b_, {.m = steps_ * n_, .n = features_, .k = width_, .transpose_b = true, .out = t_}, dparts_,
              input_weights_, {}, dx);
  const Builder::Sink sink = b_.GradientSink(in);
  std::vector<Ref> reads = {dx, input_factors_};
  if (sink.add) reads.push_back(sink.ref);
  b_.Emit("unpack steps", std::move(reads), {sink.ref},
          [s = Packing(), dx, sink, f = input_factors_, t = t_](const Run& r) mutable {
            s.factors = r.At<float>(f);
            return kernels::UnpackSteps(r.stream(), s, r.At<>(dx), r.At<>(sink.ref), t, sink.add);
          });
}

// Behind `numbers` numbers of a buffer for each example and step.
Ref RecurrenceLowering::At(const Ref& ref, int64_t step, int64_t numbers, DType type) const {
  if (!ref) return ref;
  Ref at = ref;
  at.offset += step * n_ * numbers * SizeOf(type);
  return at;
}
Ref RecurrenceLowering::InType(const Ref& weights, int64_t numbers) const {
  if (t_ == DType::kFloat32) return weights;
  const Ref copy = b_.NewNumbers(numbers, t_);
  EmitConvert(b_, weights, DType::kFloat32, copy, t_, numbers);
  return copy;
}

// The recurrent kernel as products take it: of a GRU that resets before them in two pieces.
void RecurrenceLowering::PrepareWeights() {
  const Ref all = InType(b_.ValueOf(recurrent_), units_ * width_);
  if (!ResetsBefore()) {
    weights_ = all;
    return;
  }
  weights_ = Piece(all, 0, 2 * units_);
  candidate_weights_ = Piece(all, 2 * units_, units_);
}
Ref RecurrenceLowering::Piece(const Ref& all, int64_t begin, int64_t width) const {
  const Ref piece = b_.NewNumbers(units_ * width, t_);
  b_.Emit("columns", {all}, {piece}, [=, rows = units_, whole = width_, t = t_](const Run& r) {
    return kernels::CopyColumns(r.stream(), rows, width, r.At<>(all), whole, begin, r.At<>(piece), width, 0, t, false);
  });
  return piece;
}

Ref RecurrenceLowering::Factors(bool of_state, float rate, int64_t numbers) const {
  if (!trains_ || rate == 0) return {};
  const Ref factors = b_.NewNumbers(n_ * numbers, DType::kFloat32), key{Ref::kKey};
  const int64_t begin = RecurrentMaskBegin(r_, of_state, n_, features_);
  b_.Emit(absl::StrCat("dropout ", rate), {key}, {factors}, [=, count = n_ * numbers, node = node_](const Run& r) {
    return kernels::DropoutFactors(r.stream(), begin, count, r.At<kernels::StepKey>(key), node, rate,
                                   r.At<float>(factors));
  });
  return factors;
}

void RecurrenceLowering::EmitStart(const Value* from, const Ref& to, const Ref& state, const Ref& factors) const {
  const Ref given = from == nullptr ? Ref{} : b_.Read(*from, t_);
  b_.Emit("first state", {given, factors}, {to, state}, [=, n = n_ * units_, t = t_](const Run& r) {
    return kernels::StartState(r.stream(), n, r.At<>(given), r.At<float>(factors), r.At<float>(to), r.At<>(state), t);
  });
}

void RecurrenceLowering::EmitFirstGradient(Value* to, const Ref& d, const Ref& dstate, const Ref& factors) const {
  if (to == nullptr || !to->needs_gradient) return;
  const Builder::Sink sink = b_.GradientSink(to);
  std::vector<Ref> reads = {d, dstate, factors};
  if (sink.add) reads.push_back(sink.ref);
  b_.Emit("first state backward", std::move(reads), {sink.ref}, [=, n = n_ * units_, t = t_](const Run& r) {
    return kernels::StateGradient(r.stream(), n, r.At<float>(d), r.At<float>(dstate), r.At<float>(factors),
                                  r.At<>(sink.ref), t, sink.add);
  });
}

// ---- one step ----

kernels::CellStep RecurrenceLowering::Fixed() const {
  kernels::CellStep s;
  s.examples = n_;
  s.units = units_;
  s.f = ActOf(r_.activation);
  s.gate = ActOf(r_.recurrent_activation);
  s.f_alpha = RecurrentAlpha(r_.activation);
  s.gate_alpha = RecurrentAlpha(r_.recurrent_activation);
  s.mask_stride = steps_;
  s.type = t_;
  return s;
}
void RecurrenceLowering::Bind(const StepRefs& f, const Run& r, kernels::CellStep* s) {
  s->mask = r.At<float>(f.mask);
  s->factors = r.At<float>(f.factors);
  s->parts = r.At<float>(f.parts);
  s->bias = r.At<float>(f.bias);
  s->state_parts = r.At<float>(f.state_parts);
  s->state_bias = r.At<float>(f.state_bias);
  s->h = r.At<float>(f.h), s->c = r.At<float>(f.c);
  s->h_next = r.At<float>(f.h_next), s->c_next = r.At<float>(f.c_next);
  s->state_next = r.At<>(f.state_next);
  s->candidate = r.At<float>(f.candidate);
  s->reset = r.At<>(f.reset);
  s->dy = r.At<float>(f.dy);
  s->dstate = r.At<float>(f.dstate);
  s->dh = r.At<float>(f.dh), s->dc = r.At<float>(f.dc);
  s->dparts = r.At<>(f.dparts);
  s->dstate_parts = r.At<>(f.dstate_parts);
  s->dreset = r.At<float>(f.dreset);
  s->dcandidate = r.At<>(f.dcandidate);
}
RecurrenceLowering::StepRefs RecurrenceLowering::CommonRefs(int64_t step) const {
  StepRefs f;
  const int64_t at = r_.go_backwards ? steps_ - 1 - step : step;
  if (mask_) {
    f.mask = mask_;
    f.mask.offset += at * 4;
  }
  f.factors = state_factors_;
  f.parts = At(parts_, step, width_, DType::kFloat32);
  f.h = At(h_, step, units_, DType::kFloat32);
  f.c = At(c_, step, units_, DType::kFloat32);
  f.c_next = At(c_, step + 1, units_, DType::kFloat32);
  if (ResetsAfter()) f.candidate = At(candidate_, step, units_, DType::kFloat32);
  return f;
}

void RecurrenceLowering::EmitForward(int64_t step) const {
  StepRefs f = CommonRefs(step);
  f.h_next = At(h_, step + 1, units_, DType::kFloat32);
  if (step + 1 < steps_) f.state_next = At(states_, step + 1, units_, t_);
  f.bias = b_.ValueOf(bias_);
  const Ref state = At(states_, step, units_, t_);
  Product product{.m = n_, .n = width_, .k = units_, .out = DType::kFloat32};
  if (r_.cell != RecurrentCell::kGru) {
    EmitProduct(b_, product, state, weights_, {}, f.parts, /*add=*/true);
    return EmitCellForward(r_.cell == RecurrentCell::kSimple ? Cell::kSimple : Cell::kLstm, f);
  }
  f.state_parts = state_parts_;
  if (r_.reset_after) {
    f.state_bias = f.bias;
    f.state_bias.offset += f.bias ? width_ * 4 : 0;
    EmitProduct(b_, product, state, weights_, {}, state_parts_);
    return EmitCellForward(Cell::kGru, f);
  }
  product.n = 2 * units_;
  EmitProduct(b_, product, state, weights_, {}, state_parts_);
  f.reset = At(candidate_, step, units_, t_);
  EmitCellForward(Cell::kGruGates, f);
  product.n = units_;
  EmitProduct(b_, product, f.reset, candidate_weights_, {}, state_parts_);
  f.reset = {};
  EmitCellForward(Cell::kGruCandidate, f);
}

void RecurrenceLowering::EmitCellForward(Cell cell, StepRefs f) const {
  std::vector<Ref> writes = {f.parts};
  if (cell == Cell::kGruGates) {
    f.h_next = f.state_next = {};
    writes.push_back(f.reset);
  } else {
    for (const Ref& ref : {f.h_next, f.state_next, f.candidate}) writes.push_back(ref);
  }
  if (cell == Cell::kLstm) writes.push_back(f.c_next);
  b_.Emit("cell", {f.mask, f.factors, f.parts, f.bias, f.state_parts, f.state_bias, f.h, f.c}, std::move(writes),
          [cell, f, s = Fixed()](const Run& r) mutable {
            Bind(f, r, &s);
            return kernels::CellForward(r.stream(), cell, s);
          });
}

void RecurrenceLowering::EmitBackward(int64_t step, const Ref& d) const {
  StepRefs f = CommonRefs(step);
  const bool last = step + 1 == steps_;
  if (r_.return_sequences) f.dy = At(d, step, units_, DType::kFloat32);
  if (!r_.return_sequences && last) f.dy = d;
  if (!last) f.dstate = dstate_;
  f.dh = dh_;
  f.dc = dc_;
  f.dparts = At(dparts_, step, width_, t_);
  Product product{.m = n_, .n = units_, .k = width_, .transpose_b = true, .out = DType::kFloat32};
  if (r_.cell != RecurrentCell::kGru) {
    EmitCellBackward(r_.cell == RecurrentCell::kSimple ? Cell::kSimple : Cell::kLstm, f, last);
    return EmitProduct(b_, product, f.dparts, weights_, {}, dstate_);
  }
  f.dstate_parts = At(dstate_parts_, step, (r_.reset_after ? 3 : 2) * units_, t_);
  if (r_.reset_after) {
    EmitCellBackward(Cell::kGru, f, last);
    return EmitProduct(b_, product, f.dstate_parts, weights_, {}, dstate_);
  }
  f.dcandidate = At(dcandidate_, step, units_, t_);
  EmitCellBackward(Cell::kGruCandidate, f, last);
  product.k = units_;
  EmitProduct(b_, product, f.dcandidate, candidate_weights_, {}, dstate_);
  f.dreset = dstate_;
  EmitCellBackward(Cell::kGruGates, f, last);
  product.k = 2 * units_;
  EmitProduct(b_, product, f.dstate_parts, weights_, {}, dstate_, /*add=*/true);
}

void RecurrenceLowering::EmitCellBackward(Cell cell, StepRefs f, bool last) const {
  std::vector<Ref> reads = {f.mask, f.factors, f.parts, f.h, f.c, f.c_next, f.candidate}, writes = {f.dparts};
  if (cell == Cell::kGruGates) {
    f.dy = f.dstate = f.dh = f.dc = {};
    reads.push_back(f.dreset);
    for (const Ref& ref : {f.dreset, f.dstate_parts}) writes.push_back(ref);
  } else {
    for (const Ref& ref : {f.dy, f.dstate}) reads.push_back(ref);
    if (!last) {
      for (const Ref& ref : {f.dh, f.dc}) reads.push_back(ref);
    }
    for (const Ref& ref : {f.dh, f.dc, f.dstate_parts, f.dcandidate}) writes.push_back(ref);
  }
  b_.Emit("cell backward", std::move(reads), std::move(writes), [cell, f, last, s = Fixed()](const Run& r) mutable {
    Bind(f, r, &s);
    s.last = last;
    return kernels::CellBackward(r.stream(), cell, s);
  });
}

// ---- the gradients of the weights ----

void RecurrenceLowering::EmitWeightGradients() const {
  const int64_t rows = steps_ * n_;
  EmitProduct(b_, {.m = features_, .n = width_, .k = rows, .transpose_a = true, .out = DType::kFloat32}, packed_,
              dparts_, {}, b_.GradientOf(kernel_));
  const Ref gradient = b_.GradientOf(recurrent_);
  Product product{.m = units_, .n = width_, .k = rows, .transpose_a = true, .out = DType::kFloat32};
  if (ResetsBefore()) {
    product.n = 2 * units_;
    PutPiece(product, states_, dstate_parts_, gradient, 0);
    product.n = units_;
    PutPiece(product, candidate_, dcandidate_, gradient, 2 * units_);
  } else {
    EmitProduct(b_, product, states_, r_.cell == RecurrentCell::kGru ? dstate_parts_ : dparts_, {}, gradient);
  }
  if (bias_ == nullptr) return;
  Ref sums = b_.GradientOf(bias_);
  EmitColumnSums(b_, dparts_, rows, width_, sums, t_);
  if (!ResetsAfter()) return;
  sums.offset += width_ * 4;
  EmitColumnSums(b_, dstate_parts_, rows, width_, sums, t_);
}
// C of the product into columns of a gradient.
void RecurrenceLowering::PutPiece(const Product& product, const Ref& a, const Ref& b, const Ref& gradient,
                                  int64_t begin) const {
  const Ref piece = b_.NewNumbers(product.m * product.n, DType::kFloat32);
  EmitProduct(b_, product, a, b, {}, piece);
  b_.Emit("columns", {piece}, {gradient}, [=, rows = product.m, width = product.n, whole = width_](const Run& r) {
    return kernels::CopyColumns(r.stream(), rows, width, r.At<>(piece), width, 0, r.At<>(gradient), whole, begin,
                                DType::kFloat32, false);
  });
}

}  // namespace cairn::cudnn
