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
// Checks what depends on the rest of the job; spec.optimizer() must be resolved. Errors: INVALID_ARGUMENT,
// `optimizer.exclude_from_weight_decay: "biass" is part of no trainable variable's name; ...`.
absl::Status CheckOptimizerAgainstJob(const v1::JobSpec& spec, const Graph& graph);

// The optimizer must be resolved. WeightDecayOf: the decoupled weight decay of every trainable variable, that of AdamW
// included; of Muon that of its matrices. ExcludedFromWeightDecay: whether the named variable has no weight decay.
float WeightDecayOf(const v1::Optimizer& optimizer);
bool ExcludedFromWeightDecay(const v1::Optimizer& optimizer, const std::string& variable);

}  // namespace cairn
