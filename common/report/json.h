// Messages as JSON for scripts: names as in the protos, numbers as numbers (a seed above 2^53 as a string, since
// JavaScript and other readers would round it), enums by name, sums as means with the metrics' names.
#pragma once

#include <string>
#include <vector>

#include "cairn/v1/cluster.pb.h"

namespace cairn {

// One line each, without the newline. Figures are those of figures.h; a JobSpec shows only fields that are set, other
// messages all fields.
std::string JobJson(const v1::JobStatus& job);
std::string JobsJson(const v1::ListJobsResponse& jobs);           // {"jobs": [...]}
std::string NodesJson(const std::vector<v1::NodeStatus>& nodes);  // {"nodes": [...]}
// {"number", "time_ms", "severity", "job_id" and "job_name" or "role" and "node", "text"}
std::string EventJson(const v1::ClusterEvent& event);
// {"events": [...], "since_ms", "dropped"}; the oldest first
std::string EventsJson(const v1::ListEventsResponse& events);
std::string DataInfoJson(const v1::DataInfo& info);
std::string SubmitJson(const v1::SubmitResponse& response);  // {"job_id", "name", "state", "reason", "warnings"}
// {"job_id", "split", "examples", "loss", METRIC..., "version"}
std::string EvaluateJson(const v1::JobStatus& job, v1::Split split, const v1::EvaluateResponse& response);

}  // namespace cairn
