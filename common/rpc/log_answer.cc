#include "common/rpc/log_answer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log_ring.h"
#include "common/rpc/daemon.h"
#include "common/rpc/utf8_message.h"

namespace cairn {
namespace {

constexpr int kLinesDefault = 1000;

LogLevel ToLevel(v1::LogSeverity severity) {
  switch (severity) {
    case v1::LOG_SEVERITY_INFO: return LogLevel::kInfo;
    case v1::LOG_SEVERITY_WARNING: return LogLevel::kWarning;
    case v1::LOG_SEVERITY_ERROR: return LogLevel::kError;
    default: return LogLevel::kDebug;
  }
}

v1::LogSeverity ToSeverity(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return v1::LOG_SEVERITY_DEBUG;
    case LogLevel::kInfo: return v1::LOG_SEVERITY_INFO;
    case LogLevel::kWarning: return v1::LOG_SEVERITY_WARNING;
    case LogLevel::kError: return v1::LOG_SEVERITY_ERROR;
  }
  return v1::LOG_SEVERITY_UNSPECIFIED;
}

uint64_t ThisProcess() {
  static const uint64_t process = std::max<uint64_t>(1, RandomBits());
  return process;
}

}  // namespace

absl::Status CheckReadLog(const v1::ReadLogRequest& request) {
  if (request.limit() < 0 || request.limit() > kLogAnswerLinesMax)
    return absl::InvalidArgumentError(absl::StrCat("limit: ", request.limit(), "; use 0 to ", kLogAnswerLinesMax));
  if (!v1::LogSeverity_IsValid(request.severity()))
    return absl::InvalidArgumentError(absl::StrCat("severity: there is no ", static_cast<int>(request.severity())));
  return absl::OkStatus();
}

v1::ReadLogResponse AnswerReadLog(const v1::ReadLogRequest& request) {
  LogQuery query;
  query.level = ToLevel(request.severity());
  if (request.job_id() != 0) query.job = request.job_id();
  if (request.process() == ThisProcess()) query.after = request.after();
  const int lines = request.limit() > 0 ? std::min(request.limit(), kLogAnswerLinesMax) : kLinesDefault;
  query.lines_max = static_cast<size_t>(lines);
  LogTail tail = ProcessLog().Read(query);
  v1::ReadLogResponse response;
  for (KeptLine& line : tail.lines) {
    v1::LoggedLine& to = *response.add_lines();
    to.set_number(line.number);
    to.set_unix_ms(absl::ToUnixMillis(line.time));
    to.set_severity(ToSeverity(line.level));
    to.set_text(std::move(line.text));
  }
  response.set_last(tail.last);
  response.set_process(ThisProcess());
  response.set_dropped(tail.dropped);
  MakeUtf8(&response);  // a line may contain a file name that is not UTF-8
  return response;
}

}  // namespace cairn
