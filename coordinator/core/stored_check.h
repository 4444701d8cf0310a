// Validates the state that the coordinator reads at its start: fields are in range and consistent with one another, so
// that the core never sees a value that it could not have stored.
//
// Pure functions; any thread.
#pragma once

#include "common/base/status.h"
#include "coordinator/core/events.h"

namespace cairn {

// Errors: DATA_LOSS names the key, the field and what is wrong with it.
absl::Status CheckStored(const StoredState& state);

}  // namespace cairn
