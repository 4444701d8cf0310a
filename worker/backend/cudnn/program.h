// The Program of the cuDNN backend: plans by purpose and batch size, the memory that they share, and the traffic between host and
// device. All of it through a Machine, so that tests run it without a GPU.
//
// One thread at a time, as every Program. A step: values, inputs and labels through pinned memory to the device; the plan's launches
// (as they are the first time, recorded and launched as one the times after); the gradients' ranges back as they become final, each
// handed to the caller while the rest is computed. Nothing in between waits for the device.
#pragma once

#include <memory>

#include "worker/backend/backend.h"
#include "worker/backend/cudnn/machine.h"

namespace cairn::cudnn {

// Lowers the plan for training on full batches at once. Errors: INVALID_ARGUMENT for options out of range, UNIMPLEMENTED names the
// layer or the precision that there is no way to compute, RESOURCE_EXHAUSTED says how much memory is short.
absl::StatusOr<std::unique_ptr<Program>> MakeProgram(std::shared_ptr<const Graph> graph, const ProgramOptions& options,
                                                     const Precision& precision, std::unique_ptr<Machine> machine);

// What `options` ask for. Errors: UNIMPLEMENTED, a compute_dtype that is not computed.
absl::StatusOr<Precision> PrecisionOf(const ProgramOptions& options);

}  // namespace cairn::cudnn
