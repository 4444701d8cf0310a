// Completion of commands, flags and names of jobs in shells: `cairn completion bash`.
#pragma once

#include <string>

#include "common/base/status.h"

namespace CLI {
class App;
}  // namespace CLI

namespace cairn {

// The script for "bash", "zsh" or "fish", of the commands and flags of `app`. Errors: INVALID_ARGUMENT for another
// shell.
absl::StatusOr<std::string> CompletionScript(const CLI::App& app, const std::string& shell);

}  // namespace cairn
