#include "client/cli/weights_flags.h"

#include <CLI/CLI.hpp>

namespace cairn {

void AddJobArgument(CLI::App* command, std::string* job) {
  command->add_option("JOB", *job, "The job's number, or its name (the newest one)")->required();
}

void AddEvaluateFlags(CLI::App* command, EvaluateOptions* options) {
  AddJobArgument(command, &options->job);
  command->add_option("--split", options->split, "train, validation or test [test, or the only split of --data]");
  command->add_option("--weights", options->weights,
                      "Use these weights, not the job's: a checkpoint, a folder of several (the newest is used), a "
                      ".safetensors or .keras file");
  command->add_option("--data", options->data,
                      "Use this data, not the job's: a path of a file or folder on the workers");
}

void AddPredictFlags(CLI::App* command, PredictOptions* options) {
  AddEvaluateFlags(command, &options->what);
  command->add_option("-o,--output", options->output, ".csv, .npy or .jsonl; -: standard output")
      ->capture_default_str();
  command->add_flag("--classes", options->classes, "The most likely class and its probability instead of all outputs");
}

void AddExportFlags(CLI::App* command, ExportOptions* options) {
  AddJobArgument(command, &options->job);
  command->add_option("--format", options->format,
                      "safetensors, keras, weights.h5 or onnx [by the file's ending; without one safetensors]");
  command->add_option("--layout", options->layout, "With safetensors: keras or torch")->capture_default_str();
  command->add_flag("--fold-batch-norm", options->fold_batch_norm,
                    "With onnx: fold batch normalizations into the layers before them");
  command->add_option("-o,--output", options->output, "The file")->required();
}

}  // namespace cairn
