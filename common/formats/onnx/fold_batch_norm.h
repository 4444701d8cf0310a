// Folds batch normalizations into the layers before them where possible: the model's outputs at inference stay the
// same, except for rounding.
//
// A pure function. A BatchNormalization is folded if it alone uses the output of a Conv1D, Conv2D, DepthwiseConv2D,
// SeparableConv2D, Conv2DTranspose or Dense without activation; that layer keeps its name and gets a bias.
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
