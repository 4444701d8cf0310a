// Selects the backend that a worker computes with: one that is linked in, or a plugin that is loaded at start (a
// GPU's).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/backend/backend.h"
#include "worker/backend/plugin_options.h"

namespace cairn {

// device: "auto" (the GPUs if this machine has any, else the CPU), "cpu", "gpu" (all GPUs of the first one's model) or
// "gpu:N". options: passed to the GPU plugin besides the device. fallback: set if "auto" chose the CPU: why no GPU was
// usable. Errors: INVALID_ARGUMENT: unknown device name; UNAVAILABLE: no such device: no plugin, no driver,
// no device, or the plugin of another build.
absl::StatusOr<std::unique_ptr<Backend>> SelectBackend(const std::string& device, std::string* fallback = nullptr,
                                                       PluginOptions options = {});

// Where plugins are searched, in this order: the folders in CAIRN_PLUGINS (separated by colons), the program's own, and
// ../lib beside it.
std::vector<std::string> PluginFolders();

// Loads the first `file` found in one of the folders and never unloads it. driver: a library that the plugin needs, or
// "": if it is missing, the plugin, which takes most of a second to load, is not tried. Errors: UNAVAILABLE names the
// folders, or the problem.
absl::StatusOr<std::unique_ptr<Backend>> LoadPlugin(const std::vector<std::string>& folders, const std::string& file,
                                                    const PluginOptions& options, const char* driver = "");

}  // namespace cairn
