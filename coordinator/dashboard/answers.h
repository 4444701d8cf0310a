// What the answers of the coordinator's pages are made of.
//
// Pure functions; any thread.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "cairn/v1/cluster.pb.h"
#include "common/base/status.h"
#include "common/http/server.h"

namespace cairn {

HttpAnswer TextAnswer(int status, absl::string_view text);
// json: without its last line feed.
HttpAnswer JsonAnswer(const std::string& json, int status = 200);

// Of a status of the driver: the payload kLeaderPayload or kLeaderHttpPayload; empty: there is none.
std::string LeaderIn(const absl::Status& status, const char* payload);
// 307 to the same target at the leader's pages; nullopt: the status does not name them.
std::optional<HttpAnswer> ToLeader(const absl::Status& status, const HttpRequest& request);

// A job as a path names it: by its number, or its name.
v1::GetJobRequest WhichJob(absl::string_view text);

}  // namespace cairn
