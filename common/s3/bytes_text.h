// Bytes for people: "31.2 MiB". Pure; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_format.h"

namespace cairn {

inline std::string BytesText(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return absl::StrFormat("%d bytes", bytes);
  double shown = static_cast<double>(bytes) / 1024;
  int unit = 0;
  for (; shown >= 1024 && unit < 3; ++unit) shown /= 1024;
  return absl::StrFormat("%.1f %s", shown, kUnits[unit]);
}

}  // namespace cairn
