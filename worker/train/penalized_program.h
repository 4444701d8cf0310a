// A program whose losses include the model's penalty (common/model/penalty.h), whatever backend computes it: each
// example's loss, in training and in evaluation, as in Keras. The penalty's gradient is the ps' business.
//
// Thread rule and invariants of Program (worker/backend/backend.h). Invariant: the penalty has the same bits whether
// the values are all there or come layer by layer.
#pragma once

#include <memory>

#include "common/model/graph.h"
#include "worker/backend/backend.h"

namespace cairn {

// The program itself where nothing is regularized.
std::unique_ptr<Program> WithPenalty(std::unique_ptr<Program> program, const Graph& graph);

}  // namespace cairn
