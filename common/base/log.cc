#include "common/base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/log_ring.h"

namespace cairn {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

LogRing& Ring() {
  static auto* const ring = new LogRing;  // never destroyed: threads may log until the process ends
  return *ring;
}

}  // namespace

const LogRing& ProcessLog() { return Ring(); }

absl::Status InitLog(const LogOptions& options) {
  spdlog::level::level_enum level;
  if (options.level == "debug") {
    level = spdlog::level::debug;
  } else if (options.level == "info") {
    level = spdlog::level::info;
  } else if (options.level == "warning") {
    level = spdlog::level::warn;
  } else if (options.level == "error") {
    level = spdlog::level::err;
  } else {
    return absl::InvalidArgumentError("log level \"" + options.level + "\": use debug, info, warning or error");
  }
  std::vector<spdlog::sink_ptr> sinks{std::make_shared<spdlog::sinks::stderr_color_sink_mt>()};
  if (!options.file.empty()) {
    try {
      sinks.push_back(std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file));
    } catch (const spdlog::spdlog_ex& e) {
      return absl::InvalidArgumentError(std::string("log file: ") + e.what());
    }
  }
  auto logger = std::make_shared<spdlog::logger>(options.program, sinks.begin(), sinks.end());
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %L %n] %v");
  logger->set_level(level);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
  return absl::OkStatus();
}

void SilenceLog() { spdlog::default_logger_raw()->set_level(spdlog::level::off); }

bool LogEnabled(LogLevel level) { return spdlog::default_logger_raw()->should_log(ToSpdlog(level)); }

void LogWrite(LogLevel level, std::string_view text) {
  if (!LogEnabled(level)) return;
  Ring().Add(absl::Now(), level, text);
  spdlog::default_logger_raw()->log(ToSpdlog(level), spdlog::string_view_t(text.data(), text.size()));
}

void CheckFailed(const char* file, int line, const char* condition, std::string_view message) {
  spdlog::default_logger_raw()->set_level(spdlog::level::err);  // also after SilenceLog
  LogError("%s:%d: check failed: %s: %s", file, line, condition, message);
  std::abort();
}

}  // namespace cairn
