// A model without those batch normalizations that the layer before them can do as well: what it computes at inference
// stays, but for rounding.
//
// A pure function. A BatchNormalization goes where it alone takes the output of a Conv1D, Conv2D, DepthwiseConv2D,
// SeparableConv2D, Conv2DTranspose or Dense without activation; that layer keeps its name and has a bias from then on.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

struct FoldedModel {
  Graph graph;
  std::vector<float> space;
};

// space: the parameter space of `graph`.
absl::StatusOr<FoldedModel> FoldBatchNormalizations(const Graph& graph, absl::Span<const float> space);

}  // namespace cairn
