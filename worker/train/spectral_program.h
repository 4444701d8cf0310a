// Makes a program of any backend compute a step with the kernels that spectral normalization divides
// (common/model/spectral.h). The ps does the same to its values before it updates them. Evaluations and predictions use
// the values as they are, as in Keras.
//
// Thread rule and invariants: those of Program (worker/backend/backend.h).
#pragma once

#include <memory>

#include "common/model/graph.h"
#include "worker/backend/backend.h"

namespace cairn {

// Returns the program itself if nothing is normalized.
std::unique_ptr<Program> WithSpectralNormalization(std::unique_ptr<Program> program, const Graph& graph);

}  // namespace cairn
