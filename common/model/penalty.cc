#include "common/model/penalty.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "common/base/decimal.h"
#include "common/model/variable_fields.h"
#include "common/tensor/vectorize.h"

namespace cairn {
namespace {

constexpr int64_t kLanes = 8;

struct Sums {
  double absolute = 0, squares = 0;
};

// Lane j sums the numbers j, j + kLanes, ...; then the lanes are added in order.
CAIRN_VECTORIZED Sums Add(const float* __restrict w, int64_t n) {
  double absolute[kLanes] = {}, squares[kLanes] = {};
  const int64_t whole = n - n % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) {
      const double x = w[i + j];
      absolute[j] += std::fabs(x);
      squares[j] += x * x;
    }
  }
  for (int64_t i = whole; i < n; ++i) {
    const double x = w[i];
    absolute[i - whole] += std::fabs(x);
    squares[i - whole] += x * x;
  }
  Sums sums;
  for (int64_t j = 0; j < kLanes; ++j) {
    sums.absolute += absolute[j];
    sums.squares += squares[j];
  }
  return sums;
}

CAIRN_VECTORIZED void AddGradient(const float* __restrict w, float* __restrict g, int64_t n, float examples, float l1,
                                  float twice_l2) {
  for (int64_t i = 0; i < n; ++i) {
    const float sign = static_cast<float>(w[i] > 0) - static_cast<float>(w[i] < 0);
    g[i] += examples * (l1 * sign + twice_l2 * w[i]);
  }
}

// The vectors of an orthogonal regularizer in float64, consecutive, normalized to length 1, and their original lengths.
class UnitVectors {
 public:
  UnitVectors(const PenaltyRange& range, const float* w)
      : count_(range.of_columns ? range.columns : range.rows),
        size_(range.of_columns ? range.rows : range.columns),
        numbers_(static_cast<size_t>(count_ * size_)) {
    for (int64_t i = 0; i < count_; ++i) {
      double* const u = numbers_.data() + i * size_;
      double squares = 0;
      for (int64_t k = 0; k < size_; ++k) {
        u[k] = range.of_columns ? w[k * range.columns + i] : w[i * range.columns + k];
        squares += u[k] * u[k];
      }
      lengths_.push_back(std::sqrt(squares));
      const double length = std::max(lengths_.back(), kNormMin);
      for (int64_t k = 0; k < size_; ++k) u[k] /= length;
    }
  }

  static constexpr double kNormMin = 1e-7;

  int64_t count() const { return count_; }
  int64_t size() const { return size_; }
  double length(int64_t i) const { return lengths_[static_cast<size_t>(i)]; }
  const double* at(int64_t i) const { return numbers_.data() + i * size_; }
  double Cosine(int64_t i, int64_t j) const {
    double sum = 0;
    for (int64_t k = 0; k < size_; ++k) sum += at(i)[k] * at(j)[k];
    return sum;
  }
  double pairs() const { return static_cast<double>(count_) * static_cast<double>(count_ - 1) / 2; }

 private:
  const int64_t count_, size_;
  std::vector<double> numbers_, lengths_;
};

double OrthogonalPenalty(const PenaltyRange& range, const float* w) {
  const UnitVectors vectors(range, w);
  double sum = 0;
  for (int64_t i = 0; i < vectors.count(); ++i) {
    for (int64_t j = 0; j < i; ++j) sum += std::fabs(vectors.Cosine(i, j));
  }
  return range.orthogonal * sum / vectors.pairs();
}

