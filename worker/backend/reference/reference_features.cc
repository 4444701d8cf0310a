// Normalization of each example, up-sampling, orders of axes, attention.
#include <algorithm>
#include <cmath>

#include "worker/backend/reference/reference_ops.h"

namespace cairn::reference {
namespace {

// The numbers of one group of one example.
struct Group {
  int64_t e = 0, g = 0;
  int64_t positions = 0, channels = 0, width = 0;  // width: channels of a group
  double mean = 0, factor = 0;                     // factor: 1 / sqrt(variance + epsilon)
  double count() const { return static_cast<double>(positions * width); }
};

// Calls fn(i, c) for the numbers of the group, c being the channel.
template <typename Fn>
void ForEachOfGroup(const Group& group, Fn fn) {
  const int64_t begin = group.g * group.width;
  for (int64_t p = 0; p < group.positions; ++p) {
    const int64_t row = (group.e * group.positions + p) * group.channels;
    for (int64_t c = begin; c < begin + group.width; ++c) fn(row + c, c);
  }
}

void SetStatistics(double epsilon, In x, Group& group) {
  const double count = group.count();
  double variance = 0;
  ForEachOfGroup(group, [&](int64_t i, int64_t) { group.mean += x[i] / count; });
  ForEachOfGroup(group, [&](int64_t i, int64_t) { variance += std::pow(x[i] - group.mean, 2) / count; });
  group.factor = 1 / std::sqrt(variance + epsilon);
}

// Calls fn for every group of every example.
template <typename Fn>
void ForEachGroup(const ChannelGroups& shape, In x, Fn fn) {
  const int64_t positions = static_cast<int64_t>(x.size()) / (shape.examples * shape.channels);
  for (int64_t e = 0; e < shape.examples; ++e) {
    for (int64_t g = 0; g < shape.groups; ++g) {
      Group group{
          .e = e, .g = g, .positions = positions, .channels = shape.channels, .width = shape.channels / shape.groups};
      SetStatistics(shape.epsilon, x, group);
      fn(group);
    }
  }
}

}  // namespace

void GroupNormalization(const ChannelGroups& shape, In x, In gamma, In beta, Out y) {
  ForEachGroup(shape, x, [&](const Group& group) {
    ForEachOfGroup(group, [&](int64_t i, int64_t c) {
      y[i] = (x[i] - group.mean) * group.factor * (gamma.empty() ? 1 : gamma[c]) + (beta.empty() ? 0 : beta[c]);
    });
  });
}

void GroupNormalizationBackward(const ChannelGroups& shape, In x, In gamma, In dy, const NormalizationGradients& to) {
  ForEachGroup(shape, x, [&](const Group& group) {
    const double count = group.count();
    const auto normalized = [&](int64_t i) { return (x[i] - group.mean) * group.factor; };
    const auto inner = [&](int64_t i, int64_t c) { return dy[i] * (gamma.empty() ? 1 : gamma[c]); };
    double mean = 0, mean_normalized = 0;  // of inner, and of inner * normalized
    ForEachOfGroup(group, [&](int64_t i, int64_t c) {
      mean += inner(i, c) / count;
      mean_normalized += inner(i, c) * normalized(i) / count;
      if (!to.gamma.empty()) to.gamma[c] += dy[i] * normalized(i);
      if (!to.beta.empty()) to.beta[c] += dy[i];
    });
    ForEachOfGroup(group, [&](int64_t i, int64_t c) {
      to.x[i] += group.factor * (inner(i, c) - mean - normalized(i) * mean_normalized);
    });
  });
}

namespace {

// What one place along one axis is made of: (1 - share) of `low` and `share` of `high`.
struct Between {
  int64_t low = 0, high = 0;
  double share = 0;
};

Between PlaceBetween(int64_t to, int64_t from_size, int64_t to_size, bool bilinear) {
  const int64_t factor = to_size / from_size;
  if (!bilinear) return {to / factor, to / factor, 0};
  const double place = (static_cast<double>(to) + 0.5) / static_cast<double>(factor) - 0.5;
  const int64_t low = static_cast<int64_t>(std::floor(place));
  return {std::max<int64_t>(low, 0), std::min(low + 1, from_size - 1), place - static_cast<double>(low)};
}

// Calls fn(output pixel, input pixel, weight).
template <typename Fn>
void ForEachWeight(const Geometry& g, bool bilinear, Fn fn) {
  const Extent in(g.input), out(g.output);
  for (int64_t to = 0; to < g.examples * out.pixels(); ++to) {
    const Between row = PlaceBetween(to / out.width % out.height, in.height, out.height, bilinear),
                  column = PlaceBetween(to % out.width, in.width, out.width, bilinear);
    const int64_t plane = to / (out.width * out.height);
    const int64_t from_plane = plane / out.depth * in.depth + plane % out.depth / (out.depth / in.depth);
    const auto from = [&](int64_t r, int64_t c) { return (from_plane * in.height + r) * in.width + c; };
    fn(to, from(row.low, column.low), (1 - row.share) * (1 - column.share));
    fn(to, from(row.low, column.high), (1 - row.share) * column.share);
    fn(to, from(row.high, column.low), row.share * (1 - column.share));
    fn(to, from(row.high, column.high), row.share * column.share);
  }
}

}  // namespace

void UpSampling2D(const Geometry& g, bool bilinear, In x, Out y) {
  const int64_t channels = g.input.back();
  std::fill(y.begin(), y.end(), 0.0);
  ForEachWeight(g, bilinear, [&](int64_t to, int64_t from, double weight) {
    for (int64_t c = 0; c < channels; ++c) y[to * channels + c] += weight * x[from * channels + c];
  });
}

void UpSampling2DBackward(const Geometry& g, bool bilinear, In dy, Out dx) {
  const int64_t channels = g.input.back();
  ForEachWeight(g, bilinear, [&](int64_t to, int64_t from, double weight) {
    for (int64_t c = 0; c < channels; ++c) dx[from * channels + c] += weight * dy[to * channels + c];
  });
}

namespace {

// The place in a tensor with these strides of every number of `shape`, example by example.
std::vector<int64_t> Places(int64_t examples, int64_t example_size, const Shape& shape,
                            const std::vector<int64_t>& strides) {
  std::vector<int64_t> places;
  std::vector<int64_t> index(shape.size());
  for (int64_t e = 0; e < examples; ++e) {
    for (int64_t i = 0; i < NumElements(shape); ++i) {
      int64_t rest = i, place = e * example_size;
      for (size_t axis = shape.size(); axis-- > 0;) {
        place += rest % shape[axis] * strides[axis];
        rest /= shape[axis];
      }
      places.push_back(place);
    }
  }
  return places;
}

}  // namespace

std::vector<int64_t> BroadcastPlaces(int64_t examples, const Shape& input, const Shape& output) {
  std::vector<int64_t> strides(output.size(), 0);
  int64_t stride = 1;
  for (size_t i = 0; i < input.size(); ++i) {
    const int64_t dim = input[input.size() - 1 - i];
    if (dim != 1) strides[output.size() - 1 - i] = stride;
    stride *= dim;
  }
  return Places(examples, NumElements(input), output, strides);
}

std::vector<int64_t> PermutedPlaces(int64_t examples, const Shape& input, absl::Span<const int32_t> dims) {
  std::vector<int64_t> of_input(input.size(), 1), strides;
  for (size_t i = input.size() - 1; i > 0; --i) of_input[i - 1] = of_input[i] * input[i];
  Shape output;
  for (int32_t dim : dims) {
    output.push_back(input[dim - 1]);
    strides.push_back(of_input[dim - 1]);
  }
  return Places(examples, NumElements(input), output, strides);
}

namespace {

// One head of one example: where its rows are.
struct Head {
  const AttentionShape& a;
  int64_t e, h;
  int64_t Query(int64_t t) const { return ((e * a.queries + t) * a.heads + h) * a.key_dim; }
  int64_t Key(int64_t s) const { return ((e * a.keys + s) * a.heads + h) * a.key_dim; }
  int64_t Value(int64_t s) const { return ((e * a.keys + s) * a.heads + h) * a.value_dim; }
  int64_t Output(int64_t t) const { return ((e * a.queries + t) * a.heads + h) * a.value_dim; }
  int64_t Score(int64_t t) const { return ((e * a.heads + h) * a.queries + t) * a.keys; }
  int64_t Seen(int64_t t) const { return a.causal ? std::min(t + 1, a.keys) : a.keys; }  // how many keys
};

template <typename Fn>
void ForEachRow(const AttentionShape& a, Fn fn) {
  for (int64_t e = 0; e < a.examples; ++e) {
    for (int64_t h = 0; h < a.heads; ++h) {
      for (int64_t t = 0; t < a.queries; ++t) fn(Head{a, e, h}, t);
    }
  }
}

double Dot(int64_t count, const double* x, const double* y) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += x[i] * y[i];
  return sum;
}

}  // namespace

