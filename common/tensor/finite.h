// Whether numbers are finite. Pure; any thread.
#pragma once

#include "absl/types/span.h"

namespace cairn {

// Whether none is infinite or NaN. Reads all of them, at the speed of memory.
bool AllFinite(absl::Span<const float> numbers);

}  // namespace cairn
