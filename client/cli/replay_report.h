// What `cairn replay` prints of a replay: a table, or JSON.
//
// Pure functions; any thread. Texts end with a line break, JSON does not.
#pragma once

#include <string>

#include "replay/replay.h"

namespace cairn {

std::string ReplayText(const v1::JobStatus& job, const ReplayResult& result);
// {"job_id", "name", "step", "from", "first_step", "device", "examples", FIGURE..., "learning_rate", "digest",
//  "check": {"updates", "digest", "recorded", "where", "same"} or null, "layers": [{"layer", "weights", ...}]}
std::string ReplayJson(const v1::JobStatus& job, const ReplayResult& result);

std::string FindText(const v1::JobStatus& job, const FindResult& result);
// {"job_id", "name", "from", "first_step", "last_step", "device",
//  "found": {"step", "kind", "name", "replica", "example", "not_looked_at": [...]} or null}
std::string FindJson(const v1::JobStatus& job, const FindResult& result);

// Why the replayed step is not the job's; `result` has a check, which differs.
std::string DifferenceText(const v1::JobStatus& job, const ReplayResult& result);

}  // namespace cairn
