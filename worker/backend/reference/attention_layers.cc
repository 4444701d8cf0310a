// Attention without projections (worker/backend/score_attention.h), GroupQueryAttention, and EinsumDense.
#include "worker/backend/reference/attention_layers.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "worker/backend/dropout.h"
#include "worker/backend/einsum.h"
#include "worker/backend/grouped_attention.h"
#include "worker/backend/score_attention.h"

namespace cairn::reference {
namespace {

// Kept: the softmax. mask: the factors of dropout.
struct Scores {
  explicit Scores(const Pass& p)
      : a(ScoreAttentionOf(p.node(), p.shape(0), p.shape(1))),
        q(p.x(0)),
        v(p.x(1)),
        k(p.x(p.inputs() - 1)),
        scale(p.variable("scale")),
        weight(p.variable("concat_score_weight")) {}

  double ScaleOf(int64_t i) const {
    if (scale.empty()) return 1;
    return scale[a.score == ScoreAttention::kAdditive ? static_cast<size_t>(i) : 0];
  }
  double Weight() const { return weight.empty() ? 1 : weight[0]; }
  size_t Query(int64_t e, int64_t t, int64_t i) const { return (e * a.queries + t) * a.features + i; }
  size_t Key(int64_t e, int64_t s, int64_t i) const { return (e * a.keys + s) * a.features + i; }
  size_t Value(int64_t e, int64_t s, int64_t i) const { return (e * a.keys + s) * a.values + i; }
  size_t Output(int64_t e, int64_t t, int64_t i) const { return (e * a.queries + t) * a.values + i; }
  size_t Row(int64_t e, int64_t t) const { return (e * a.queries + t) * a.keys; }
  int64_t Seen(int64_t t) const { return a.causal ? std::min(t + 1, a.keys) : a.keys; }

  double ScoreOf(int64_t e, int64_t t, int64_t s) const {
    double sum = 0;
    for (int64_t i = 0; i < a.features; ++i) {
      const double x = q[Query(e, t, i)], y = k[Key(e, s, i)];
      switch (a.score) {
        case ScoreAttention::kDot: sum += ScaleOf(i) * x * y; break;
        case ScoreAttention::kConcat: sum += Weight() * std::tanh(ScaleOf(i) * (x + y)); break;
        case ScoreAttention::kAdditive: sum += ScaleOf(i) * std::tanh(x + y); break;
      }
    }
    return sum;
  }

