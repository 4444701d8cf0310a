#include "coordinator/dashboard/answers.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "coordinator/node/cluster_driver.h"

namespace cairn {

HttpAnswer TextAnswer(int status, absl::string_view text) {
  return {status, "text/plain; charset=utf-8", absl::StrCat(text, "\n"), {}};
}

HttpAnswer JsonAnswer(const std::string& json, int status) { return {status, "application/json", json + "\n", {}}; }

std::string LeaderIn(const absl::Status& status, const char* payload) {
  const auto cord = status.GetPayload(payload);
  return cord ? std::string(*cord) : "";
}

std::optional<HttpAnswer> ToLeader(const absl::Status& status, const HttpRequest& request) {
  const std::string leader = LeaderIn(status, kLeaderHttpPayload);
  if (leader.empty()) return std::nullopt;
  HttpAnswer answer = TextAnswer(307, absl::StrCat(status.message(), "; its pages: ", leader, request.target));
  answer.headers = {{"Location", leader + request.target}};
  return answer;
}

v1::GetJobRequest WhichJob(absl::string_view text) {
  v1::GetJobRequest request;
  uint64_t id = 0;
  if (absl::SimpleAtoi(text, &id)) {
    request.set_job_id(id);
  } else {
    request.set_name(std::string(text));
  }
  return request;
}

}  // namespace cairn
