#include "client/cli/replay_flags.h"

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"

namespace cairn {

void AddReplayFlags(CLI::App* command, ReplayCommandOptions* options) {
  command->add_option("--step", options->step,
                      "The step, from 0; with --find-nan the last one to look at [the job's last]");
  command->add_flag("--find-nan", options->find_nan,
                    "Find the first step, layer and example at which a number is not finite");
  command->add_option("--checkpoint", options->checkpoint,
                      "Begin with this checkpoint, or one of a folder of several [those that the job names]");
  command->add_option("--data", options->data, "Where the job's data lies on this machine [as the job says]");
  command->add_option("--device", options->device, "auto (the kind that the job ran on), cpu, gpu or gpu:N")
      ->capture_default_str();
}

std::vector<std::string> ReplayArguments(const ReplayCommandOptions& options) {
  std::vector<std::string> arguments = {absl::StrCat("--device=", options.device)};
  if (options.step) arguments.push_back(absl::StrCat("--step=", *options.step));
  if (options.find_nan) arguments.push_back("--find-nan");
  if (!options.checkpoint.empty()) arguments.push_back(absl::StrCat("--checkpoint=", options.checkpoint));
  if (!options.data.empty()) arguments.push_back(absl::StrCat("--data=", options.data));
  return arguments;
}

}  // namespace cairn
