// Penalties on the outputs of layers (activity_regularizer, ActivityRegularization), with Keras 3's formula:
//   penalty = (l1 * sum(|x|) + l2 * sum(x^2)) / examples
// over all numbers x of a batch's outputs. The penalty is part of the loss, in training and in evaluation, and has a
// gradient as the rest of the loss does.
//
// Pure functions; any thread. Programs compute a graph in which each activity_regularizer is a layer of its own after
// the layer that it belongs to, so that backends implement only that layer. The variables and their offsets stay the
// same.
#pragma once

#include <memory>

#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

struct ActivityFactors {
  double l1 = 0, l2 = 0;
  bool none() const { return l1 == 0 && l2 == 0; }
};

// The factors of the layer's activity_regularizer. An ActivityRegularization layer has none here.
ActivityFactors ActivityRegularizerOf(const Node& node);
// The factors of an ActivityRegularization layer.
ActivityFactors ActivityFactorsOf(const Node& activity_regularization);

// Checks the layer's activity_regularizer during inference. Errors: INVALID_ARGUMENT, `activity_regularizer.l1 -1 ...;
// ...`.
absl::Status CheckActivityRegularizer(v1::Layer* layer);
// Errors: INVALID_ARGUMENT, the model has too many layers once its penalties are layers.
absl::Status CheckActivityCount(const Graph& graph);

// Returns the graph itself if no layer has an activity_regularizer.
std::shared_ptr<const Graph> WithActivityLayers(std::shared_ptr<const Graph> graph);

}  // namespace cairn
