#include "absl/strings/str_cat.h"
#include "common/base/version.h"

namespace cairn {

std::string ProgramText(const std::string& version, uint32_t interface) {
  const std::string name = version.empty() ? "an older cairn" : "cairn " + version;
  return absl::StrCat(name, " (interface ", interface, ")");
}

}  // namespace cairn
