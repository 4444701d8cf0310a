// The colours in which a terminal shows how a job ended. Any thread.
#pragma once

#include <string>

#include "cairn/v1/job_status.pb.h"

namespace cairn {

// stdout is a terminal, and $NO_COLOR is not set.
bool ShowsColours();

// Green, yellow or red where the job has succeeded, ended with errors, or failed; as it is in other states, and where
// `shows` is false.
std::string InColourOf(v1::JobState state, std::string text, bool shows);

}  // namespace cairn
