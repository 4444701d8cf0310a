// The files of coordinator/dashboard/, as they were at build time (cmake/Embed.cmake).
#pragma once

#include <string_view>

namespace cairn {

extern const std::string_view kDashboardHtml;
extern const std::string_view kDashboardCss;
extern const std::string_view kElementsJs;
extern const std::string_view kActionsJs;
extern const std::string_view kChartJs;
extern const std::string_view kJobJs;
extern const std::string_view kCompareJs;
extern const std::string_view kLogJs;
extern const std::string_view kSubmitJs;
extern const std::string_view kDashboardJs;

}  // namespace cairn
