// Layers that compute y = (x - shift) * scale + offset with factors that depend on the position of x: Normalization,
// and Rescaling by channel.
//
// Pure functions; any thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/types/span.h"
#include "common/model/graph.h"
#include "worker/backend/places.h"

namespace cairn {

inline constexpr float kDeviationMin = 1e-7f;  // keras.config.epsilon()

// False for a Rescaling without lists: it has one scale for all, which backends compute in their own way.
inline bool IsAffine(const Node& node) {
  return node.kind == LayerKind::kNormalization || !node.layer.rescaling().scales().empty();
}

// The shape of the factors: that of the input, with 1 along the axes that share them.
inline Shape AffineShape(const Node& node) {
  if (node.kind == LayerKind::kNormalization) return ShapeAlong(node.output, node.layer.normalization().axis());
  return ShapeAlong(node.output, std::vector<int32_t>{static_cast<int32_t>(node.output.size())});
}

template <typename Number>
struct AffineFactors {
  std::vector<Number> shift, scale, offset;
};

// mean, variance: the variables; empty if the layer has none. Fills `to` with NumElements(AffineShape(node)) factors.
template <typename Number>
void FillAffineFactors(const Node& node, absl::Span<const Number> mean, absl::Span<const Number> variance,
                       AffineFactors<Number>* to) {
  const size_t count = static_cast<size_t>(NumElements(AffineShape(node)));
  to->shift.assign(count, 0);
  to->scale.assign(count, 1);
  to->offset.assign(count, 0);
  if (node.kind != LayerKind::kNormalization) {
    const v1::Rescaling& r = node.layer.rescaling();
    std::copy(r.scales().begin(), r.scales().end(), to->scale.begin());
    std::copy(r.offsets().begin(), r.offsets().end(), to->offset.begin());
    return;
  }
  const v1::Normalization& n = node.layer.normalization();
  const auto given = [](const auto& numbers, size_t i) {
    return static_cast<Number>(numbers[numbers.size() == 1 ? 0 : static_cast<int>(i)]);
  };
  for (size_t i = 0; i < count; ++i) {
    const Number m = n.mean().empty() ? mean[i] : given(n.mean(), i);
    const Number v = n.mean().empty() ? variance[i] : given(n.variance(), i);
    const Number deviation = std::max(std::sqrt(v), static_cast<Number>(kDeviationMin));
    (n.invert() ? to->offset : to->shift)[i] = m;
    to->scale[i] = n.invert() ? deviation : 1 / deviation;
  }
}

}  // namespace cairn
