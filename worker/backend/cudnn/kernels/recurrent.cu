// Recurrent layers: what is computed between their products, step by step.
#include "worker/backend/cudnn/kernels/activation.h"
#include "worker/backend/cudnn/kernels/numbers.h"
#include "worker/backend/cudnn/kernels/philox.h"
#include "worker/backend/cudnn/kernels/recurrent.h"

namespace cairn::cudnn::kernels {
namespace {

struct FactorsOf {
  int64_t begin;
  const StepKey* key;
  Draw draw;
  float keep;
  float* factors;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    factors[i] = DropoutFactors(*key, draw, keep, (begin + i) / 4).Of(i % 4);
  }
};

struct Pack {
  Steps s;
  Divider features, examples;
  bool unpack, add;
  In from;
  Out to;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    int64_t row, step;
    const int64_t feature = features.Split(i, &row);
    const int64_t example = examples.Split(row, &step);
    const int64_t at = s.backwards ? s.steps - 1 - step : step;
    const int64_t place = (example * s.steps + at) * s.features + feature;
    const float factor = s.factors == nullptr ? 1.0f : s.factors[example * s.features + feature];
    if (unpack) {
      SetOrAdd(to, place, At(from, i) * factor, add);
    } else {
      Set(to, i, At(from, place) * factor);
    }
  }
};

struct Start {
  In from;
  const float* factors;
  float* h;
  Out state;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    const float x = from.data == nullptr ? 0.0f : At(from, i);
    h[i] = x;
    if (state.data != nullptr) Set(state, i, factors == nullptr ? x : x * factors[i]);
  }
};

struct GradientOfState {
  const float *dh, *dstate, *factors;
  bool add;
  Out d;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    const float through = dstate == nullptr ? 0.0f : (factors == nullptr ? dstate[i] : dstate[i] * factors[i]);
    SetOrAdd(d, i, dh[i] + through, add);
  }
};

CAIRN_DEVICE float Slope(Act f, float alpha, float x) {
  return Derivative(f, alpha, TellsDerivative(f) ? Activate(f, alpha, x) : x);
}

// One unit of one row.
template <Cell kCell>
struct Forward {
  using Step = CellForwardStep;
  Step s;
  Divider units, positions;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    int64_t e;  // the row
    const int64_t u = units.Split(i, &e);
    const bool counts = s.mask == nullptr || s.mask[positions(e) * s.shape.mask_stride] != 0;
    const int64_t n = s.shape.units;
    float h = s.h[i];
    if constexpr (kCell == Cell::kSimple) {
      const float x = Part(e, u, 1, 0);
      h = counts ? F(x) : h;
    } else if constexpr (kCell == Cell::kLstm) {
      const float in = Part(e, u, 4, 0), forget = Part(e, u, 4, 1), value = Part(e, u, 4, 2), out = Part(e, u, 4, 3);
      const float before = s.c[i];
      const float c = counts ? Gate(forget) * before + Gate(in) * F(value) : before;
      s.c_next[i] = c;
      h = counts ? Gate(out) * F(c) : h;
    } else if constexpr (kCell == Cell::kGru) {
      const float* const state = s.state_parts + e * 3 * n;
      const auto of_state = [&](int64_t k) {
        return state[k * n + u] + (s.state_bias == nullptr ? 0.0f : s.state_bias[k * n + u]);
      };
      const float z = Sum(e, u, 0, of_state(0)), r = Sum(e, u, 1, of_state(1)), candidate = of_state(2);
      s.candidate[i] = candidate;
      const float value = Sum(e, u, 2, Gate(r) * candidate);
      h = counts ? Gate(z) * h + (1 - Gate(z)) * F(value) : h;
    } else if constexpr (kCell == Cell::kGruGates) {
      Sum(e, u, 0, s.state_parts[e * 2 * n + u]);
      const float r = Sum(e, u, 1, s.state_parts[(e * 2 + 1) * n + u]);
      Set({s.reset, s.shape.type}, i, Gate(r) * (s.factors == nullptr ? h : h * s.factors[i]));
      return;
    } else {
      const float z = s.parts[e * 3 * n + u], value = Sum(e, u, 2, s.state_parts[i]);
      h = counts ? Gate(z) * h + (1 - Gate(z)) * F(value) : h;
    }
    s.h_next[i] = h;
    if (s.state_next != nullptr) Set({s.state_next, s.shape.type}, i, s.factors == nullptr ? h : h * s.factors[i]);
  }
  CAIRN_DEVICE float F(float x) const { return Activate(s.shape.f, s.shape.f_alpha, x); }
  CAIRN_DEVICE float Gate(float x) const { return Activate(s.shape.gate, s.shape.gate_alpha, x); }
  // One of `parts` parts with its bias, which is kept.
  CAIRN_DEVICE float Part(int64_t e, int64_t u, int64_t parts, int64_t k) const {
    float* const at = s.parts + (e * parts + k) * s.shape.units + u;
    return *at += s.bias == nullptr ? 0.0f : s.bias[k * s.shape.units + u];
  }
  CAIRN_DEVICE float Sum(int64_t e, int64_t u, int64_t k, float of_state) const {
    Part(e, u, 3, k);
    return s.parts[(e * 3 + k) * s.shape.units + u] += of_state;
  }
};

