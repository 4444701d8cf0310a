#include "worker/backend/grouped_attention.h"

#include <algorithm>
#include <cmath>

namespace cairn {
namespace {

// y = x K + b, row by row. kernel: [in, out]; bias: null: there is none.
template <typename T>
struct Projection {
  int64_t rows, in, out;
  const T *x, *kernel, *bias;
};
template <typename T>
void Project(const Projection<T>& p, T* y) {
  const int64_t rows = p.rows, in = p.in, out = p.out;
  const T *const x = p.x, *const kernel = p.kernel, *const bias = p.bias;
  std::vector<double> sums(static_cast<size_t>(out));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < out; ++o) sums[static_cast<size_t>(o)] = bias == nullptr ? 0 : bias[o];
    for (int64_t i = 0; i < in; ++i) {
      const double number = x[r * in + i];
      for (int64_t o = 0; o < out; ++o) sums[static_cast<size_t>(o)] += number * kernel[i * out + o];
    }
    for (int64_t o = 0; o < out; ++o) y[r * out + o] = static_cast<T>(sums[static_cast<size_t>(o)]);
  }
}

// A projection on the way back: what it takes, and what is added to. dx, dkernel, dbias: null: not needed.
template <typename T>
struct Way {
  int64_t rows, in, out;
  const T *x, *kernel;
  double *dx, *dkernel, *dbias;
};
template <typename T>
void ProjectBackward(const Way<T>& p, const double* dy) {
  for (int64_t r = 0; r < p.rows; ++r) {
    const double* const d = dy + r * p.out;
    for (int64_t i = 0; i < p.in; ++i) {
      double sum = 0;
      for (int64_t o = 0; o < p.out; ++o) {
        sum += d[o] * p.kernel[i * p.out + o];
        if (p.dkernel != nullptr) p.dkernel[i * p.out + o] += d[o] * p.x[r * p.in + i];
      }
      if (p.dx != nullptr) p.dx[r * p.in + i] += sum;
    }
    for (int64_t o = 0; o < p.out && p.dbias != nullptr; ++o) p.dbias[o] += d[o];
  }
}

// The places of a head's numbers, and of its weights.
struct Head {
  Head(const GroupedAttention& of, int64_t e, int64_t u)
      : a(of), example(e), head(u), group(u * of.groups / of.heads) {}
  int64_t Query(int64_t t) const { return ((example * a.queries + t) * a.heads + head) * a.size; }
  int64_t Key(int64_t s) const { return ((example * a.keys + s) * a.groups + group) * a.size; }
  int64_t Weight(int64_t t) const { return ((example * a.heads + head) * a.queries + t) * a.keys; }

  const GroupedAttention& a;
  const int64_t example, head, group;
};

template <typename T>
double DotOf(const T* x, const T* y, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += double{x[i]} * y[i];
  return sum;
}

// softmax(q k / sqrt(size)) of one query, over the keys that it sees.
template <typename T>
void Weigh(const Head& h, int64_t t, const T* query, const T* key, T* weights) {
  const double scale = 1 / std::sqrt(static_cast<double>(h.a.size));
  std::vector<double> scores(static_cast<size_t>(h.a.keys), 0.0);
  double most = -INFINITY, sum = 0;
  for (int64_t s = 0; s < h.a.keys; ++s) {
    if (!h.a.Sees(t, s)) continue;
    scores[static_cast<size_t>(s)] = scale * DotOf(query + h.Query(t), key + h.Key(s), h.a.size);
    most = std::max(most, scores[static_cast<size_t>(s)]);
  }
  for (int64_t s = 0; s < h.a.keys; ++s) {
    double& score = scores[static_cast<size_t>(s)];
    score = h.a.Sees(t, s) ? std::exp(score - most) : 0;
    sum += score;
  }
  for (int64_t s = 0; s < h.a.keys; ++s) weights[s] = static_cast<T>(scores[static_cast<size_t>(s)] / sum);
}

