// Limits of what pages change (actions.h), beside those of coordinator/core/limits.h.
#pragma once

#include <cstddef>

#include "coordinator/core/limits.h"

namespace cairn {

// Submissions that wait for their answer at the same time, until workers have looked at the job's data: apart from the
// kPageActionsMax other changes, which take moments.
inline constexpr int kPageSubmissionsMax = 3;
static_assert(kLogPagesMax + kPageActionsMax + kPageSubmissionsMax < kPageThreads,
              "probes and pages are answered while others wait");
// A request's body: JSON, in which each quote and line end of a job's text is two bytes; and room for the other fields.
inline constexpr size_t kPageBodyBytesMax = 2 * kPageActionBytesMax + (size_t{64} << 10);

}  // namespace cairn
