#include "client/cli/log_follower.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/limits.h"

namespace cairn {
namespace {

struct Severity {
  const char* name;
  v1::LogSeverity severity;
  char letter;
};
constexpr Severity kSeverities[] = {{"debug", v1::LOG_SEVERITY_DEBUG, 'D'},
                                    {"info", v1::LOG_SEVERITY_INFO, 'I'},
                                    {"warning", v1::LOG_SEVERITY_WARNING, 'W'},
                                    {"error", v1::LOG_SEVERITY_ERROR, 'E'}};

const Severity& Of(v1::LogSeverity severity) {
  for (const Severity& s : kSeverities) {
    if (s.severity == severity) return s;
  }
  return kSeverities[1];
}

// Whether all lines are asked for, so that each that is missing would have been shown.
bool IsWhole(const v1::ReadLogRequest& request) {
  return request.job_id() == 0 && request.severity() <= v1::LOG_SEVERITY_DEBUG;
}

}  // namespace

std::string OneLine(const std::string& text) {
  std::string line;
  for (const char c : text) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
      absl::StrAppendFormat(&line, "\\x%02x", static_cast<unsigned char>(c));
    } else {
      line.push_back(c);
    }
  }
  return line;
}

absl::StatusOr<v1::LogSeverity> ParseSeverity(const std::string& text) {
  for (const Severity& s : kSeverities) {
    if (text == s.name) return s.severity;
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("--level: there is no level \"%s\"; use debug, info, warning or error", text));
}

std::string LogLineText(const DaemonLine& line, absl::TimeZone zone) {
  return absl::StrFormat("%s %c %s] %s",
                         absl::FormatTime("%Y-%m-%d %H:%M:%E3S", absl::FromUnixMillis(line.line.unix_ms()), zone),
                         Of(line.line.severity()).letter, line.daemon, OneLine(line.line.text()));
}

std::string LogLineJson(const DaemonLine& line) {
  const nlohmann::ordered_json object = {{"daemon", line.daemon},
                                         {"number", line.line.number()},
                                         {"time_ms", line.line.unix_ms()},
                                         {"severity", Of(line.line.severity()).name},
                                         {"text", line.line.text()}};
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

LogFollower::Round LogFollower::Next(const std::vector<std::string>& daemons) {
  Round round;
  for (const std::string& daemon : daemons) {
    Place& place = places_[daemon];
    v1::ReadLogRequest request = what_;
    if (daemon != kCoordinatorLog) request.set_node(daemon);
    if (place.process != 0) request.set_limit(kLogAnswerLinesMax);
    request.set_process(place.process);
    request.set_after(place.after);
    absl::StatusOr<v1::ReadLogResponse> answer = read_(request);
    if (!answer.ok()) {
      round.trouble.Update(answer.status());
      const std::string trouble(answer.status().message());
      if (std::exchange(place.trouble, trouble) != trouble) round.notes.push_back(absl::StrCat(daemon, ": ", trouble));
      continue;
    }
    ++round.answers;
    place.trouble.clear();
    const bool first = place.process == 0, anew = !first && place.process != answer->process();
    if (anew) round.notes.push_back(absl::StrCat(daemon, ": was started again, and its log begins anew"));
    // At the first round the newest lines are what is asked for.
    if (!first && !anew && answer->dropped() > 0)
      round.notes.push_back(absl::StrCat(daemon, ": up to ", answer->dropped(), " lines in between are lost"));
    if (first && answer->dropped() > 0 && answer->lines_size() < what_.limit() && IsWhole(what_))
      round.notes.push_back(absl::StrCat(daemon, ": ", answer->dropped(), " older lines are not kept, or too long"));
    place.process = answer->process();
    place.after = answer->last();
    for (v1::LoggedLine& line : *answer->mutable_lines()) round.lines.push_back({daemon, std::move(line)});
  }
  std::stable_sort(round.lines.begin(), round.lines.end(),
                   [](const DaemonLine& a, const DaemonLine& b) { return a.line.unix_ms() < b.line.unix_ms(); });
  return round;
}

}  // namespace cairn
