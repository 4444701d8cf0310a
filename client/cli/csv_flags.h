// The flags of `cairn data` that say what the columns of a CSV data set are.
#pragma once

#include <CLI/CLI.hpp>

#include "client/cli/commands.h"

namespace cairn {

void AddCsvFlags(CLI::App* command, CsvOptions* csv);

}  // namespace cairn
