// The optimizer's part of CheckJob: Keras' defaults filled in, hyper-parameters within their ranges.
#pragma once

#include <string>
#include <vector>

#include "cairn/v1/job.pb.h"
#include "cairn/v1/optimizer.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

// Errors: INVALID_ARGUMENT, `optimizer.adam.beta_1: 1 is outside [0, 1); use a number such as 0.9`.
absl::Status ResolveOptimizer(v1::Optimizer* optimizer, std::vector<std::string>* warnings);
// What only the rest of the job tells; spec.optimizer() is resolved.
// Errors: INVALID_ARGUMENT, `optimizer.exclude_from_weight_decay: "biass" is part of no trainable variable's name;
// ...`.
absl::Status CheckOptimizerAgainstJob(const v1::JobSpec& spec, const Graph& graph);

// Of a resolved optimizer: the decoupled weight decay of every trainable variable, AdamW's own included; and whether
// the variable of that name is left alone.
float WeightDecayOf(const v1::Optimizer& optimizer);
bool ExcludedFromWeightDecay(const v1::Optimizer& optimizer, const std::string& variable);

}  // namespace cairn
