#include "common/model/constraint.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/base/decimal.h"
#include "common/model/variable_fields.h"

namespace cairn {
namespace {

constexpr char kSuffix[] = "_constraint";
constexpr float kEpsilon = 1e-7f;  // keras.backend.epsilon()

bool IsOfNumbers(v1::Constraint::Kind kind) { return kind == v1::Constraint::NON_NEG; }
bool HasNorm(v1::Constraint::Kind kind) { return !IsOfNumbers(kind) && kind != v1::Constraint::RADIAL; }

// Rejects arguments that the kind does not have.
absl::Status CheckArguments(const std::string& field, const v1::Constraint& c) {
  const bool between = c.kind() == v1::Constraint::MIN_MAX_NORM;
  struct Argument {
    const char* name;
    bool given, fits;
    const char* kinds;
    float value;
  };
  const Argument arguments[] = {
      {"max_value", c.has_max_value(), between || c.kind() == v1::Constraint::MAX_NORM, "MAX_NORM or MIN_MAX_NORM",
       c.max_value()},
      {"min_value", c.has_min_value(), between, "MIN_MAX_NORM", c.min_value()},
      {"rate", c.has_rate(), between, "MIN_MAX_NORM", c.rate()},
      {"axis", !c.axis().empty(), HasNorm(c.kind()), "MAX_NORM, UNIT_NORM or MIN_MAX_NORM", 0},
  };
  for (const Argument& a : arguments) {
    if (a.given && !a.fits) {
      return Bad(field, ".", a.name, " is only for kind ", a.kinds, "; set that kind or leave the ", a.name, " out");
    }
    if (!(a.value >= 0 && std::isfinite(a.value))) {
      return Bad(field, ".", a.name, " ", a.value, " is not a number from 0; use one such as 1");
    }
  }
  return absl::OkStatus();
}

absl::Status ResolveAxes(const std::string& field, const Variable& variable, v1::Constraint* c) {
  const int rank = static_cast<int>(variable.shape.size());
  if (c->axis().empty()) c->add_axis(0);
  std::vector<bool> named(variable.shape.size(), false);
  for (int32_t& axis : *c->mutable_axis()) {
    if (axis < -rank || axis >= rank) {
      return Bad(field, ".axis ", axis, " is not an axis of ", variable.name, " ", ToString(variable.shape),
                 "; use one within 0 .. ", rank - 1);
    }
    if (axis < 0) axis += rank;
    if (named[axis]) return Bad(field, ".axis ", axis, " twice; name it once");
    named[axis] = true;
  }
  return absl::OkStatus();
}

absl::Status Resolve(const std::string& field, const Variable& variable, v1::Constraint* c) {
  if (!v1::Constraint::Kind_IsValid(c->kind()) || c->kind() == v1::Constraint::CONSTRAINT_UNSPECIFIED) {
    return Bad(field, ".kind ", static_cast<int>(c->kind()),
               " is not known; use MAX_NORM, NON_NEG, UNIT_NORM, MIN_MAX_NORM or RADIAL");
  }
  CAIRN_RETURN_IF_ERROR(CheckArguments(field, *c));
  if (c->kind() == v1::Constraint::RADIAL) {
    const Shape& shape = variable.shape;
    if (shape.size() == 4 && shape[0] == shape[1] && shape[0] > 1) return absl::OkStatus();
    return Bad(field, ".kind RADIAL is for kernels [side, side, inputs, outputs] of a side from 2, but ", variable.name,
               " is ", ToString(shape), "; leave it out");
  }
  if (!HasNorm(c->kind())) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(ResolveAxes(field, variable, c));
  if (c->kind() == v1::Constraint::MAX_NORM && !c->has_max_value()) c->set_max_value(2);
  if (c->kind() != v1::Constraint::MIN_MAX_NORM) return absl::OkStatus();
  if (!c->has_max_value()) c->set_max_value(1);
  if (!c->has_min_value()) c->set_min_value(0);
  if (!c->has_rate()) c->set_rate(1);
  if (c->min_value() > c->max_value()) {
    return Bad(field, ".min_value ", c->min_value(), " is above max_value ", c->max_value(),
               "; give both, the smaller one as min_value");
  }
  if (c->rate() <= 1) return absl::OkStatus();
  return Bad(field, ".rate ", c->rate(), " is outside [0, 1]; use 1, say");
}

// For each axis, how far the index of the norm advances with a step along it; 0 along the axes of the norm. Second: the
// number of norms.
std::pair<std::vector<int64_t>, int64_t> StridesOf(const ConstraintRange& range) {
  std::vector<int64_t> strides(range.shape.size(), 0);
  int64_t norms = 1;
  for (size_t d = range.shape.size(); d-- > 0;) {
    const auto& axes = range.constraint.axis();
    if (std::find(axes.begin(), axes.end(), static_cast<int32_t>(d)) != axes.end()) continue;
    strides[d] = norms;
    norms *= range.shape[d];
  }
  return {std::move(strides), norms};
}

// Calls row(first number of a row along the last axis, index of its norm).
template <typename Row>
void ForRows(const Shape& shape, const std::vector<int64_t>& strides, Row row) {
  const int64_t width = shape.back(), rows = NumElements(shape) / width;
  std::vector<int64_t> place(shape.size(), 0);
  int64_t norm = 0;
  for (int64_t r = 0; r < rows; ++r) {
    row(r * width, norm);
    for (size_t d = shape.size() - 1; d-- > 0;) {
      norm += strides[d];
      if (++place[d] < shape[d]) break;
      norm -= strides[d] * shape[d];
      place[d] = 0;
    }
  }
}

// The factor for the numbers of a norm; for UNIT_NORM the divisor.
float FactorOf(const v1::Constraint& c, float norm) {
  const float shifted = kEpsilon + norm;
  const auto at_most = [&](float n) { return n > c.max_value() ? c.max_value() : n; };
  if (c.kind() == v1::Constraint::UNIT_NORM) return shifted;
  if (c.kind() == v1::Constraint::MAX_NORM) return at_most(norm) / shifted;
  const float low = norm < c.min_value() ? c.min_value() : norm;
  const auto rest = static_cast<float>(1 - Decimal(c.rate()));
  return (c.rate() * at_most(low) + rest * norm) / shifted;
}

// numbers: what it needs room for, taken from one variable to the next.
void ApplyNorm(const ConstraintRange& range, float* w, std::vector<double>* numbers) {
  const auto [strides, count] = StridesOf(range);
  const int64_t width = range.shape.back(), step = strides.back();
  numbers->assign(static_cast<size_t>(count), 0.0);
  ForRows(range.shape, strides, [&](int64_t first, int64_t norm) {
    double* sums = numbers->data() + norm;
    for (int64_t i = 0; i < width; ++i) sums[i * step] += static_cast<double>(w[first + i]) * w[first + i];
  });
  for (double& x : *numbers) x = FactorOf(range.constraint, static_cast<float>(std::sqrt(x)));  // of float32
  const bool divides = range.constraint.kind() == v1::Constraint::UNIT_NORM;
  ForRows(range.shape, strides, [&](int64_t first, int64_t norm) {
    const double* factors = numbers->data() + norm;
    for (int64_t i = 0; i < width; ++i) {
      float& x = w[first + i];
      const auto factor = static_cast<float>(factors[i * step]);
      x = divides ? x / factor : x * factor;
    }
  });
}

// As Keras 2 computes it, where the innermost square takes the number before the centre, and each further one that of
// the diagonal behind it.
void ApplyRadial(const ConstraintRange& range, float* w) {
  const int64_t side = range.shape[0], planes = range.shape[2] * range.shape[3], half = side / 2, odd = side % 2;
  std::vector<float> rings(static_cast<size_t>(half + odd));
  for (int64_t plane = 0; plane < planes; ++plane) {
    for (int64_t ring = 0; ring < half + odd; ++ring) {
      const int64_t at = ring == 0 ? half - 1 : half + ring - odd;
      rings[static_cast<size_t>(ring)] = w[(at * side + at) * planes + plane];
    }
    for (int64_t y = 0; y < side; ++y) {
      for (int64_t x = 0; x < side; ++x) {
        const int64_t inset = std::min({y, x, side - 1 - y, side - 1 - x});
        w[(y * side + x) * planes + plane] = rings[static_cast<size_t>(half + odd - 1 - inset)];
      }
    }
  }
}

}  // namespace

absl::Status ResolveConstraints(v1::Layer* layer, absl::Span<const Variable> variables) {
  for (const VariableField& field : VariableFieldsOf(layer, kSuffix, variables)) {
    if (field.variable < 0) {
      return Bad(field.name, ": the layer has no such variable (use_bias, center or scale is false); leave it out");
    }
    CAIRN_RETURN_IF_ERROR(Resolve(field.name, variables[field.variable], static_cast<v1::Constraint*>(field.message)));
  }
  return absl::OkStatus();
}

std::vector<ConstraintRange> ConstraintRangesOf(const Graph& graph, int64_t begin, int64_t end) {
  std::vector<ConstraintRange> ranges;
  for (const int id : NodesWithin(graph, begin, end)) {
    const Node& node = graph.nodes()[static_cast<size_t>(id)];
    std::vector<Variable> own;
    for (const int v : node.variables) own.push_back(graph.variables()[v]);
    v1::Layer layer = node.layer;
    for (const VariableField& field : VariableFieldsOf(&layer, kSuffix, own)) {
      const Variable& v = own[field.variable];
      const auto& constraint = *static_cast<const v1::Constraint*>(field.message);
      const int64_t from = std::max(v.offset, begin), to = std::min(v.offset + v.size, end);
      if (v.kind != VariableKind::kTrainable || from >= to) continue;
      if (!IsOfNumbers(constraint.kind()) && to - from != v.size) continue;
      ranges.push_back({from - begin, to - begin, v.shape, constraint});
    }
  }
  return ranges;
}

void ApplyConstraints(absl::Span<const ConstraintRange> ranges, absl::Span<float> values) {
  std::vector<double> numbers;
  for (const ConstraintRange& range : ranges) {
    float* const w = values.data() + range.begin;
    if (HasNorm(range.constraint.kind())) {
      ApplyNorm(range, w, &numbers);
      continue;
    }
    if (range.constraint.kind() == v1::Constraint::RADIAL) {
      ApplyRadial(range, w);
      continue;
    }
    for (int64_t i = 0; i < range.end - range.begin; ++i) w[i] = w[i] < 0 ? 0 : w[i];  // keeps NaN
  }
}

}  // namespace cairn