double FactorAt(const float* factors, int64_t at) { return factors == nullptr ? 1.0 : factors[at]; }

// Of the heads' results; added to.
struct HeadGradients {
  std::vector<double> query, key, value;
};

template <typename T>
void WeighBackward(const Head& h, int64_t t, const GroupedInputs<T>& in, const GroupedBuffers<T>& b,
                   const double* dheads, HeadGradients* g) {
  const GroupedAttention& a = h.a;
  const double scale = 1 / std::sqrt(static_cast<double>(a.size));
  const double* const d = dheads + h.Query(t);
  const int64_t row = h.Weight(t);
  std::vector<double> dw(static_cast<size_t>(a.keys), 0.0);
  double sum = 0;
  for (int64_t s = 0; s < a.keys; ++s) {
    const double weight = b.weights[row + s], factor = FactorAt(in.factors, row + s);
    double& dot = dw[static_cast<size_t>(s)];
    for (int64_t i = 0; i < a.size; ++i) {
      dot += d[i] * b.value[h.Key(s) + i];
      g->value[static_cast<size_t>(h.Key(s) + i)] += d[i] * weight * factor;
    }
    dot *= factor;
    sum += dot * weight;
  }
  for (int64_t s = 0; s < a.keys; ++s) {
    const double ds = b.weights[row + s] * (dw[static_cast<size_t>(s)] - sum) * scale;
    for (int64_t i = 0; i < a.size; ++i) {
      g->query[static_cast<size_t>(h.Query(t) + i)] += ds * b.key[h.Key(s) + i];
      g->key[static_cast<size_t>(h.Key(s) + i)] += ds * b.query[h.Query(t) + i];
    }
  }
}

// What meets the last kernel: the heads' results, after the gate.
template <typename T>
std::vector<T> Gated(const GroupedAttention& a, const GroupedBuffers<T>& b) {
  std::vector<T> gated(b.heads, b.heads + a.of_query());
  for (size_t i = 0; a.gated && i < gated.size(); ++i) gated[i] *= b.gate[i];
  return gated;
}

}  // namespace

GroupedAttention GroupedAttentionOf(const Node& node, const std::vector<Shape>& inputs, int64_t examples) {
  const v1::GroupQueryAttention& l = node.layer.group_query_attention();
  GroupedAttention a;
  a.examples = examples;
  a.queries = inputs[0][0];
  a.keys = inputs[1][0];
  a.heads = l.num_query_heads();
  a.groups = l.num_key_value_heads();
  a.size = l.head_dim();
  a.query_in = inputs[0][1];
  a.value_in = inputs[1][1];
  a.key_in = inputs.back()[1];
  a.out = node.output[1];
  a.gated = l.use_gate();
  a.causal = l.use_causal_mask();
  a.window = l.sliding_window();
  a.dropout = l.dropout();
  a.seed = l.seed();
  return a;
}

template <typename T>
void GroupedForward(const GroupedAttention& a, const GroupedInputs<T>& in, const GroupedBuffers<T>& b, T* y) {
  const GroupedWeights<T>& w = in.weights;
  const int64_t queries = a.examples * a.queries, keys = a.examples * a.keys;
  const auto project = [&](GroupedPart part, int64_t rows, int64_t features, const T* x, int64_t heads, T* to) {
    Project(Projection<T>{rows, features, heads * a.size, x, w.kernel[part], w.bias[part]}, to);
  };
  project(kGroupedQuery, queries, a.query_in, in.x[0], a.heads, b.query);
  project(kGroupedValue, keys, a.value_in, in.x[1], a.groups, b.value);
  project(kGroupedKey, keys, a.key_in, in.x[2], a.groups, b.key);
  if (a.gated) {
    project(kGroupedGate, queries, a.query_in, in.x[0], a.heads, b.gate);
    for (int64_t i = 0; i < a.of_query(); ++i) b.gate[i] = 1 / (1 + std::exp(-b.gate[i]));
  }
  for (int64_t e = 0; e < a.examples; ++e) {
    for (int64_t u = 0; u < a.heads; ++u) {
      const Head h(a, e, u);
      for (int64_t t = 0; t < a.queries; ++t) {
        const int64_t row = h.Weight(t);
        Weigh(h, t, b.query, b.key, b.weights + row);
        for (int64_t i = 0; i < a.size; ++i) {
          double sum = 0;
          for (int64_t s = 0; s < a.keys; ++s) {
            sum += double{b.weights[row + s]} * FactorAt(in.factors, row + s) * b.value[h.Key(s) + i];
          }
          b.heads[h.Query(t) + i] = static_cast<T>(sum);
        }
      }
    }
  }
  const std::vector<T> gated = Gated(a, b);
  Project(
      Projection<T>{queries, a.heads * a.size, a.out, gated.data(), w.kernel[kGroupedOutput], w.bias[kGroupedOutput]},
      y);
}

