// LogFollower: lines of the logs of several daemons, each line once, by time within a round.
//
// One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/observe.pb.h"
#include "common/base/status.h"

namespace cairn {

// The coordinator, among the names of nodes.
inline constexpr char kCoordinatorLog[] = "coordinator";

// "debug", "info", "warning", "error". Errors: INVALID_ARGUMENT names --level.
absl::StatusOr<v1::LogSeverity> ParseSeverity(const std::string& text);

// Control characters as "\x1b": what comes from a file's name must not move a terminal's cursor, or look like a line.
std::string OneLine(const std::string& text);

struct DaemonLine {
  std::string daemon;
  v1::LoggedLine line;
};
// As the daemon has it in its own log: "2026-11-28 18:55:59.120 W ps-0] text".
std::string LogLineText(const DaemonLine& line, absl::TimeZone zone);
// {"daemon", "number", "time_ms", "severity", "text"}
std::string LogLineJson(const DaemonLine& line);

class LogFollower {
 public:
  using Read = std::function<absl::StatusOr<v1::ReadLogResponse>(const v1::ReadLogRequest&)>;

  // what: its node, after and process are filled in for each daemon; its limit is for the first round.
  LogFollower(Read read, v1::ReadLogRequest what) : read_(std::move(read)), what_(std::move(what)) {}

  struct Round {
    std::vector<DaemonLine> lines;   // by time; new since the last round
    std::vector<std::string> notes;  // what is missing, and what has changed since the last round
    size_t answers = 0;              // of daemons
    absl::Status trouble;            // the first error; OK: all have answered
  };
  // Asks these daemons. A daemon that does not answer is noted when its error changes.
  Round Next(const std::vector<std::string>& daemons);

 private:
  struct Place {
    uint64_t process = 0, after = 0;
    std::string trouble;
  };
  const Read read_;
  const v1::ReadLogRequest what_;
  std::map<std::string, Place> places_;
};

}  // namespace cairn
