// Terminal colours for the way a job ended. Any thread.
#pragma once

#include <string>

#include "cairn/v1/job_status.pb.h"

namespace cairn {

// Whether stdout is a terminal and $NO_COLOR is not set.
bool ShowsColours();

// The text in green, yellow or red if the job has succeeded, ended with errors, or failed; unchanged in other states
// and if `shows` is false.
std::string InColourOf(v1::JobState state, std::string text, bool shows);

}  // namespace cairn
