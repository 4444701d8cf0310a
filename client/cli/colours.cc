#include "client/cli/colours.h"

#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

// An ANSI colour; empty: the state has none.
const char* ColourOf(v1::JobState state) {
  switch (state) {
    case v1::SUCCEEDED: return "\x1b[32m";
    case v1::ENDED_WITH_ERRORS: return "\x1b[33m";
    case v1::FAILED: return "\x1b[31m";
    default: return "";
  }
}

}  // namespace

bool ShowsColours() { return isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr; }

std::string InColourOf(v1::JobState state, std::string text, bool shows) {
  const std::string colour = shows ? ColourOf(state) : "";
  return colour.empty() ? text : absl::StrCat(colour, text, "\x1b[0m");
}

}  // namespace cairn