template <Cell kCell>
struct Backward {
  using Step = CellBackwardStep;
  Step s;
  Divider units, positions;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    int64_t e;  // the row
    const int64_t u = units.Split(i, &e);
    const bool counts = s.mask == nullptr || s.mask[positions(e) * s.shape.mask_stride] != 0;
    const int64_t n = s.shape.units;
    if constexpr (kCell == Cell::kGruGates) {
      const float r = s.parts[(e * 3 + 1) * n + u], d = s.dreset[i];
      const float h = s.factors == nullptr ? s.h[i] : s.h[i] * s.factors[i];
      const float dr = d * h * GateSlope(r);
      Give(s.dparts, (e * 3 + 1) * n + u, dr);
      Give(s.dstate_parts, (e * 2 + 1) * n + u, dr);
      s.dreset[i] = d * Gate(r);
      return;
    }
    float dh = s.last ? 0.0f : s.dh[i];
    if (s.dstate != nullptr) dh += s.factors == nullptr ? s.dstate[i] : s.dstate[i] * s.factors[i];
    if (s.dy != nullptr) dh += s.dy[i];
    float before = 0;  // what goes on to the state before, besides the product
    if constexpr (kCell == Cell::kSimple) {
      const float x = s.parts[i];
      Give(s.dparts, i, counts ? dh * FSlope(x) : 0.0f);
    } else if constexpr (kCell == Cell::kLstm) {
      const float* const p = s.parts + e * 4 * n + u;
      const float c = s.c_next[i];
      const float dc_next = (s.last ? 0.0f : s.dc[i]) + (s.dcell == nullptr ? 0.0f : s.dcell[i]);
      const float dc = dc_next + dh * Gate(p[3 * n]) * FSlope(c);
      const int64_t at = e * 4 * n + u;
      Give(s.dparts, at, counts ? dc * F(p[2 * n]) * GateSlope(p[0]) : 0.0f);
      Give(s.dparts, at + n, counts ? dc * s.c[i] * GateSlope(p[n]) : 0.0f);
      Give(s.dparts, at + 2 * n, counts ? dc * Gate(p[0]) * FSlope(p[2 * n]) : 0.0f);
      Give(s.dparts, at + 3 * n, counts ? dh * F(c) * GateSlope(p[3 * n]) : 0.0f);
      s.dc[i] = counts ? dc * Gate(p[n]) : dc_next;
    } else {
      const float* const p = s.parts + e * 3 * n + u;
      const int64_t at = e * 3 * n + u;
      const float z = Gate(p[0]);
      const float dz = counts ? dh * (s.h[i] - F(p[2 * n])) * GateSlope(p[0]) : 0.0f;
      const float dvalue = counts ? dh * (1 - z) * FSlope(p[2 * n]) : 0.0f;
      before = dh * z;
      Give(s.dparts, at, dz);
      Give(s.dparts, at + 2 * n, dvalue);
      if constexpr (kCell == Cell::kGru) {
        const float dr = dvalue * s.candidate[i] * GateSlope(p[n]);
        Give(s.dparts, at + n, dr);
        Give(s.dstate_parts, at, dz);
        Give(s.dstate_parts, at + n, dr);
        Give(s.dstate_parts, at + 2 * n, dvalue * Gate(p[n]));
      } else {
        Give(s.dstate_parts, e * 2 * n + u, dz);
        Give(s.dcandidate, i, dvalue);
      }
    }
    s.dh[i] = counts ? before : dh;
  }
  CAIRN_DEVICE float F(float x) const { return Activate(s.shape.f, s.shape.f_alpha, x); }
  CAIRN_DEVICE float Gate(float x) const { return Activate(s.shape.gate, s.shape.gate_alpha, x); }
  CAIRN_DEVICE float FSlope(float x) const { return Slope(s.shape.f, s.shape.f_alpha, x); }
  CAIRN_DEVICE float GateSlope(float x) const { return Slope(s.shape.gate, s.shape.gate_alpha, x); }
  CAIRN_DEVICE void Give(void* to, int64_t i, float d) const { Set({to, s.shape.type}, i, d); }
};

