// Which backend a worker computes with: the place where backends that are found at start (a GPU's) join those linked
// in.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/backend/backend.h"
#include "worker/backend/plugin_options.h"

namespace cairn {

// device: "auto" (the GPUs if this machine has any, else the CPU), "cpu", "gpu" (all GPUs of the first one's model) or
// "gpu:N". options: what a GPU's plugin is told besides the device. fallback: if "auto" chose the CPU, why it could not
// be a GPU. Errors: INVALID_ARGUMENT, a device of another name; UNAVAILABLE, there is none such: no plugin, no driver,
// no device, or another build's plugin.
absl::StatusOr<std::unique_ptr<Backend>> SelectBackend(const std::string& device, std::string* fallback = nullptr,
                                                       PluginOptions options = {});

// Where a plugin is looked for, in this order: the folders of CAIRN_PLUGINS (with colons), the program's own, ../lib
// beside it.
std::vector<std::string> PluginFolders();

// Opens the first `file` found in one of the folders; it stays open for ever. driver: a library without which the file,
// which takes most of a second to open, is useless; or "". Errors: UNAVAILABLE names the folders, or what is
// wrong.
absl::StatusOr<std::unique_ptr<Backend>> LoadPlugin(const std::vector<std::string>& folders, const std::string& file,
                                                    const PluginOptions& options, const char* driver = "");

}  // namespace cairn
