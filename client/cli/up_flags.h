// The flags of `cairn up`.
#pragma once

#include "client/cli/local_cluster.h"

namespace CLI {
class App;
}

namespace cairn {

// options: outlives the command. Its pages are on by default.
void AddUpFlags(CLI::App* up, LocalClusterOptions* options);

}  // namespace cairn
