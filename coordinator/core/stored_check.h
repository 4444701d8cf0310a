// What the coordinator reads back at its start is believed only after this: fields are in their ranges and fit one
// another, so that the core never meets a number that it could not have stored.
//
// Pure functions; any thread.
#pragma once

#include "common/base/status.h"
#include "coordinator/core/events.h"

namespace cairn {

// Errors: DATA_LOSS names the key, the field and what is wrong with it.
absl::Status CheckStored(const StoredState& state);

}  // namespace cairn
