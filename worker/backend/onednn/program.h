// The Program of OnednnBackend: plans by purpose and batch size, and the arena that they share.
#pragma once

#include <memory>

#include "worker/backend/backend.h"

namespace cairn::onednn {

// Compiles the plan for training on full batches at once. Errors: INVALID_ARGUMENT for options out of range,
// UNIMPLEMENTED names the layer for which oneDNN has no primitive.
absl::StatusOr<std::unique_ptr<Program>> MakeProgram(std::shared_ptr<const Graph> graph, const ProgramOptions& options);

}  // namespace cairn::onednn
