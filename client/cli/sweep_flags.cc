#include "client/cli/sweep_flags.h"

#include <CLI/CLI.hpp>

#include "client/limits.h"

namespace cairn {

void AddSweepFlags(CLI::App* sweep, SweepCommandOptions* options) {
  SweepFlags& flags = options->flags;
  sweep->add_option("--grid", flags.grid, "FIELD=VALUE,VALUE: try these values; with several, every combination")
      ->allow_extra_args(false);
  sweep->add_option("--random", flags.random, "So many trials at random, of --grid values and --range numbers")
      ->check(CLI::Range(1, kSweepTrialsMax));
  sweep->add_option("--range", flags.ranges, "FIELD=LOW:HIGH or FIELD=LOW:HIGH:log: numbers for --random")
      ->allow_extra_args(false);
  sweep->add_option("--seed", flags.seed, "Seed of --random")->capture_default_str();
  sweep->add_option("--by", flags.by, "The figure that trials are compared by, such as val_accuracy");
  sweep->add_option("--mode", flags.mode, "max or min [max for accuracies and their like, else min]")
      ->check(CLI::IsMember({"max", "min"}));
  sweep->add_option("--max-parallel", options->max_parallel, "Jobs in the cluster at once")
      ->check(CLI::Range(1, kSweepParallelMax))
      ->capture_default_str();
  CLI::Option* halving =
      sweep->add_flag("--halving", flags.halving.on, "Stop trials early that are not among the best");
  sweep->add_option("--halving-factor", flags.halving.factor, "With --halving: one of so many goes on")
      ->needs(halving)
      ->check(CLI::Range(2, 100))
      ->capture_default_str();
  sweep->add_option("--min-epochs", flags.halving.min_epochs, "With --halving: epochs before the first comparison")
      ->needs(halving)
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  sweep->add_option("-o,--output", options->folder,
                    "Folder of the sweep; the same command goes on with it [NAME-sweep]");
  sweep->add_flag("--cancel-on-interrupt", options->cancel_on_interrupt,
                  "Ctrl-C cancels the sweep's jobs [they go on]");
  sweep->add_flag("--dry-run", options->dry_run, "Check and list the trials; submit nothing");
}

}  // namespace cairn
