#include "client/cli/node_flags.h"

#include <CLI/CLI.hpp>

#include "client/cli/add_command.h"
#include "common/base/limits.h"

namespace cairn {
namespace {

void AddTokenCommands(CLI::App& app, const Globals& globals, NodeCommandOptions* options,
                      std::function<int()>* chosen) {
  CLI::App* token = app.add_subcommand("token", "Tokens, with which people show who they are");
  token->require_subcommand(1);
  token->fallthrough();
  CreateTokenOptions& o = options->create_token;
  CLI::App* create = AddCommand(*token, "create", "Make a token, and show it once (admins)", chosen,
                                [&globals, options] { return RunCreateToken(globals, options->create_token); });
  create->add_option("USER", o.user, "Who owns the jobs that are submitted with it")->required();
  create->add_option("--name", o.name, "What it is for, such as laptop")->required();
  create->add_option("--group", o.groups, "A group of the user; may be repeated")->allow_extra_args(false);
  create->add_option("--role", o.role, "user or admin")->check(CLI::IsMember({"user", "admin"}))->capture_default_str();
  create->add_option("--expires", o.expires, "It holds for so long, such as 12h or 30d; at most 366d")
      ->capture_default_str();
  create->add_option("-o,--output", o.output, "Into a new file that you alone can read [standard output]");
  AddCommand(*token, "list", "List your tokens; an admin: all", chosen, [&globals] { return RunListTokens(globals); });
  AddCommand(*token, "revoke", "Refuse a token from now on: one of yours; an admin: any", chosen,
             [&globals, options] { return RunRevokeToken(globals, options->token_id); })
      ->add_option("ID", options->token_id, "As `cairn token list` shows it")
      ->required();
  AddCommand(*token, "whoami", "Who you are for the coordinator", chosen, [&globals] { return RunWhoAmI(globals); });
}

}  // namespace

namespace {

void AddLogs(CLI::App& app, const Globals& globals, NodeCommandOptions* options, std::function<int()>* chosen) {
  CLI::App* logs = AddCommand(app, "logs", "Print what a daemon logged, or what all of them logged of a job", chosen,
                              [&globals, options] { return RunLogs(globals, options->logs); });
  logs->add_option("NAME", options->logs.name, "A node, a job's name or number, or coordinator [coordinator]");
  logs->add_option("--node", options->logs.node, "A node that is called like a job");
  logs->add_option("--level", options->logs.level, "debug, info, warning or error: these lines and worse ones")
      ->capture_default_str();
  logs->add_option("--tail", options->logs.tail, "The newest so many lines of each daemon")
      ->check(CLI::Range(1, kLogAnswerLinesMax))
      ->capture_default_str();
  logs->add_flag("-f,--follow", options->logs.follow, "Go on with new lines, until Ctrl-C or the job's end");
  CLI::App* events = AddCommand(app, "events", "Print what happened in the cluster", chosen,
                                [&globals, options] { return RunEvents(globals, options->events); });
  events->add_option("--job", options->events.job, "Of this job only: its number, or its name (the newest one)");
  events->add_option("--node", options->events.node, "Of this node only");
  events->add_flag("--warnings", options->events.warnings, "Warnings only");
  events->add_option("--limit", options->events.limit, "The newest so many events [all that are kept]")
      ->check(CLI::Range(1, 1000000));
  events->add_flag("-f,--follow", options->events.follow, "Go on with new events, until Ctrl-C");
}

void AddTrace(CLI::App& app, const Globals& globals, NodeCommandOptions* options, std::function<int()>* chosen) {
  TraceOptions& o = options->trace;
  CLI::App* trace = AddCommand(app, "trace", "Write what all nodes of a running job do in some steps, as a time line",
                               chosen, [&globals, options] { return RunTrace(globals, options->trace); });
  trace->add_option("JOB", o.job, "Its number, or its name (the newest one)")->required();
  trace->add_option("--steps", o.steps, "So many steps, 1 to 1000")->capture_default_str();
  trace->add_option("--seconds", o.seconds, "Record at most so long, 1 to 600")->capture_default_str();
  trace
      ->add_option("-o,--output", o.output,
                   "The file: JSON in the Chrome trace event format, for https://ui.perfetto.dev or chrome://tracing")
      ->required();
}

}  // namespace

void AddNodeCommands(CLI::App& app, const Globals& globals, NodeCommandOptions* options, std::function<int()>* chosen) {
  CLI::App* nodes = app.add_subcommand("nodes", "List the cluster's nodes, or drain one");
  nodes->fallthrough();
  nodes->callback([&globals, chosen, nodes] {
    if (nodes->get_subcommands().empty()) *chosen = [&globals] { return RunNodes(globals); };
  });
  CLI::App* drain = AddCommand(*nodes, "drain", "Move all work off a node; training continues elsewhere", chosen,
                               [&globals, options] { return RunDrain(globals, options->drain); });
  drain->add_option("NAME", options->drain.name, "The node, as `cairn nodes` names it")->required();
  drain->add_flag("--undo", options->drain.undo, "Give it work again");
  AddLogs(app, globals, options, chosen);
  AddTrace(app, globals, options, chosen);
  CLI::App* top = AddCommand(app, "top", "Show nodes and jobs, and what changes, until q or Ctrl-C", chosen,
                             [&globals, options] { return RunTop(globals, options->top); });
  top->add_option("--every", options->top.every_s, "Seconds between two looks")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  top->add_flag("--once", options->top.once, "Print all nodes and jobs once [where the output is no terminal]");
  CLI::App* health = AddCommand(app, "health", "Ask a daemon whether it serves (grpc.health.v1)", chosen,
                                [&globals, options] { return RunHealth(globals, options->health); });
  health->add_option("ADDRESS", options->health.address, "host:port; default: the coordinator");
  CLI::Option* node = health->add_option("--node", options->health.node,
                                         "Ask the coordinator whether this node is alive, and a ps ready");
  health
      ->add_flag("--ready", options->health.ready,
                 "For a ps: also whether it is ready: all its copies are in sync, so that the next ps may be stopped")
      ->excludes(node);
  CLI::App* metrics = AddCommand(app, "metrics", "The cluster's figures for Prometheus", chosen,
                                 [&globals, options] { return RunMetrics(globals, options->metrics); });
  CLI::Option* output = metrics->add_option("-o,--output", options->metrics.output,
                                            "A file for node_exporter's textfile collector (cairn.prom), rewritten "
                                            "until Ctrl-C [printed once]");
  metrics->add_option("--every", options->metrics.every_s, "With --output: seconds between writes")
      ->needs(output)
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  AddTokenCommands(app, globals, options, chosen);
}

}  // namespace cairn
