// Adds the model's penalty (common/model/penalty.h) to the losses of a program of any backend: to the loss of each
// example, in training and in evaluation, as in Keras. The gradient of the penalty is added by the ps.
//
// Thread rule and invariants: those of Program (worker/backend/backend.h). Invariant: the penalty has the same bits
// whether all values are there at once or come layer by layer.
#pragma once

#include <memory>

#include "common/model/graph.h"
#include "worker/backend/backend.h"

namespace cairn {

// Returns the program itself if nothing is regularized.
std::unique_ptr<Program> WithPenalty(std::unique_ptr<Program> program, const Graph& graph);

}  // namespace cairn
