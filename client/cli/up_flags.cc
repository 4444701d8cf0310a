#include "client/cli/up_flags.h"

#include <CLI/CLI.hpp>

namespace cairn {

void AddUpFlags(CLI::App* up, LocalClusterOptions* options) {
  up->add_option("--ps", options->ps, "Parameter servers")->capture_default_str();
  up->add_option("--workers", options->workers, "Workers")->capture_default_str();
  up->add_option("--evaluators", options->evaluators, "Nodes that evaluate checkpoints (validation_by: BY_EVALUATOR)")
      ->capture_default_str();
  up->add_option("--port", options->port, "The coordinator's port on 127.0.0.1; 0: chosen by the system")
      ->capture_default_str();
  options->http = 0;
  CLI::Option* http =
      up->add_option("--http", options->http,
                     "Dashboard, /metrics and probes on this port of 127.0.0.1; 0: chosen by the system")
          ->check(CLI::Range(0, 65535))
          ->capture_default_str();
  up->add_flag("--http-read-only", options->http_read_only,
               "The dashboard shows and changes nothing: no jobs are submitted, cancelled or deleted there, no nodes "
               "drained");
  up->add_flag_function(
        "--no-http", [options](int64_t) { options->http = -1; }, "No dashboard, /metrics and probes")
      ->excludes(http);
  up->add_option("--slots", options->slots, "Replicas that a worker computes at once; 0: hardware threads / workers")
      ->capture_default_str();
  up->add_option("--device", options->device, "What workers compute on: auto, cpu, gpu or gpu:N")
      ->capture_default_str();
  options->dir = "cairn-data";
  up->add_option("--dir", options->dir, "Data and logs; a cluster started again on the same directory resumes")
      ->capture_default_str();
  up->add_option("--log-level", options->log_level, "debug, info, warning or error")->capture_default_str();
  up->add_flag("!--no-restart", options->restart, "Do not restart daemons that exit");
}

}  // namespace cairn
