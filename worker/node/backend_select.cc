#include "worker/node/backend_select.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "worker/backend/onednn/onednn_backend.h"
#include "worker/backend/plugin.h"
#include "worker/limits.h"

namespace cairn {
namespace {

constexpr char kCudnnPlugin[] = "libcairn_cudnn.so";
constexpr char kNvidiaDriver[] = "libcuda.so.1";

// An opened library is never closed: its threads and the types of its exceptions outlive any backend.
absl::StatusOr<std::unique_ptr<Backend>> Open(const std::string& path, const PluginOptions& options,
                                              const char* driver) {
  if (driver[0] != 0 && dlopen(driver, RTLD_LAZY | RTLD_LOCAL) == nullptr) {
    return absl::UnavailableError(absl::StrCat("no driver on this machine (", dlerror(), ")"));
  }
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return absl::UnavailableError(absl::StrCat("could not be loaded: ", dlerror()));
  const auto entry = reinterpret_cast<PluginEntry>(dlsym(library, kPluginEntry));
  if (entry == nullptr)
    return absl::UnavailableError(absl::StrCat(path, " is not a plugin of Cairn: it has no ", kPluginEntry));
  const Plugin* plugin = entry();
  if (const std::string version = plugin->version(); version != PluginVersion()) {
    return absl::UnavailableError(absl::StrCat(path, " is of another build (", version,
                                               ", this worker: ", PluginVersion(), "); take both from one"));
  }
  return plugin->make(options);
}

}  // namespace

std::vector<std::string> PluginFolders() {
  std::vector<std::string> folders;
  if (const char* named = std::getenv("CAIRN_PLUGINS"); named != nullptr) {
    folders = absl::StrSplit(named, ':', absl::SkipEmpty());
  }
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    folders.push_back(self.parent_path().string());
    folders.push_back((self.parent_path().parent_path() / "lib").string());
  }
  return folders;
}

absl::StatusOr<std::unique_ptr<Backend>> LoadPlugin(const std::vector<std::string>& folders, const std::string& file,
                                                    const PluginOptions& options, const char* driver) {
  for (const std::string& folder : folders) {
    const std::filesystem::path path = std::filesystem::path(folder) / file;
    std::error_code error;
    if (!std::filesystem::exists(path, error)) continue;
    absl::StatusOr<std::unique_ptr<Backend>> backend = Open(path.string(), options, driver);
    if (backend.ok()) return backend;
    return absl::Status(backend.status().code(), absl::StrCat(file, ": ", backend.status().message()));
  }
  return absl::UnavailableError(absl::StrCat("no ", file, " in ", absl::StrJoin(folders, ", "),
                                             "; build with the CUDA toolkit, or name its folder in CAIRN_PLUGINS"));
}

absl::StatusOr<std::unique_ptr<Backend>> SelectBackend(const std::string& device, std::string* fallback,
                                                       PluginOptions options) {
  if (device == "cpu") return MakeOnednnBackend();
  options.device = kAllDevices;
  if (absl::StartsWith(device, "gpu:")) {
    if (!absl::SimpleAtoi(device.substr(4), &options.device) || options.device < 0 || options.device >= kDevicesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("--device=", device, ": the number of a GPU is missing, as in gpu:0"));
    }
  } else if (device != "auto" && device != "gpu") {
    return absl::InvalidArgumentError(absl::StrCat("--device=", device, ": use auto, cpu, gpu or gpu:N"));
  }
  absl::StatusOr<std::unique_ptr<Backend>> gpu = LoadPlugin(PluginFolders(), kCudnnPlugin, options, kNvidiaDriver);
  if (gpu.ok()) return gpu;
  const std::string why(gpu.status().message());
  if (device != "auto")
    return absl::UnavailableError(absl::StrCat("--device=", device, ": ", why, "; use --device=cpu, or auto"));
  if (fallback != nullptr) *fallback = why;
  return MakeOnednnBackend();
}

}  // namespace cairn