void Attention(const AttentionShape& a, absl::Span<const float> keys_seen, const AttentionInputs& in, Out weights,
               Out y) {
  std::fill(weights.begin(), weights.end(), 0.0);
  std::fill(y.begin(), y.end(), 0.0);
  const double scale = 1 / std::sqrt(static_cast<double>(a.key_dim));
  ForEachRow(a, [&](const Head& head, int64_t t) {
    const int64_t row = head.Score(t), seen = head.Seen(t);
    std::vector<int64_t> places;  // of the keys that it sees
    std::vector<double> scores;
    for (int64_t s = 0; s < seen; ++s) {
      if (!keys_seen.empty() && keys_seen[(head.e * a.queries + t) * a.keys + s] == 0) continue;
      places.push_back(s);
      scores.push_back(scale * Dot(a.key_dim, in.q.data() + head.Query(t), in.k.data() + head.Key(s)));
    }
    std::vector<double> softmax(scores.size());
    if (!scores.empty()) {
      Activate({v1::SOFTMAX, 0, static_cast<int64_t>(scores.size())}, scores, absl::MakeSpan(softmax));
    }
    for (size_t i = 0; i < places.size(); ++i) weights[row + places[i]] = softmax[i];
    for (int64_t s = 0; s < seen; ++s) {
      for (int64_t i = 0; i < a.value_dim; ++i) {
        y[head.Output(t) + i] += weights[row + s] * in.mask[row + s] * in.v[head.Value(s) + i];
      }
    }
  });
}

