// The Program of the cuDNN backend: plans by purpose and batch size, the memory that they share, and the traffic
// between host and device. All of it through a Machine, so that tests run it without a GPU.
//
// One thread at a time, as every Program. A step: inputs, labels and values through pinned memory to the device, values
// segment by segment (plan.h), each segment launched as soon as its values are on their way; the launches as they are
// the first time, recorded and launched as one a segment the times after; the gradients' ranges back as they become
// final, each handed to the caller, or added to other replicas' (join.h), while the rest is computed. Values that are
// numbers of 16 bits cross as such. The inputs of the next step are brought to the device meanwhile, if the caller has
// them (Prefetch). Nothing in between waits for the device.
// Invariant: when a call returns, nothing that it enqueued is under way but the copy of Prefetch; unless the device is
// lost (machine.h).
#pragma once

#include <memory>

#include "common/base/clock.h"
#include "worker/backend/backend.h"
#include "worker/backend/cudnn/machine.h"

namespace cairn::cudnn {

// Lowers the plan for training on full batches at once. Errors: INVALID_ARGUMENT for options out of range,
// UNIMPLEMENTED names the layer or the precision that there is no way to compute, RESOURCE_EXHAUSTED says how much
// memory is short. clock: by which steps are timed.
absl::StatusOr<std::unique_ptr<Program>> MakeProgram(std::shared_ptr<const Graph> graph, const ProgramOptions& options,
                                                     const Precision& precision, std::unique_ptr<Machine> machine,
                                                     std::shared_ptr<Clock> clock = std::make_shared<RealClock>());

// What `options` ask for. Errors: UNIMPLEMENTED, a compute_dtype that is not computed.
absl::StatusOr<Precision> PrecisionOf(const ProgramOptions& options);

}  // namespace cairn::cudnn
