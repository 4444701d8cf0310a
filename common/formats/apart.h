// RunApart: runs a library that does not tolerate bad input on untrusted bytes, in a forked process. If the library
// crashes, hangs or exhausts the memory, this process gets an error to report.
//
// Any thread. `work` may call the library, allocate, and write to memory from AllocateShared. It must not wait for
// anything that another thread of this process might have held at the fork: no mutex, no log, no new Buffer.
#pragma once

#include <cstddef>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/tensor/buffer.h"

namespace cairn {

struct ApartLimits {
  size_t memory_bytes_max = size_t{256} << 20;       // in addition to this process' memory
  absl::Duration processor_max = absl::Seconds(10);  // CPU time, whole seconds; the wall-clock limit is ten times that
};

// Zeroed memory that this process shares with the ones it forks. Errors: RESOURCE_EXHAUSTED.
absl::StatusOr<Buffer> AllocateShared(size_t bytes);

// Returns the status of `work`. Its own errors begin with `where`, the source of the bytes: DATA_LOSS: `work` did not
// finish; RESOURCE_EXHAUSTED: no process could be forked.
absl::Status RunApart(const std::string& where, const ApartLimits& limits, absl::FunctionRef<absl::Status()> work);

}  // namespace cairn