// ---- outputs ----

// The factor of the state after `step` in the output.
CAIRN_DEVICE float OutputFactor(const RecurrentOutputs& o, const RecurrentOutput& of, int64_t example, int64_t step) {
  if (o.mask == nullptr) return 1.0f;
  const float* const mask = o.mask + example * o.steps;
  if (of.zero_masked) return mask[of.backwards ? o.steps - 1 - step : step];
  for (int64_t before = 0; before <= step; ++before) {
    if (mask[of.backwards ? o.steps - 1 - before : before] != 0) return 1.0f;
  }
  return 0.0f;
}

CAIRN_DEVICE int64_t StepAt(const RecurrentOutputs& o, const RecurrentOutput& of, int64_t place) {
  return !o.sequences ? o.steps - 1 : of.turned ? o.steps - 1 - place : place;
}

// A number of the output: that of a position of a place.
struct OutputNumber {
  int64_t example, place, position, number;
};

CAIRN_DEVICE float OutputAt(const RecurrentOutputs& o, const RecurrentOutput& of, const OutputNumber& at) {
  const int64_t step = StepAt(o, of, at.place);
  const int64_t row = ((step + 1) * o.examples + at.example) * o.positions + at.position;
  if (at.number < of.units) return of.h[row * of.units + at.number] * OutputFactor(o, of, at.example, step);
  const bool cell = at.number >= 2 * of.units;
  return (cell ? of.c : of.h)[row * of.units + at.number - (cell ? 2 : 1) * of.units];
}

// The numbers that a recurrence gives for each position.
int64_t WidthOf(const RecurrentOutput& of) { return of.c == nullptr ? of.units : 3 * of.units; }
int64_t WidthOf(const RecurrentOutputs& o) {
  return WidthOf(o.of[0]) + (o.merge == Merge::kConcat ? WidthOf(o.of[1]) : 0);
}

struct Joined {
  RecurrentOutputs o;
  Divider width, positions, places;
  int64_t first;  // numbers of the first recurrence
  Out y;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    int64_t row, place;
    OutputNumber at;
    at.number = width.Split(i, &row);
    at.position = positions.Split(row, &place);
    at.place = places.Split(place, &at.example);
    if (at.number >= first) {
      at.number -= first;
      return Set(y, i, OutputAt(o, o.of[1], at));
    }
    const float one = OutputAt(o, o.of[0], at);
    if (o.merge == Merge::kOne || o.merge == Merge::kConcat) return Set(y, i, one);
    const float two = OutputAt(o, o.of[1], at);
    Set(y, i, o.merge == Merge::kMultiply ? one * two : o.merge == Merge::kAverage ? (one + two) * 0.5f : one + two);
  }
};

struct SplitGradient {
  RecurrentOutputs o;
  StatesOf states;
  int64_t width, first;
  Divider units, positions, examples;
  In dy;
  float* d;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    int64_t row, above, step;
    OutputNumber at;
    const int64_t unit = units.Split(i, &row);
    at.position = positions.Split(row, &above);
    at.example = examples.Split(above, &step);
    // A copy: an indexed array would be in local memory.
    const RecurrentOutput of = states.which == 0 ? o.of[0] : o.of[1];
    at.place = !o.sequences ? 0 : of.turned ? o.steps - 1 - step : step;
    if (states.cells) {
      at.number = 2 * of.units + unit;
      d[i] = Gradient(at);
      return;
    }
    at.number = unit;
    float g = Gradient(at) * OutputFactor(o, of, at.example, o.sequences ? step : o.steps - 1);
    if (of.c != nullptr) {
      at.number = of.units + unit;
      g += Gradient(at);
    }
    d[i] = g;
  }
  // That of one number of the recurrence's output.
  CAIRN_DEVICE float Gradient(const OutputNumber& at) const {
    const RecurrentOutput other = states.which == 0 ? o.of[1] : o.of[0];
    const int64_t places = o.sequences ? o.steps : 1;
    const int64_t behind = o.merge == Merge::kConcat && states.which == 1 ? first : 0;
    const int64_t row = (at.example * places + at.place) * o.positions + at.position;
    float g = At(dy, row * width + behind + at.number);
    if (o.merge == Merge::kAverage) g = g * 0.5f;
    if (o.merge == Merge::kMultiply) g = g * OutputAt(o, other, at);
    return g;
  }
};

