// The flags of `cairn sweep` beside those of a job.
//
// A free function; the options must outlive the parse.
#pragma once

#include "client/cli/commands.h"

namespace CLI {
class App;
}

namespace cairn {

void AddSweepFlags(CLI::App* sweep, SweepCommandOptions* options);

}  // namespace cairn
