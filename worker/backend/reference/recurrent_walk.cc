#include "worker/backend/reference/recurrent_walk.h"

#include <algorithm>
#include <utility>

namespace cairn::reference {
namespace {

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

// The parts of a step before the activations, whose products are those of matrices.
void MultiplyStep(Walk& w, int64_t step, double* parts) {
  const int64_t units = w.r.units;
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
}

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
  double part(int64_t which, int64_t u) const { return w.parts[step * w.width() + w.PartOf(which, u)]; }
  double gate(int64_t which, int64_t u) const { return ActivatedOne(w.r.recurrent_activation, part(which, u)); }
  double value(int64_t which, int64_t u) const { return ActivatedOne(w.r.activation, part(which, u)); }
  double slope(bool of_gate, int64_t which, int64_t u) const {
    return SlopeOf(of_gate ? w.r.recurrent_activation : w.r.activation, part(which, u));
  }
};

// d of the parts that are applied to the states; of a GRU without its second part.
void CellBackward(const StepParts& of, WalkGradients& g, StepGradients& d) {
  const Walk& w = of.w;
  const int64_t step = of.step, states = w.states();
  for (int64_t u = 0; u < states; ++u) {
    const auto to = [&](int64_t which) -> double& { return d.parts[w.PartOf(which, u)]; };
    switch (w.r.cell) {
      case RecurrentCell::kSimple: to(0) = g.h[u] * of.slope(false, 0, u); break;
      case RecurrentCell::kLstm: {
        const double before = w.c[step * states + u], after = w.c[(step + 1) * states + u];
        const double dc = g.c[u] + g.h[u] * of.gate(3, u) * SlopeOf(w.r.activation, after);
        to(0) = dc * of.value(2, u) * of.slope(true, 0, u);
        to(1) = dc * before * of.slope(true, 1, u);
        to(2) = dc * of.gate(0, u) * of.slope(false, 2, u);
        to(3) = g.h[u] * ActivatedOne(w.r.activation, after) * of.slope(true, 3, u);
        g.c[u] = dc * of.gate(1, u);
        break;
      }
      case RecurrentCell::kGru: {
        const double before = w.h[step * states + u];
        to(0) = g.h[u] * (before - of.value(2, u)) * of.slope(true, 0, u);
        to(2) = g.h[u] * (1 - of.gate(0, u)) * of.slope(false, 2, u);
        d.h[u] = g.h[u] * of.gate(0, u);
        break;
      }
    }
  }
  d.state = d.parts;
}

// d of a GRU's second part, through its third.
void ResetBackward(const StepParts& of, WalkGradients& g, StepGradients& d) {
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

// Adds d of a step to the gradients of the matrices and of what they multiply.
void MultiplyStepBackward(const Walk& w, int64_t step, StepGradients& d, WalkGradients& g) {
  const int64_t units = w.r.units, gates = w.gates();
  const bool after = w.r.cell == RecurrentCell::kGru && w.r.reset_after;
  for (int64_t i = 0; i < units; ++i) {
    for (int64_t p = 0; p < gates; ++p) {
      g.recurrent_kernel[i * gates + p] += w.State(step, i) * d.state[p];
      d.h[i] += d.state[p] * w.U(i, p) * w.StateFactor(i);
    }
  }
  for (int64_t p = 0; p < gates && !g.bias.empty(); ++p) {
    g.bias[p] += d.parts[p];
    if (after) g.bias[gates + p] += d.state[p];
  }
  for (int64_t i = 0; i < w.features; ++i) {
    for (int64_t p = 0; p < gates; ++p) {
      g.kernel[i * gates + p] += w.Input(step, i) * d.parts[p];
      g.x[w.InputStep(step) * w.features + i] += d.parts[p] * w.kernel[i * gates + p] * w.InputFactor(i);
    }
  }
}

}  // namespace

void ForwardStep(Walk& w, int64_t step) {
  const int64_t states = w.states();
  double* const parts = w.parts.data() + step * w.width();
  const double* const h = w.h.data() + step * states;
  double* const next = w.h.data() + (step + 1) * states;
  if (w.r.windows.axes > 0) {
    ConvolveStep(w, step, {parts, static_cast<size_t>(w.width())});
  } else {
    MultiplyStep(w, step, parts);
  }
  const StepParts of{w, step};
  for (int64_t u = 0; u < states; ++u) {
    switch (w.r.cell) {
      case RecurrentCell::kSimple: next[u] = of.value(0, u); break;
      case RecurrentCell::kLstm: {
        const double c = of.gate(1, u) * w.c[step * states + u] + of.gate(0, u) * of.value(2, u);
        w.c[(step + 1) * states + u] = c;
        next[u] = of.gate(3, u) * ActivatedOne(w.r.activation, c);
        break;
      }
      case RecurrentCell::kGru: next[u] = of.gate(0, u) * h[u] + (1 - of.gate(0, u)) * of.value(2, u); break;
    }
  }
  if (w.Counts(step)) return;
  std::copy_n(h, states, next);
  if (!w.c.empty()) std::copy_n(w.c.data() + step * states, states, w.c.data() + (step + 1) * states);
}

// d of the parts, then of everything that they are made of.
void BackwardStep(const Walk& w, int64_t step, WalkGradients& g) {
  if (!w.Counts(step)) return;  // the states' gradients pass
  StepGradients d{.parts = Numbers(w.width(), 0.0), .state = {}, .h = Numbers(w.states(), 0.0)};
  CellBackward({w, step}, g, d);
  if (w.r.windows.axes > 0) {
    g.h = ConvolveStepBackward(w, step, d.parts, g);
    return;
  }
  if (w.r.cell == RecurrentCell::kGru) ResetBackward({w, step}, g, d);
  MultiplyStepBackward(w, step, d, g);
  g.h = std::move(d.h);
}

}  // namespace cairn::reference
