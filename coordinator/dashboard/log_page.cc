#include "coordinator/dashboard/log_page.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/log_answer.h"
#include "coordinator/core/limits.h"
#include "coordinator/node/awaited_answer.h"

namespace cairn {
namespace {

constexpr const char* kLevels[] = {"all", "debug", "info", "warning", "error"};  // by LogSeverity

std::string Parameter(const HttpRequest& request, const char* name) {
  const auto it = request.query.find(name);
  return it == request.query.end() ? "" : it->second;
}

absl::StatusOr<v1::ReadLogRequest> Read(const HttpRequest& request) {
  v1::ReadLogRequest out;
  out.set_node(Parameter(request, "node"));
  out.set_limit(kLogPageLinesDefault);
  if (out.node().size() > kNodeNameBytesMax) return absl::InvalidArgumentError("node: is too long");
  uint64_t job = 0;
  if (const std::string text = Parameter(request, "job"); !text.empty() && !absl::SimpleAtoi(text, &job))
    return absl::InvalidArgumentError("job: a number is expected");
  out.set_job_id(job);
  int32_t limit = kLogPageLinesDefault;
  const std::string lines = Parameter(request, "limit"), level = Parameter(request, "level");
  if (!lines.empty() && (!absl::SimpleAtoi(lines, &limit) || limit < 1 || limit > kLogPageLinesMax))
    return absl::InvalidArgumentError(absl::StrCat("limit: 1 to ", kLogPageLinesMax, " is expected"));
  out.set_limit(limit);
  if (level.empty()) return out;
  for (int i = 0; i < 5; ++i) {
    if (level != kLevels[i]) continue;
    out.set_severity(static_cast<v1::LogSeverity>(i));
    return out;
  }
  return absl::InvalidArgumentError("level: all, debug, info, warning or error is expected");
}

std::string ToJson(const std::string& node, const v1::ReadLogResponse& log) {
  nlohmann::ordered_json lines = nlohmann::ordered_json::array();
  for (const v1::LoggedLine& line : log.lines()) {
    const int level = v1::LogSeverity_IsValid(line.severity()) ? line.severity() : 0;
    lines.push_back({{"unix_ms", line.unix_ms()}, {"level", kLevels[level]}, {"text", line.text()}});
  }
  const nlohmann::ordered_json object = {{"node", node}, {"dropped", log.dropped()}, {"lines", std::move(lines)}};
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

absl::StatusOr<v1::ReadLogResponse> LogPage::Own(const v1::ReadLogRequest& request, const Requester& who) {
  const auto may =
      questions_->Ask<bool>([job = request.job_id(), who](const ClusterCore& core, absl::Time) -> absl::StatusOr<bool> {
        CAIRN_RETURN_IF_ERROR(core.CheckLogAccess(job, who));
        return true;
      });
  if (!may.ok()) return may.status();
  return AnswerReadLog(request);
}

absl::StatusOr<v1::ReadLogResponse> LogPage::OfNode(const v1::ReadLogRequest& request, const Requester& who) {
  const auto reply = std::make_shared<AwaitedAnswer<v1::ReadLogResponse>>();
  driver_->Call(
      ClusterDriver::kPages,
      [request, who](ReplyToken token) {
        return ReadLog{token, request, who};
      },
      [reply](const absl::Status& status, const ReplyBody& body) {
        const auto* lines = std::get_if<v1::ReadLogResponse>(&body);
        if (status.ok() && lines != nullptr) {
          reply->Put(*lines);
        } else {
          reply->Put(status.ok() ? absl::InternalError("the core gave no log") : status);
        }
      });
  return reply->Wait(kLogReadTimeout + absl::Seconds(1));
}

absl::StatusOr<std::string> LogPage::Answer(const HttpRequest& request, const Requester& who) {
  CAIRN_ASSIGN_OR_RETURN(const v1::ReadLogRequest wanted, Read(request));
  {
    absl::MutexLock lock(&mutex_);
    if (waiting_ >= kLogPagesMax)
      return absl::ResourceExhaustedError("too many pages wait for logs of nodes; try again later");
    ++waiting_;
  }
  const absl::StatusOr<v1::ReadLogResponse> log = wanted.node().empty() ? Own(wanted, who) : OfNode(wanted, who);
  {
    absl::MutexLock lock(&mutex_);
    --waiting_;
  }
  if (!log.ok()) return log.status();
  return ToJson(wanted.node().empty() ? "coordinator" : wanted.node(), *log);
}

}  // namespace cairn
