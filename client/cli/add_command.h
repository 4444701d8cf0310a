// A command of `cairn` and what it runs.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <utility>

namespace cairn {

// chosen: what the given command runs; it lives as long as `parent`.
inline CLI::App* AddCommand(CLI::App& parent, const char* name, const char* help, std::function<int()>* chosen,
                            std::function<int()> run) {
  CLI::App* command = parent.add_subcommand(name, help);
  command->fallthrough();  // --json and --coordinator may follow the command too
  command->callback([chosen, run = std::move(run)] { *chosen = run; });
  return command;
}

}  // namespace cairn