  const ScoreAttention a;
  const std::vector<double>&q, &v, &k;
  const In scale, weight;
};

absl::Status AttendByScores(const Pass& p) {
  const Scores f(p);
  const size_t count = static_cast<size_t>(p.examples() * f.a.queries * f.a.keys);
  std::vector<float>& mask = p.here().mask;
  mask.assign(count, 1.0f);
  if (p.training() != nullptr && f.a.dropout > 0)
    DropoutMask(*p.training(), p.node().id, f.a.dropout, f.a.seed).Fill(0, absl::MakeSpan(mask));
  p.here().kept.assign(1, std::vector<double>(count, 0.0));
  std::vector<double>& weights = p.here().kept[0];
  for (int64_t e = 0; e < p.examples(); ++e) {
    for (int64_t t = 0; t < f.a.queries; ++t) {
      const int64_t seen = f.Seen(t);
      std::vector<double> scores(static_cast<size_t>(seen));
      for (int64_t s = 0; s < seen; ++s) scores[static_cast<size_t>(s)] = f.ScoreOf(e, t, s);
      Activate({v1::SOFTMAX, 0, seen}, scores, absl::MakeSpan(weights).subspan(f.Row(e, t), scores.size()));
      for (int64_t s = 0; s < seen; ++s) {
        const double w = weights[f.Row(e, t) + s] * mask[f.Row(e, t) + s];
        for (int64_t i = 0; i < f.a.values; ++i) p.y()[f.Output(e, t, i)] += w * f.v[f.Value(e, s, i)];
      }
    }
  }
  return absl::OkStatus();
}

void AttendByScoresBackward(const Pass& p) {
  const Scores f(p);
  const std::vector<double>& weights = p.here().kept[0];
  const std::vector<float>& mask = p.here().mask;
  const Out dq = p.dx(0), dv = p.dx(1), dk = p.dx(p.inputs() - 1), dscale = p.gradient("scale"),
            dweight = p.gradient("concat_score_weight");
  for (int64_t e = 0; e < p.examples(); ++e) {
    for (int64_t t = 0; t < f.a.queries; ++t) {
      const int64_t seen = f.Seen(t);
      const size_t row = f.Row(e, t);
      std::vector<double> dw(static_cast<size_t>(seen), 0.0), ds(dw.size());
      for (int64_t s = 0; s < seen; ++s) {
        for (int64_t i = 0; i < f.a.values; ++i) {
          const double dy = p.dy()[f.Output(e, t, i)];
          dw[static_cast<size_t>(s)] += mask[row + s] * dy * f.v[f.Value(e, s, i)];
          dv[f.Value(e, s, i)] += weights[row + s] * mask[row + s] * dy;
        }
      }
      const In softmax = In(weights).subspan(row, dw.size());
      ActivateBackward({v1::SOFTMAX, 0, seen}, dw, softmax, dw, absl::MakeSpan(ds));
      for (int64_t s = 0; s < seen; ++s) {
        for (int64_t i = 0; i < f.a.features; ++i) {
          const double x = f.q[f.Query(e, t, i)], y = f.k[f.Key(e, s, i)], d = ds[static_cast<size_t>(s)];
          double of_x = 0, of_y = 0, of_scale = 0;
          if (f.a.score == ScoreAttention::kDot) {
            of_x = f.ScaleOf(i) * y;
            of_y = f.ScaleOf(i) * x;
            of_scale = x * y;
          } else if (f.a.score == ScoreAttention::kConcat) {
            const double bent = std::tanh(f.ScaleOf(i) * (x + y)), slope = f.Weight() * (1 - bent * bent);
            of_x = of_y = slope * f.ScaleOf(i);
            of_scale = slope * (x + y);
            dweight[0] += d * bent;
          } else {
            const double bent = std::tanh(x + y);
            of_x = of_y = f.ScaleOf(i) * (1 - bent * bent);
            of_scale = bent;
          }
          dq[f.Query(e, t, i)] += d * of_x;
          dk[f.Key(e, s, i)] += d * of_y;
          if (!dscale.empty()) dscale[f.a.score == ScoreAttention::kAdditive ? i : 0] += d * of_scale;
        }
      }
    }
  }
}

// Calls fn(index in an example of x, in the kernel, in an example of y) for all numbers that are multiplied.
template <typename Fn>
void ForEachProduct(const EinsumPlaces& e, const Fn& fn) {
  for (int64_t g = 0; g < e.shared; ++g) {
    for (int64_t r = 0; r < e.rows; ++r) {
      for (int64_t c = 0; c < e.columns; ++c) {
        for (int64_t i = 0; i < e.summed; ++i) {
          fn(e.x[(g * e.rows + r) * e.summed + i], e.kernel[(g * e.summed + i) * e.columns + c],
             e.y[(g * e.rows + r) * e.columns + c]);
        }
      }
    }
  }
}

absl::Status Einsum(const Pass& p) {
  const EinsumPlaces places = EinsumPlacesOf(p.node(), p.shape());
  const In kernel = p.variable("kernel"), bias = p.variable("bias");
  const int64_t in = NumElements(p.shape()), out = NumElements(p.node().output);
  for (int64_t e = 0; e < p.examples(); ++e) {
    for (int64_t i = 0; i < out && !bias.empty(); ++i) p.y()[e * out + i] = bias[places.bias[i]];
    ForEachProduct(places,
                   [&](int32_t x, int32_t k, int32_t y) { p.y()[e * out + y] += p.x()[e * in + x] * kernel[k]; });
  }
  return absl::OkStatus();
}

void EinsumBackward(const Pass& p) {
  const EinsumPlaces places = EinsumPlacesOf(p.node(), p.shape());
  const In kernel = p.variable("kernel");
  const Out dkernel = p.gradient("kernel"), dbias = p.gradient("bias"), dx = p.dx();
  const int64_t in = NumElements(p.shape()), out = NumElements(p.node().output);
  for (int64_t e = 0; e < p.examples(); ++e) {
    for (int64_t i = 0; i < out && !dbias.empty(); ++i) dbias[places.bias[i]] += p.dy()[e * out + i];
    ForEachProduct(places, [&](int32_t x, int32_t k, int32_t y) {
      dx[e * in + x] += p.dy()[e * out + y] * kernel[k];
      dkernel[k] += p.dy()[e * out + y] * p.x()[e * in + x];
    });
  }
}

// ---- GroupQueryAttention (worker/backend/grouped_attention.h) ----

// Kept: the buffers in this order.
enum GroupedKept { kKeptQuery, kKeptKey, kKeptValue, kKeptGate, kKeptWeights, kKeptHeads, kGroupedKept };

GroupedAttention GroupedOf(const Pass& p) {
  std::vector<Shape> shapes;
  for (size_t i = 0; i < p.inputs(); ++i) shapes.push_back(p.shape(i));
  return GroupedAttentionOf(p.node(), shapes, p.examples());
}

GroupedInputs<double> GroupedInputsOf(const Pass& p) {
  GroupedInputs<double> in;
  for (size_t i = 0; i < 3; ++i) in.x[i] = p.x(std::min(i, p.inputs() - 1)).data();
  for (int part = 0; part < kGroupedParts; ++part) {
    const auto value = [&](const char* which) {
      const In numbers = p.variable(absl::StrCat(kGroupedNames[part], "/", which).c_str());
      return numbers.empty() ? nullptr : numbers.data();
    };
    in.weights.kernel[part] = value("kernel");
    in.weights.bias[part] = value("bias");
  }
  if (!p.here().mask.empty()) in.factors = p.here().mask.data();
  return in;
}

GroupedBuffers<double> GroupedBuffersOf(const Pass& p) {
  std::vector<std::vector<double>>& kept = p.here().kept;
  return {kept[kKeptQuery].data(), kept[kKeptKey].data(),     kept[kKeptValue].data(),
          kept[kKeptGate].data(),  kept[kKeptWeights].data(), kept[kKeptHeads].data()};
}

absl::Status AttendByGroups(const Pass& p) {
  const GroupedAttention a = GroupedOf(p);
  std::vector<float>& mask = p.here().mask;
  mask.clear();
  if (p.training() != nullptr && a.dropout > 0) {
    mask.assign(static_cast<size_t>(a.weights()), 1.0f);
    DropoutMask(*p.training(), p.node().id, a.dropout, a.seed).Fill(0, absl::MakeSpan(mask));
  }
  std::vector<std::vector<double>>& kept = p.here().kept;
  kept.assign(kGroupedKept, {});
  for (const GroupedKept query : {kKeptQuery, kKeptGate, kKeptHeads}) kept[query].assign(a.of_query(), 0.0);
  for (const GroupedKept key : {kKeptKey, kKeptValue}) kept[key].assign(a.of_key(), 0.0);
  kept[kKeptWeights].assign(a.weights(), 0.0);
  GroupedForward(a, GroupedInputsOf(p), GroupedBuffersOf(p), p.y().data());
  return absl::OkStatus();
}

void AttendByGroupsBackward(const Pass& p) {
  GroupedGradients g;
  for (int part = 0; part < kGroupedParts; ++part) {
    const auto gradient = [&](const char* which) {
      const Out numbers = p.gradient(absl::StrCat(kGroupedNames[part], "/", which).c_str());
      return numbers.empty() ? nullptr : numbers.data();
    };
    g.kernel[part] = gradient("kernel");
    g.bias[part] = gradient("bias");
  }
  g.query = p.dx(0).data();
  g.value = p.dx(1).data();
  g.key = p.dx(p.inputs() - 1).data();
  GroupedBackward(GroupedOf(p), GroupedInputsOf(p), GroupedBuffersOf(p), p.dy().data(), g);
}

constexpr Layer kLayers[] = {
    {LayerKind::kGroupQueryAttention, AttendByGroups, AttendByGroupsBackward},
    {LayerKind::kAttention, AttendByScores, AttendByScoresBackward},
    {LayerKind::kAdditiveAttention, AttendByScores, AttendByScoresBackward},
    {LayerKind::kEinsumDense, Einsum, EinsumBackward},
};

}  // namespace

absl::Span<const Layer> AttentionLayers() { return kLayers; }

}  // namespace cairn::reference
