// The parts of the page that are the same for every sweep (cmake/Embed.cmake).
#pragma once

#include <string_view>

namespace cairn {

extern const std::string_view kSweepPageCss;
extern const std::string_view kSweepPageJs;

}  // namespace cairn
