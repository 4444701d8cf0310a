// The Program of OnednnBackend: the plans for each purpose and batch size, and the arena that they share.
#pragma once

#include <memory>

#include "worker/backend/backend.h"

namespace cairn::onednn {

// Compiles the plan for training on full batches at once; other plans are compiled when they are needed. Errors:
// INVALID_ARGUMENT if an option is out of range; UNIMPLEMENTED names the layer for which oneDNN has no primitive.
absl::StatusOr<std::unique_ptr<Program>> MakeProgram(std::shared_ptr<const Graph> graph, const ProgramOptions& options);

}  // namespace cairn::onednn
