// Watches a job until it ends, for `cairn watch` and `cairn submit --watch`.
#pragma once

#include "client/cli/commands.h"

namespace cairn {

// Prints the job's progress (bars, lines or JSON, see progress.h). Ctrl-C leaves the job running, prints how to watch
// it again, and ends the program with kExitInterrupted. Returns the exit code for the job's end.
int WatchToEnd(const Globals& globals, const JobRef& job);

}  // namespace cairn