// d c_ij / d r_i = (u_j - c_ij * u_i) / |r_i|, or u_j / 1e-7 if the vector is shorter than that.
void AddOrthogonalGradient(const PenaltyRange& range, double examples, const float* w, float* g) {
  const UnitVectors vectors(range, w);
  const double factor = examples * range.orthogonal / vectors.pairs();
  std::vector<double> own(static_cast<size_t>(vectors.size()));
  for (int64_t i = 0; i < vectors.count(); ++i) {
    std::fill(own.begin(), own.end(), 0.0);
    const bool is_short = vectors.length(i) < UnitVectors::kNormMin;
    double along = 0;  // the component along the vector itself
    for (int64_t j = 0; j < vectors.count(); ++j) {
      if (j == i) continue;
      const double cosine = vectors.Cosine(i, j);
      const double sign = static_cast<double>(cosine > 0) - static_cast<double>(cosine < 0);
      along += sign * cosine;
      for (int64_t k = 0; k < vectors.size(); ++k) own[k] += sign * vectors.at(j)[k];
    }
    const double length = std::max(vectors.length(i), UnitVectors::kNormMin);
    for (int64_t k = 0; k < vectors.size(); ++k) {
      const double direction = own[k] - (is_short ? 0 : along * vectors.at(i)[k]);
      g[range.of_columns ? k * range.columns + i : i * range.columns + k] +=
          static_cast<float>(factor * direction / length);
    }
  }
}

// The orthogonal regularizers of some layers' variables, by index in Graph::variables().
std::map<int, v1::Regularizer> OrthogonalsOf(const Graph& graph, const std::vector<int>& nodes) {
  std::map<int, v1::Regularizer> found;
  for (const int id : nodes) {
    const Node& node = graph.nodes()[static_cast<size_t>(id)];
    std::vector<Variable> own;
    for (const int v : node.variables) own.push_back(graph.variables()[v]);
    v1::Layer layer = node.layer;
    for (const VariableField& field : VariableFieldsOf(&layer, "_regularizer", own)) {
      const auto& regularizer = *static_cast<const v1::Regularizer*>(field.message);
      if (field.variable < 0 || regularizer.orthogonal_factor() == 0) continue;
      found[node.variables[field.variable]] = regularizer;
    }
  }
  return found;
}

}  // namespace

std::vector<PenaltyRange> PenaltyRangesOf(const Graph& graph, int64_t begin, int64_t end) {
  std::vector<PenaltyRange> ranges;
  const std::vector<int> nodes = NodesWithin(graph, begin, end);
  const std::map<int, v1::Regularizer> orthogonals = OrthogonalsOf(graph, nodes);
  std::vector<int> variables;
  for (const int id : nodes) {
    const std::vector<int>& own = graph.nodes()[static_cast<size_t>(id)].variables;
    variables.insert(variables.end(), own.begin(), own.end());
  }
  for (const int i : variables) {
    const Variable& v = graph.variables()[static_cast<size_t>(i)];
    const int64_t from = std::max(v.offset, begin), to = std::min(v.offset + v.size, end);
    if (const auto found = orthogonals.find(i); found != orthogonals.end()) {
      if (v.kind != VariableKind::kTrainable || to - from != v.size) continue;
      PenaltyRange& range = ranges.emplace_back();
      range = {from - begin, to - begin};
      range.orthogonal = Decimal(found->second.orthogonal_factor());
      range.rows = v.shape[0];
      range.columns = v.shape[1];
      range.of_columns = found->second.orthogonal_columns();
      continue;
    }
    if (v.kind != VariableKind::kTrainable || (v.l1 == 0 && v.l2 == 0) || from >= to) continue;
    ranges.push_back({from - begin, to - begin, Decimal(v.l1), Decimal(v.l2)});
  }
  return ranges;
}

double PenaltyOf(const PenaltyRange& range, absl::Span<const float> values) {
  if (range.orthogonal != 0) return OrthogonalPenalty(range, values.data() + range.begin);
  const Sums sums = Add(values.data() + range.begin, range.end - range.begin);
  return (range.l1 == 0 ? 0 : range.l1 * sums.absolute) + (range.l2 == 0 ? 0 : range.l2 * sums.squares);
}

void AddPenaltyGradient(absl::Span<const PenaltyRange> ranges, uint64_t examples, absl::Span<const float> values,
                        absl::Span<float> gradient) {
  for (const PenaltyRange& r : ranges) {
    if (r.orthogonal != 0) {
      AddOrthogonalGradient(r, static_cast<double>(examples), values.data() + r.begin, gradient.data() + r.begin);
      continue;
    }
    AddGradient(values.data() + r.begin, gradient.data() + r.begin, r.end - r.begin, static_cast<float>(examples),
                static_cast<float>(r.l1), static_cast<float>(2 * r.l2));
  }
}

}  // namespace cairn
