// RunApart: work on bytes from outside with a library that is not made for bad ones, in a process of its own. It is
// forked from this one: where the library crashes, hangs or takes all memory, this process has an error to report.
//
// Any thread. What `work` may do: call that library, allocate, write into memory of AllocateShared. It must not wait
// for what another thread of this process might have held at the fork: no mutex, no log, no Buffer of its own.
#pragma once

#include <cstddef>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/tensor/buffer.h"

namespace cairn {

struct ApartLimits {
  size_t memory_bytes_max = size_t{256} << 20;       // beyond what this process has
  absl::Duration processor_max = absl::Seconds(10);  // whole seconds; ten times as long by the clock
};

// Zeros, which this process and those that it forks see alike. Errors: RESOURCE_EXHAUSTED.
absl::StatusOr<Buffer> AllocateShared(size_t bytes);

// What `work` returns. Errors of its own begin with `where`, what the bytes are of: DATA_LOSS `work` did not come to
// its end; RESOURCE_EXHAUSTED no process can be made.
absl::Status RunApart(const std::string& where, const ApartLimits& limits, absl::FunctionRef<absl::Status()> work);

}  // namespace cairn