Error LaunchPack(Stream stream, const Steps& s, bool unpack, const void* from, void* to, DType type, bool add) {
  const int64_t n = s.examples * s.steps * s.features;
  return LaunchForEach(stream, n, false,
                       Pack{s, Divider(s.features, n), Divider(s.examples, n), unpack, add, {from, type}, {to, type}});
}

template <template <Cell> class Kernel>
Error LaunchCell(Stream stream, Cell cell, const typename Kernel<Cell::kSimple>::Step& s) {
  const int64_t n = s.shape.rows * s.shape.units;
  const Divider units(s.shape.units, n), positions(s.shape.positions, s.shape.rows);
  switch (cell) {
    case Cell::kSimple: return LaunchForEach(stream, n, false, Kernel<Cell::kSimple>{s, units, positions});
    case Cell::kLstm: return LaunchForEach(stream, n, false, Kernel<Cell::kLstm>{s, units, positions});
    case Cell::kGru: return LaunchForEach(stream, n, false, Kernel<Cell::kGru>{s, units, positions});
    case Cell::kGruGates: return LaunchForEach(stream, n, false, Kernel<Cell::kGruGates>{s, units, positions});
    case Cell::kGruCandidate: break;
  }
  return LaunchForEach(stream, n, false, Kernel<Cell::kGruCandidate>{s, units, positions});
}

}  // namespace

Error DropoutFactors(Stream stream, int64_t begin, int64_t n, const StepKey* key, int node, float rate,
                     float* factors) {
  return LaunchForEach(stream, n, false, FactorsOf{begin, key, {node, rate}, 1.0f / (1.0f - rate), factors});
}

Error PackSteps(Stream stream, const Steps& s, const void* x, void* packed, DType type) {
  return LaunchPack(stream, s, false, x, packed, type, false);
}
Error UnpackSteps(Stream stream, const Steps& s, const void* packed, void* x, DType type, bool add) {
  return LaunchPack(stream, s, true, packed, x, type, add);
}

Error StartState(Stream stream, int64_t n, const void* from, const float* factors, float* h, void* state, DType type) {
  return LaunchForEach(stream, n, false, Start{{from, type}, factors, h, {state, type}});
}
Error StateGradient(Stream stream, int64_t n, const float* dh, const float* dstate, const float* factors, void* d,
                    DType type, bool add) {
  return LaunchForEach(stream, n, false, GradientOfState{dh, dstate, factors, add, {d, type}});
}

Error CellForward(Stream stream, Cell cell, const CellForwardStep& s) { return LaunchCell<Forward>(stream, cell, s); }
Error CellBackward(Stream stream, Cell cell, const CellBackwardStep& s) {
  return LaunchCell<Backward>(stream, cell, s);
}

Error JoinOutputs(Stream stream, const RecurrentOutputs& o, void* y, DType type) {
  const int64_t width = WidthOf(o), places = o.sequences ? o.steps : 1, n = o.examples * places * o.positions * width;
  return LaunchForEach(
      stream, n, false,
      Joined{o, Divider(width, n), Divider(o.positions, n), Divider(places, n), WidthOf(o.of[0]), {y, type}});
}
Error SplitOutputGradient(Stream stream, const RecurrentOutputs& o, const StatesOf& of, const void* dy, DType type,
                          float* d) {
  const int64_t units = o.of[of.which].units, n = (o.sequences ? o.steps : 1) * o.examples * o.positions * units;
  return LaunchForEach(stream, n, false,
                       SplitGradient{o,
                                     of,
                                     WidthOf(o),
                                     WidthOf(o.of[0]),
                                     Divider(units, n),
                                     Divider(o.positions, n),
                                     Divider(o.examples, n),
                                     {dy, type},
                                     d});
}

}  // namespace cairn::cudnn::kernels
