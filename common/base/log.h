// Logging: one line per event on stderr (and to a file if asked), "time level daemon] text". The last lines are kept in
// memory (log_ring.h).
//
//   LogInfo("job %d: %d partitions ready", id, n);      absl::StrFormat's grammar
//
// Thread-safe. InitLog is called once, by a main.
#pragma once

#include <string>
#include <string_view>

#include "absl/strings/str_format.h"
#include "common/base/status.h"

namespace cairn {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

struct LogOptions {
  std::string program;         // printed in each line: "ps-0"
  std::string level = "info";  // debug, info, warning, error
  std::string file;            // empty: stderr only
};

absl::Status InitLog(const LogOptions& options);
// From here on only the reason for an abort is written: for the simulator, whose thousands of nodes would flood the
// log.
void SilenceLog();
bool LogEnabled(LogLevel level);
void LogWrite(LogLevel level, std::string_view text);

template <typename... Args>
void LogDebug(const absl::FormatSpec<Args...>& format, const Args&... args) {
  if (LogEnabled(LogLevel::kDebug)) LogWrite(LogLevel::kDebug, absl::StrFormat(format, args...));
}
template <typename... Args>
void LogInfo(const absl::FormatSpec<Args...>& format, const Args&... args) {
  LogWrite(LogLevel::kInfo, absl::StrFormat(format, args...));
}
template <typename... Args>
void LogWarning(const absl::FormatSpec<Args...>& format, const Args&... args) {
  LogWrite(LogLevel::kWarning, absl::StrFormat(format, args...));
}
template <typename... Args>
void LogError(const absl::FormatSpec<Args...>& format, const Args&... args) {
  LogWrite(LogLevel::kError, absl::StrFormat(format, args...));
}

}  // namespace cairn
