// Watching a job until it ends: what `cairn watch` and `cairn submit --watch` share.
#pragma once

#include "client/cli/commands.h"

namespace cairn {

// Prints the job's progress (bars, lines or JSON, see progress.h). A Ctrl-C meanwhile leaves the job running, says how
// to come back and ends the program with kExitInterrupted. Returns the exit code that the job's end means.
int WatchToEnd(const Globals& globals, const JobRef& job);

}  // namespace cairn
