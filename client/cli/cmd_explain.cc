// cairn explain.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_format.h"
#include "client/cli/commands.h"
#include "client/cli/explain.h"

namespace cairn {

int RunExplain(const std::string& field) {
  winsize size = {};
  const bool terminal = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  const auto text = Explain(field, terminal ? std::clamp<size_t>(size.ws_col, 40, 120) : 100);
  if (!text.ok()) return Fail(text.status());
  absl::PrintF("%s", *text);
  return kExitOk;
}

}  // namespace cairn
