// A plugin without a device. FAKE: 0 no entry, 1 of another build, 2 of this one.
#include "absl/strings/str_cat.h"
#include "worker/backend/plugin.h"

#if FAKE > 0
namespace {

std::string OtherVersion() { return "of another tree"; }

absl::StatusOr<std::unique_ptr<cairn::Backend>> MakeNone(const cairn::PluginOptions& options) {
  return absl::UnavailableError(absl::StrCat("device ", options.device, " is not plugged in"));
}

}  // namespace

extern "C" const cairn::Plugin* cairn_backend_plugin() {
  static const cairn::Plugin plugin{FAKE == 1 ? &OtherVersion : &cairn::PluginVersion, &MakeNone};
  return &plugin;
}
#else
extern "C" int cairn_no_plugin() { return 0; }
#endif
