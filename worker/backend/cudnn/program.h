// The Program of the cuDNN backend: the plans for each purpose and batch size, the memory that they share, and the
// copies between host and device. It uses the device only through a Machine, so that tests run it without a GPU.
//
// Used by one thread at a time, as every Program. In a step, inputs, labels and values are copied to the device through
// pinned memory: the values segment by segment (plan.h), each segment launched as soon as its values are on their way.
// The first step of a plan enqueues launch by launch; later ones launch a recording of each segment. Each range of the
// gradient that becomes final is copied to the host and handed to the caller, or is added to those of other replicas
// (join.h), while the rest is computed. Values of 16 bits are copied as such. Meanwhile the inputs of the next step are
// copied to the device, if the caller has them (Prefetch). Nothing in between waits for the device. Invariant: when a
// call returns, nothing that it enqueued is still running, except the copy of Prefetch, and except on a lost device
// (machine.h).
#pragma once

#include <memory>

#include "common/base/clock.h"
#include "worker/backend/backend.h"
#include "worker/backend/cudnn/machine.h"

namespace cairn::cudnn {

// Lowers the plan for training on full batches at once. clock: times the steps. Errors: INVALID_ARGUMENT if an option
// is out of range; UNIMPLEMENTED names the layer or the precision that cannot be computed; RESOURCE_EXHAUSTED says how
// much memory is short.
absl::StatusOr<std::unique_ptr<Program>> MakeProgram(std::shared_ptr<const Graph> graph, const ProgramOptions& options,
                                                     const Precision& precision, std::unique_ptr<Machine> machine,
                                                     std::shared_ptr<Clock> clock = std::make_shared<RealClock>());

// The precision that the options ask for. Errors: UNIMPLEMENTED if compute_dtype is not supported.
absl::StatusOr<Precision> PrecisionOf(const ProgramOptions& options);

}  // namespace cairn::cudnn
