// What a worker asks of the plugin of a GPU (plugin.h).
#pragma once

#include <string>

namespace cairn {

inline constexpr int kAllDevices = -1;

struct PluginOptions {
  int device = kAllDevices;
  // In jobs that are not deterministic, take of several engines the one that is measured to be the fastest.
  bool autotune = false;
  std::string tuning_file;  // where what was measured is kept; "": nowhere
};

}  // namespace cairn
