// OnednnBackend: the Backend of CPUs, on oneDNN 2.6 with the OpenMP runtime. oneDNN's interface is used in this folder
// only.
//
// Thread rule as in backend.h: programs run on different threads at the same time and share nothing. A program uses
// ProgramOptions.threads OpenMP threads, those of the calling thread. Invariants besides those of backend.h:
//   1. The bits depend only on the graph, the batch, the values, StepInfo, the number of threads and fingerprint().
//   2. A step allocates nothing if a plan for its batch size is kept. A new batch size compiles a plan (milliseconds);
//      the last few plans are kept.
#pragma once

#include <memory>

#include "worker/backend/backend.h"

namespace cairn {

std::unique_ptr<Backend> MakeOnednnBackend();

}  // namespace cairn
