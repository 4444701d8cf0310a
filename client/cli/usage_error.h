// What to say of a command line that is not understood.
#pragma once

#include <string>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace cairn {

// Names the command, flag or argument that is wrong, and the nearest one that there is. app: as it was when `error` was
// thrown.
std::string UsageError(const CLI::App& app, const CLI::ParseError& error);

}  // namespace cairn
