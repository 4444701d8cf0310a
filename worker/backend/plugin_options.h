// The options that a worker gives the plugin of a GPU (plugin.h).
#pragma once

#include <string>

namespace cairn {

inline constexpr int kAllDevices = -1;

struct PluginOptions {
  int device = kAllDevices;
  // In jobs that are not deterministic, choose between several engines by measured time. Costs time in the first step
  // of a model.
  bool autotune = false;
  std::string tuning_file;  // keeps the measured times; "": they are not kept
};

}  // namespace cairn
