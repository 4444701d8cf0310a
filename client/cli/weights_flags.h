// The flags of the commands that use a job's weights: `cairn evaluate`, `cairn predict` and `cairn export`.
//
// Free functions; the options must outlive the parse.
#pragma once

#include "client/cli/commands.h"

namespace CLI {
class App;
}

namespace cairn {

void AddJobArgument(CLI::App* command, std::string* job);  // JOB, required
void AddEvaluateFlags(CLI::App* command, EvaluateOptions* options);
void AddPredictFlags(CLI::App* command, PredictOptions* options);
void AddExportFlags(CLI::App* command, ExportOptions* options);

}  // namespace cairn
