// The commands about the cluster itself: nodes, nodes drain, logs, events, trace, top, health,
// metrics, token.
#pragma once

#include <functional>

#include "client/cli/commands.h"

namespace CLI {
class App;
}

namespace cairn {

struct NodeCommandOptions {
  HealthOptions health;
  DrainOptions drain;
  MetricsOptions metrics;
  TopCommandOptions top;
  LogsOptions logs;
  EventsOptions events;
  TraceOptions trace;
  CreateTokenOptions create_token;
  std::string token_id;
};

// The command that is given fills in `options` and becomes *chosen. All three live as long as `app`.
void AddNodeCommands(CLI::App& app, const Globals& globals, NodeCommandOptions* options, std::function<int()>* chosen);

}  // namespace cairn
