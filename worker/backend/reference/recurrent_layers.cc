// SimpleRNN, LSTM, GRU, Bidirectional: example by example, step by step (common/model/recurrent.h has the formulas).
#include <algorithm>

#include "common/model/recurrent.h"
#include "worker/backend/dropout.h"
#include "worker/backend/reference/reference_layer.h"

namespace cairn::reference {
namespace {

using Numbers = std::vector<double>;

// One recurrence on one example. What the way back needs is kept, in the order in which steps are computed.
struct Walk {
  const Recurrence& r;
  int64_t steps = 0, features = 0;
  In x, kernel, recurrent_kernel, bias;
  absl::Span<const float> step_mask, input_factors, state_factors;  // of the example; empty: all 1
  Numbers h, c;       // [steps + 1, units]: the state before each step, and the last one
  Numbers parts;      // [steps, gates * units]: before the activations
  Numbers candidate;  // [steps, units]: GRU with reset_after: h U + b[1] of the third part
  int64_t gates() const { return r.gates() * r.units; }
  int64_t InputStep(int64_t step) const { return r.go_backwards ? steps - 1 - step : step; }
  bool Counts(int64_t step) const { return step_mask.empty() || step_mask[InputStep(step)] != 0; }
  double Input(int64_t step, int64_t i) const {
    return x[InputStep(step) * features + i] * (input_factors.empty() ? 1.0 : input_factors[i]);
  }
  double StateFactor(int64_t i) const { return state_factors.empty() ? 1.0 : state_factors[i]; }
  // The state that meets the recurrent kernel.
  double State(int64_t step, int64_t i) const { return h[step * r.units + i] * StateFactor(i); }
  double U(int64_t i, int64_t part) const { return recurrent_kernel[i * gates() + part]; }
};

Numbers Activated(v1::Activation f, In x) {
  Numbers y(x.size());
  Activate({f, RecurrentAlpha(f), 1}, x, absl::MakeSpan(y));
  return y;
}

double ActivatedOne(v1::Activation f, double x) { return Activated(f, {&x, 1})[0]; }

double SlopeOf(v1::Activation f, double x) {
  const double y = ActivatedOne(f, x), one = 1;
  double slope = 0;
  ActivateBackward({f, RecurrentAlpha(f), 1}, {&x, 1}, {&y, 1}, {&one, 1}, {&slope, 1});
  return slope;
}

// x W + b of one part of one step.
double InputPart(const Walk& w, int64_t step, int64_t part) {
  double sum = w.bias.empty() ? 0.0 : w.bias[part];  // of a GRU with reset_after b[0]
  for (int64_t i = 0; i < w.features; ++i) sum += w.Input(step, i) * w.kernel[i * w.gates() + part];
  return sum;
}

double RecurrentPart(const Walk& w, int64_t step, int64_t part) {
  double sum = 0;
  for (int64_t i = 0; i < w.r.units; ++i) sum += w.State(step, i) * w.U(i, part);
  if (w.r.cell == RecurrentCell::kGru && w.r.reset_after && !w.bias.empty()) sum += w.bias[w.gates() + part];
  return sum;
}

void ForwardStep(Walk& w, int64_t step) {
  const int64_t units = w.r.units;
  double* const parts = w.parts.data() + step * w.gates();
  const double* const h = w.h.data() + step * units;
  double* const next = w.h.data() + (step + 1) * units;
  const bool gru = w.r.cell == RecurrentCell::kGru;
  for (int64_t p = 0; p < w.gates(); ++p) {
    parts[p] = InputPart(w, step, p);
    if (!gru || p < 2 * units) parts[p] += RecurrentPart(w, step, p);
  }
  for (int64_t u = 0; gru && u < units; ++u) {
    const int64_t part = 2 * units + u;
    if (w.r.reset_after) {
      w.candidate[step * units + u] = RecurrentPart(w, step, part);
      parts[part] += ActivatedOne(w.r.recurrent_activation, parts[units + u]) * w.candidate[step * units + u];
      continue;
    }
    for (int64_t i = 0; i < units; ++i) {
      parts[part] += ActivatedOne(w.r.recurrent_activation, parts[units + i]) * w.State(step, i) * w.U(i, part);
    }
  }
  for (int64_t u = 0; u < units; ++u) {
    const auto gate = [&](int64_t which) { return ActivatedOne(w.r.recurrent_activation, parts[which * units + u]); };
    const auto value = [&](int64_t which) { return ActivatedOne(w.r.activation, parts[which * units + u]); };
    switch (w.r.cell) {
      case RecurrentCell::kSimple: next[u] = value(0); break;
      case RecurrentCell::kLstm: {
        const double c = gate(1) * w.c[step * units + u] + gate(0) * value(2);
        w.c[(step + 1) * units + u] = c;
        next[u] = gate(3) * ActivatedOne(w.r.activation, c);
        break;
      }
      case RecurrentCell::kGru: next[u] = gate(0) * h[u] + (1 - gate(0)) * value(2); break;
    }
  }
  if (w.Counts(step)) return;
  std::copy_n(h, units, next);
  if (!w.c.empty()) std::copy_n(w.c.data() + step * units, units, w.c.data() + (step + 1) * units);
}

struct Gradients {
  Out x, kernel, recurrent_kernel, bias;  // added to
  Numbers h, c;                           // of the state behind the step at hand; then of that before it
};

// The gradients of one step.
struct StepGradients {
  Numbers parts;  // of x W + b
  Numbers state;  // of h U: the same but for a GRU's candidate
  Numbers h;      // of the state before the step
};

// The parts of one step after their activations.
struct StepParts {
  const Walk& w;
  const int64_t step;
  double part(int64_t which, int64_t u) const { return w.parts[step * w.gates() + which * w.r.units + u]; }
  double gate(int64_t which, int64_t u) const { return ActivatedOne(w.r.recurrent_activation, part(which, u)); }
  double value(int64_t which, int64_t u) const { return ActivatedOne(w.r.activation, part(which, u)); }
  double slope(bool of_gate, int64_t which, int64_t u) const {
    return SlopeOf(of_gate ? w.r.recurrent_activation : w.r.activation, part(which, u));
  }
};

// d of the parts that are applied to the states; of a GRU without its second part.
void CellBackward(const StepParts& of, Gradients& g, StepGradients& d) {
  const Walk& w = of.w;
  const int64_t step = of.step, units = w.r.units;
  for (int64_t u = 0; u < units; ++u) {
    switch (w.r.cell) {
      case RecurrentCell::kSimple: d.parts[u] = g.h[u] * of.slope(false, 0, u); break;
      case RecurrentCell::kLstm: {
        const double before = w.c[step * units + u], after = w.c[(step + 1) * units + u];
        const double dc = g.c[u] + g.h[u] * of.gate(3, u) * SlopeOf(w.r.activation, after);
        d.parts[u] = dc * of.value(2, u) * of.slope(true, 0, u);
        d.parts[units + u] = dc * before * of.slope(true, 1, u);
        d.parts[2 * units + u] = dc * of.gate(0, u) * of.slope(false, 2, u);
        d.parts[3 * units + u] = g.h[u] * ActivatedOne(w.r.activation, after) * of.slope(true, 3, u);
        g.c[u] = dc * of.gate(1, u);
        break;
      }
      case RecurrentCell::kGru: {
        const double before = w.h[step * units + u];
        d.parts[u] = g.h[u] * (before - of.value(2, u)) * of.slope(true, 0, u);
        d.parts[2 * units + u] = g.h[u] * (1 - of.gate(0, u)) * of.slope(false, 2, u);
        d.h[u] = g.h[u] * of.gate(0, u);
        break;
      }
    }
  }
  d.state = d.parts;
}

// d of a GRU's second part, through its third.
void ResetBackward(const StepParts& of, Gradients& g, StepGradients& d) {
  const Walk& w = of.w;
  const int64_t step = of.step, units = w.r.units, gates = w.gates();
  if (w.r.reset_after) {
    for (int64_t u = 0; u < units; ++u) {
      const double third = d.parts[2 * units + u];
      d.parts[units + u] = d.state[units + u] = third * w.candidate[step * units + u] * of.slope(true, 1, u);
      d.state[2 * units + u] = third * of.gate(1, u);
    }
    return;
  }
  // The third part's product is of r h.
  for (int64_t i = 0; i < units; ++i) {
    double reset = 0;  // of r h
    for (int64_t u = 0; u < units; ++u) {
      reset += d.parts[2 * units + u] * w.U(i, 2 * units + u);
      g.recurrent_kernel[i * gates + 2 * units + u] += d.parts[2 * units + u] * of.gate(1, i) * w.State(step, i);
    }
    d.parts[units + i] = d.state[units + i] = reset * w.State(step, i) * of.slope(true, 1, i);
    d.h[i] += reset * of.gate(1, i) * w.StateFactor(i);
  }
  for (int64_t u = 0; u < units; ++u) d.state[2 * units + u] = 0;
}

// d of the parts, then of everything that they are made of.
void BackwardStep(const Walk& w, int64_t step, Gradients& g) {
  if (!w.Counts(step)) return;  // the states' gradients pass
  const int64_t units = w.r.units, gates = w.gates();
  const bool gru = w.r.cell == RecurrentCell::kGru;
  StepGradients d{.parts = Numbers(gates, 0.0), .state = {}, .h = Numbers(units, 0.0)};
  CellBackward({w, step}, g, d);
  if (gru) ResetBackward({w, step}, g, d);
  for (int64_t i = 0; i < units; ++i) {
    for (int64_t p = 0; p < gates; ++p) {
      g.recurrent_kernel[i * gates + p] += w.State(step, i) * d.state[p];
      d.h[i] += d.state[p] * w.U(i, p) * w.StateFactor(i);
    }
  }
  for (int64_t p = 0; p < gates && !g.bias.empty(); ++p) {
    g.bias[p] += d.parts[p];
    if (gru && w.r.reset_after) g.bias[gates + p] += d.state[p];
  }
  for (int64_t i = 0; i < w.features; ++i) {
    const double factor = w.input_factors.empty() ? 1.0 : w.input_factors[i];
    for (int64_t p = 0; p < gates; ++p) {
      g.kernel[i * gates + p] += w.Input(step, i) * d.parts[p];
      g.x[w.InputStep(step) * w.features + i] += d.parts[p] * w.kernel[i * gates + p] * factor;
    }
  }
  g.h = std::move(d.h);
}

// ---- what goes out ----

// What the state behind `step` is multiplied by on its way out: 0 where the step is masked, or all until there are.
double OutputFactor(const Walk& w, int64_t step) {
  if (w.r.zero_masked) return w.Counts(step) ? 1 : 0;
  for (int64_t s = 0; s <= step; ++s) {
    if (w.Counts(s)) return 1;
  }
  return 0;
}

// Calls fn(step, place among the output's steps).
template <typename Fn>
void ForEachOutput(const Walk& w, Fn fn) {
  if (!w.r.return_sequences) return fn(w.steps - 1, 0);
  for (int64_t step = 0; step < w.steps; ++step) fn(step, w.r.turned ? w.steps - 1 - step : step);
}

// Behind the output of the units, with return_cell: the state h, then c.
double OutputOf(const Walk& w, int64_t place, int64_t number) {
  const int64_t u = number % w.r.units;
  const int64_t step = !w.r.return_sequences ? w.steps - 1 : w.r.turned ? w.steps - 1 - place : place;
  if (number / w.r.units == 2) return w.c[(step + 1) * w.r.units + u];
  return w.h[(step + 1) * w.r.units + u] * (number < w.r.units ? OutputFactor(w, step) : 1);
}

// ---- the layer ----

std::vector<Walk> WalksOf(const Pass& p, const RecurrentLayer& layer, int64_t e) {
  const int64_t steps = p.shape()[0], features = p.shape()[1];
  std::vector<Walk> walks;
  for (const Recurrence& r : layer.recurrences) {
    Walk& w = walks.emplace_back(Walk{r});
    w.steps = steps;
    w.features = features;
    w.x = In(p.x()).subspan(e * steps * features, steps * features);
    w.kernel = p.value(r.kernel);
    w.recurrent_kernel = p.value(r.recurrent_kernel);
    if (r.bias >= 0) w.bias = p.value(r.bias);
    if (!p.step_mask().empty()) w.step_mask = p.step_mask().subspan(e * steps, steps);
    const absl::Span<const float> factors = p.here().mask;
    if (!factors.empty()) {
      w.input_factors = factors.subspan(RecurrentMaskBegin(r, false, p.examples(), features) + e * features, features);
      w.state_factors = factors.subspan(RecurrentMaskBegin(r, true, p.examples(), features) + e * r.units, r.units);
    }
  }
  return walks;
}

// The masks of all recurrences; empty without dropout.
void FillFactors(const Pass& p, const RecurrentLayer& layer) {
  std::vector<float>& factors = p.here().mask;
  factors.clear();
  bool any = false;
  for (const Recurrence& r : layer.recurrences) any |= r.dropout > 0 || r.recurrent_dropout > 0;
  if (p.training() == nullptr || !any) return;
  const int64_t features = p.shape()[1];
  const Recurrence& last = layer.recurrences.back();
  factors.assign(RecurrentMaskBegin(last, true, p.examples(), features) + p.examples() * last.units, 1.0f);
  for (const Recurrence& r : layer.recurrences) {
    const auto fill = [&](bool of_state, float rate, int64_t numbers) {
      if (rate == 0) return;
      const int64_t begin = RecurrentMaskBegin(r, of_state, p.examples(), features);
      DropoutMask(*p.training(), p.node().id, rate).Fill(begin, absl::MakeSpan(factors).subspan(begin, numbers));
    };
    fill(false, r.dropout, p.examples() * features);
    fill(true, r.recurrent_dropout, p.examples() * r.units);
  }
}

// Kept, of each example and recurrence: h, c, parts, candidate.
constexpr size_t kKept = 4;

absl::Status Recur(const Pass& p) {
  const RecurrentLayer layer = RecurrentLayerOf(p.graph(), p.node());
  FillFactors(p, layer);
  std::vector<Numbers>& kept = p.here().kept;
  kept.clear();
  const int64_t size = NumElements(p.node().output), width = p.node().output.back();
  for (int64_t e = 0; e < p.examples(); ++e) {
    std::vector<Walk> walks = WalksOf(p, layer, e);
    for (Walk& w : walks) {
      const int64_t units = w.r.units;
      w.h.assign((w.steps + 1) * units, 0.0);
      if (w.r.cell == RecurrentCell::kLstm) w.c.assign((w.steps + 1) * units, 0.0);
      if (w.r.cell == RecurrentCell::kGru) w.candidate.assign(w.steps * units, 0.0);
      w.parts.assign(w.steps * w.gates(), 0.0);
      if (w.r.state_input >= 0) std::copy_n(p.x(w.r.state_input).data() + e * units, units, w.h.data());
      if (w.r.state_input >= 0 && !w.c.empty()) {
        std::copy_n(p.x(w.r.state_input + 1).data() + e * units, units, w.c.data());
      }
      for (int64_t step = 0; step < w.steps; ++step) ForwardStep(w, step);
    }
    for (int64_t i = 0; i < size; ++i) {
      const int64_t place = i / width, u = i % width, first = walks[0].r.width();
      const double one = u < first ? OutputOf(walks[0], place, u) : 0;
      double& y = p.y()[e * size + i];
      switch (layer.merge) {
        case RecurrentMerge::kOne: y = one; break;
        case RecurrentMerge::kConcat: y = u < first ? one : OutputOf(walks[1], place, u - first); break;
        case RecurrentMerge::kSum: y = one + OutputOf(walks[1], place, u); break;
        case RecurrentMerge::kAverage: y = (one + OutputOf(walks[1], place, u)) / 2; break;
        case RecurrentMerge::kMultiply: y = one * OutputOf(walks[1], place, u); break;
      }
    }
    for (Walk& w : walks) {
      for (Numbers* numbers : {&w.h, &w.c, &w.parts, &w.candidate}) kept.push_back(std::move(*numbers));
    }
  }
  return absl::OkStatus();
}

// One of two recurrences on an example.
struct Direction {
  const Pass& p;
  const RecurrentLayer& layer;
  const std::vector<Walk>& walks;
  size_t which;
  int64_t example;
};

// d of one number of its output.
double OutputGradient(const Direction& of, int64_t place, int64_t u) {
  const auto& [p, layer, walks, which, e] = of;
  const int64_t size = NumElements(p.node().output), width = p.node().output.back();
  const bool behind = layer.merge == RecurrentMerge::kConcat && which == 1;
  const double d = p.dy()[e * size + place * width + (behind ? walks[0].r.width() : 0) + u];
  if (layer.merge == RecurrentMerge::kAverage) return d / 2;
  if (layer.merge == RecurrentMerge::kMultiply) return d * OutputOf(walks[1 - which], place, u);
  return d;
}

void RecurBackward(const Pass& p) {
  const RecurrentLayer layer = RecurrentLayerOf(p.graph(), p.node());
  std::vector<Numbers>& kept = p.here().kept;
  for (int64_t e = 0; e < p.examples(); ++e) {
    std::vector<Walk> walks = WalksOf(p, layer, e);
    for (size_t which = 0; which < walks.size(); ++which) {
      Numbers* const from = kept.data() + (e * walks.size() + which) * kKept;
      walks[which].h = from[0], walks[which].c = from[1], walks[which].parts = from[2],
      walks[which].candidate = from[3];
    }
    for (size_t which = 0; which < walks.size(); ++which) {
      const Walk& w = walks[which];
      const int64_t units = w.r.units;
      Gradients g{p.dx().subspan(e * w.steps * w.features, w.steps * w.features),
                  p.gradient_of(w.r.kernel),
                  p.gradient_of(w.r.recurrent_kernel),
                  w.r.bias >= 0 ? p.gradient_of(w.r.bias) : Out(),
                  Numbers(units, 0.0),
                  Numbers(units, 0.0)};
      Numbers outputs(w.steps * units, 0.0), cells(w.steps * units, 0.0);
      const Direction direction{p, layer, walks, which, e};
      ForEachOutput(w, [&](int64_t step, int64_t place) {
        for (int64_t u = 0; u < units; ++u) {
          outputs[step * units + u] = OutputGradient(direction, place, u) * OutputFactor(w, step);
          if (!w.r.return_cell) continue;
          outputs[step * units + u] += OutputGradient(direction, place, units + u);
          cells[step * units + u] = OutputGradient(direction, place, 2 * units + u);
        }
      });
      for (int64_t step = w.steps; step-- > 0;) {
        for (int64_t u = 0; u < units; ++u) {
          g.h[u] += outputs[step * units + u];
          g.c[u] += cells[step * units + u];
        }
        BackwardStep(w, step, g);
      }
      for (int64_t s = 0; s < w.r.states() && w.r.state_input >= 0; ++s) {
        const Numbers& from = s == 0 ? g.h : g.c;
        for (int64_t u = 0; u < units; ++u) p.dx(w.r.state_input + s)[e * units + u] += from[u];
      }
    }
  }
}

constexpr Layer kLayers[] = {
    {LayerKind::kSimpleRNN, Recur, RecurBackward},
    {LayerKind::kLSTM, Recur, RecurBackward},
    {LayerKind::kGRU, Recur, RecurBackward},
    {LayerKind::kBidirectional, Recur, RecurBackward},
};

}  // namespace

absl::Span<const Layer> RecurrentLayers() { return kLayers; }

}  // namespace cairn::reference