template <typename T>
void GroupedBackward(const GroupedAttention& a, const GroupedInputs<T>& in, const GroupedBuffers<T>& b, const T* dy,
                     const GroupedGradients& g) {
  const GroupedWeights<T>& w = in.weights;
  const int64_t queries = a.examples * a.queries, keys = a.examples * a.keys, width = a.heads * a.size;
  const std::vector<double> d(dy, dy + queries * a.out);
  std::vector<double> dheads(static_cast<size_t>(a.of_query()), 0.0), dgate(a.gated ? dheads.size() : 0, 0.0);
  const std::vector<T> gated = Gated(a, b);
  ProjectBackward(Way<T>{queries, width, a.out, gated.data(), w.kernel[kGroupedOutput], dheads.data(),
                         g.kernel[kGroupedOutput], g.bias[kGroupedOutput]},
                  d.data());
  for (size_t i = 0; i < dgate.size(); ++i) {
    const double gate = b.gate[i];
    dgate[i] = dheads[i] * b.heads[i] * gate * (1 - gate);
    dheads[i] *= gate;
  }
  HeadGradients of{std::vector<double>(dheads.size(), 0.0), std::vector<double>(static_cast<size_t>(a.of_key()), 0.0),
                   std::vector<double>(static_cast<size_t>(a.of_key()), 0.0)};
  for (int64_t e = 0; e < a.examples; ++e) {
    for (int64_t u = 0; u < a.heads; ++u) {
      const Head h(a, e, u);
      for (int64_t t = 0; t < a.queries; ++t) WeighBackward(h, t, in, b, dheads.data(), &of);
    }
  }
  const auto back = [&](GroupedPart part, int64_t rows, int64_t features, size_t input, const std::vector<double>& from,
                        double* dx) {
    const int64_t out = part == kGroupedQuery || part == kGroupedGate ? width : a.groups * a.size;
    ProjectBackward(Way<T>{rows, features, out, in.x[input], w.kernel[part], dx, g.kernel[part], g.bias[part]},
                    from.data());
  };
  back(kGroupedQuery, queries, a.query_in, 0, of.query, g.query);
  if (a.gated) back(kGroupedGate, queries, a.query_in, 0, dgate, g.query);
  back(kGroupedValue, keys, a.value_in, 1, of.value, g.value);
  back(kGroupedKey, keys, a.key_in, 2, of.key, g.key);
}

template void GroupedForward(const GroupedAttention&, const GroupedInputs<float>&, const GroupedBuffers<float>&,
                             float*);
template void GroupedForward(const GroupedAttention&, const GroupedInputs<double>&, const GroupedBuffers<double>&,
                             double*);
template void GroupedBackward(const GroupedAttention&, const GroupedInputs<float>&, const GroupedBuffers<float>&,
                              const float*, const GroupedGradients&);
template void GroupedBackward(const GroupedAttention&, const GroupedInputs<double>&, const GroupedBuffers<double>&,
                              const double*, const GroupedGradients&);

}  // namespace cairn
