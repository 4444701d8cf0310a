// Penalties of what layers give (activity_regularizer, ActivityRegularization), with Keras 3's formula:
//   penalty = (l1 * sum(|x|) + l2 * sum(x^2)) / examples
// over all numbers x of a batch's outputs. It is part of the loss, in training and in evaluation, and has a gradient as
// the rest of it.
//
// Pure functions; any thread. Programs compute a graph in which each activity_regularizer is a layer of its own behind
// its layer, so that backends know of the layer alone. Variables and their places are the same.
#pragma once

#include <memory>

#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

struct ActivityFactors {
  double l1 = 0, l2 = 0;
  bool none() const { return l1 == 0 && l2 == 0; }
};

// Of the layer's activity_regularizer; of an ActivityRegularization none.
ActivityFactors ActivityRegularizerOf(const Node& node);
// What an ActivityRegularization layer adds.
ActivityFactors ActivityFactorsOf(const Node& activity_regularization);

// Of a layer that is being inferred. Errors: INVALID_ARGUMENT, `activity_regularizer.l1 -1 ...; ...`.
absl::Status CheckActivityRegularizer(v1::Layer* layer);
// Errors: INVALID_ARGUMENT, with its penalties as layers the model has too many.
absl::Status CheckActivityCount(const Graph& graph);

// The graph itself where no layer has an activity_regularizer.
std::shared_ptr<const Graph> WithActivityLayers(std::shared_ptr<const Graph> graph);

}  // namespace cairn