void AttentionBackward(const AttentionShape& a, const AttentionInputs& in, In weights, In dy,
                       const AttentionGradients& to) {
  const double scale = 1 / std::sqrt(static_cast<double>(a.key_dim));
  ForEachRow(a, [&](const Head& head, int64_t t) {
    const int64_t row = head.Score(t), seen = head.Seen(t);
    std::vector<double> dweights(seen), dscores(seen);
    for (int64_t s = 0; s < seen; ++s) {
      dweights[s] = in.mask[row + s] * Dot(a.value_dim, dy.data() + head.Output(t), in.v.data() + head.Value(s));
      for (int64_t i = 0; i < a.value_dim; ++i) {
        to.v[head.Value(s) + i] += weights[row + s] * in.mask[row + s] * dy[head.Output(t) + i];
      }
    }
    ActivateBackward({v1::SOFTMAX, 0, seen}, dweights, weights.subspan(row, seen), dweights, absl::MakeSpan(dscores));
    for (int64_t s = 0; s < seen; ++s) {
      for (int64_t i = 0; i < a.key_dim; ++i) {
        to.q[head.Query(t) + i] += scale * dscores[s] * in.k[head.Key(s) + i];
        to.k[head.Key(s) + i] += scale * dscores[s] * in.q[head.Query(t) + i];
      }
    }
  });
}

}  // namespace cairn::reference
