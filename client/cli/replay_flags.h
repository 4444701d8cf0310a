// The flags of `cairn replay`, and of cairn-replay, which it becomes.
//
// Free functions; the options must outlive the parse.
#pragma once

#include <string>
#include <vector>

#include "client/cli/commands.h"

namespace CLI {
class App;
}

namespace cairn {

void AddReplayFlags(CLI::App* command, ReplayCommandOptions* options);
// The arguments from which AddReplayFlags fills in these options.
std::vector<std::string> ReplayArguments(const ReplayCommandOptions& options);

}  // namespace cairn
