// OnednnBackend: the Backend of CPUs, on oneDNN 2.6 with the OpenMP runtime. oneDNN's interface is used in this folder
// only.
//
// Thread rule as in backend.h: programs run at the same time on different threads without touching one another. A
// program uses ProgramOptions.threads OpenMP threads of the thread that calls it. Invariants, besides those of
// backend.h:
//   1. The bits depend on the graph, the batch, the values, StepInfo, the number of threads and fingerprint() only.
//   2. A step allocates nothing once its batch size has been seen; a new one compiles a plan (milliseconds), and
//      the last few are kept.
#pragma once

#include <memory>

#include "worker/backend/backend.h"

namespace cairn {

std::unique_ptr<Backend> MakeOnednnBackend();

}  // namespace cairn
