// SimpleRNN, LSTM, GRU, ConvLSTM1D .. ConvLSTM3D, Bidirectional: example by example (recurrent_walk.h).
#include <algorithm>

#include "common/model/recurrent.h"
#include "worker/backend/dropout.h"
#include "worker/backend/reference/recurrent_walk.h"
#include "worker/backend/reference/reference_layer.h"

namespace cairn::reference {
namespace {

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

// row: that of the output, of a ConvLSTM each position of each place. Behind the output of the units, with return_cell:
// the state h, then c.
double OutputOf(const Walk& w, int64_t row, int64_t number) {
  const int64_t units = w.r.units, positions = w.r.windows.positions(), place = row / positions;
  const int64_t step = !w.r.return_sequences ? w.steps - 1 : w.r.turned ? w.steps - 1 - place : place;
  const int64_t at = (step + 1) * w.states() + row % positions * units + number % units;
  if (number / units == 2) return w.c[at];
  return w.h[at] * (number < units ? OutputFactor(w, step) : 1);
}

// ---- the layer ----

std::vector<Walk> WalksOf(const Pass& p, const RecurrentLayer& layer, int64_t e) {
  const int64_t steps = p.shape()[0], features = NumElements(p.shape()) / steps;
  std::vector<Walk> walks;
  for (const Recurrence& r : layer.recurrences) {
    Walk& w = walks.emplace_back(Walk{r});
    w.step_shape.assign(p.shape().begin() + 1, p.shape().end());
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
      w.state_factors =
          factors.subspan(RecurrentMaskBegin(r, true, p.examples(), features) + e * w.states(), w.states());
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
  const int64_t features = NumElements(p.shape()) / p.shape()[0];
  const Recurrence& last = layer.recurrences.back();
  factors.assign(RecurrentMaskBegin(last, true, p.examples(), features) + p.examples() * last.state_numbers(), 1.0f);
  for (const Recurrence& r : layer.recurrences) {
    const auto fill = [&](bool of_state, float rate, int64_t numbers) {
      if (rate == 0) return;
      const int64_t begin = RecurrentMaskBegin(r, of_state, p.examples(), features);
      DropoutMask(*p.training(), p.node().id, rate).Fill(begin, absl::MakeSpan(factors).subspan(begin, numbers));
    };
    fill(false, r.dropout, p.examples() * features);
    fill(true, r.recurrent_dropout, p.examples() * r.state_numbers());
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
      const int64_t states = w.states();
      w.h.assign((w.steps + 1) * states, 0.0);
      if (w.r.cell == RecurrentCell::kLstm) w.c.assign((w.steps + 1) * states, 0.0);
      if (w.r.cell == RecurrentCell::kGru) w.candidate.assign(w.steps * states, 0.0);
      w.parts.assign(w.steps * w.width(), 0.0);
      if (w.r.state_input >= 0) std::copy_n(p.x(w.r.state_input).data() + e * states, states, w.h.data());
      if (w.r.state_input >= 0 && !w.c.empty()) {
        std::copy_n(p.x(w.r.state_input + 1).data() + e * states, states, w.c.data());
      }
      for (int64_t step = 0; step < w.steps; ++step) ForwardStep(w, step);
    }
    for (int64_t i = 0; i < size; ++i) {
      const int64_t row = i / width, u = i % width, first = walks[0].r.width();
      const double one = u < first ? OutputOf(walks[0], row, u) : 0;
      double& y = p.y()[e * size + i];
      switch (layer.merge) {
        case RecurrentMerge::kOne: y = one; break;
        case RecurrentMerge::kConcat: y = u < first ? one : OutputOf(walks[1], row, u - first); break;
        case RecurrentMerge::kSum: y = one + OutputOf(walks[1], row, u); break;
        case RecurrentMerge::kAverage: y = (one + OutputOf(walks[1], row, u)) / 2; break;
        case RecurrentMerge::kMultiply: y = one * OutputOf(walks[1], row, u); break;
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
double OutputGradient(const Direction& of, int64_t row, int64_t u) {
  const auto& [p, layer, walks, which, e] = of;
  const int64_t size = NumElements(p.node().output), width = p.node().output.back();
  const bool behind = layer.merge == RecurrentMerge::kConcat && which == 1;
  const double d = p.dy()[e * size + row * width + (behind ? walks[0].r.width() : 0) + u];
  if (layer.merge == RecurrentMerge::kAverage) return d / 2;
  if (layer.merge == RecurrentMerge::kMultiply) return d * OutputOf(walks[1 - which], row, u);
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
      const int64_t units = w.r.units, states = w.states();
      WalkGradients g{p.dx().subspan(e * w.steps * w.features, w.steps * w.features),
                      p.gradient_of(w.r.kernel),
                      p.gradient_of(w.r.recurrent_kernel),
                      w.r.bias >= 0 ? p.gradient_of(w.r.bias) : Out(),
                      Numbers(states, 0.0),
                      Numbers(states, 0.0)};
      Numbers outputs(w.steps * states, 0.0), cells(w.steps * states, 0.0);
      const Direction direction{p, layer, walks, which, e};
      ForEachOutput(w, [&](int64_t step, int64_t place) {
        for (int64_t i = 0; i < states; ++i) {
          const int64_t row = place * w.r.windows.positions() + i / units, u = i % units;
          outputs[step * states + i] = OutputGradient(direction, row, u) * OutputFactor(w, step);
          if (!w.r.return_cell) continue;
          outputs[step * states + i] += OutputGradient(direction, row, units + u);
          cells[step * states + i] = OutputGradient(direction, row, 2 * units + u);
        }
      });
      for (int64_t step = w.steps; step-- > 0;) {
        for (int64_t i = 0; i < states; ++i) {
          g.h[i] += outputs[step * states + i];
          g.c[i] += cells[step * states + i];
        }
        BackwardStep(w, step, g);
      }
      for (int64_t s = 0; s < w.r.states() && w.r.state_input >= 0; ++s) {
        const Numbers& from = s == 0 ? g.h : g.c;
        for (int64_t i = 0; i < states; ++i) p.dx(w.r.state_input + s)[e * states + i] += from[i];
      }
    }
  }
}

constexpr Layer kLayers[] = {
    {LayerKind::kSimpleRNN, Recur, RecurBackward},     {LayerKind::kLSTM, Recur, RecurBackward},
    {LayerKind::kGRU, Recur, RecurBackward},           {LayerKind::kConvLSTM1D, Recur, RecurBackward},
    {LayerKind::kConvLSTM2D, Recur, RecurBackward},    {LayerKind::kConvLSTM3D, Recur, RecurBackward},
    {LayerKind::kBidirectional, Recur, RecurBackward},
};

}  // namespace

absl::Span<const Layer> RecurrentLayers() { return kLayers; }

}  // namespace cairn::reference
