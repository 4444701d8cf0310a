#include "coordinator/node/audit_log.h"

#include <fcntl.h>
#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/spdlog.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/text.h"

namespace cairn {
namespace {

std::string Short(absl::string_view text) {
  return std::string(CutUtf8({text.data(), text.size()}, kAuditTextBytesMax));
}

}  // namespace

absl::StatusOr<std::unique_ptr<AuditLog>> AuditLog::Open(const std::string& path, size_t file_bytes_max) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (!folder.empty() && !IsFolder(folder)) {
    return absl::InvalidArgumentError(absl::StrCat("--audit-log: ", folder, " is no folder; create it first"));
  }
  try {
    spdlog::file_event_handlers handlers;
    handlers.before_open = [](const spdlog::filename_t& file) {  // for this user alone
      const FileDescriptor made(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    };
    auto sink = std::make_shared<spdlog::sinks::rotating_file_sink_mt>(path, file_bytes_max, kAuditOlderFilesMax,
                                                                       /*rotate_on_open=*/false, handlers);
    auto file = std::make_shared<spdlog::logger>("audit", std::move(sink));
    file->set_pattern("%v");
    file->flush_on(spdlog::level::info);
    return std::unique_ptr<AuditLog>(new AuditLog(std::move(file)));
  } catch (const spdlog::spdlog_ex& error) {
    return absl::InvalidArgumentError(absl::StrCat("--audit-log: ", error.what(), "; give a file that can be written"));
  }
}

AuditLog::AuditLog(std::shared_ptr<spdlog::logger> file) : file_(std::move(file)) {
  file_->set_error_handler([this](const std::string& error) {
    fails_ = true;
    if (!said_.exchange(true)) LogError("--audit-log: lines cannot be written: %s", error);
  });
}

AuditLog::~AuditLog() = default;

void AuditLog::WriteRefusal(const std::string& method, const Caller& who, const absl::Status& why) {
  uint64_t repeats = 0;
  {
    const absl::MutexLock lock(&mutex_);
    const absl::Time now = absl::Now();
    if (refused_.size() >= kAuditCallersMax) refused_.clear();
    Refused& before = refused_[absl::StrCat(who.Shown(), "\n", Short(method))];
    if (now - before.written < kAuditRefusalsEvery) {
      ++before.repeats;
      return;
    }
    repeats = std::exchange(before.repeats, 0);
    before.written = now;
  }
  WriteLine({.call = method, .who = who, .from = "", .what = ""}, why, 0, repeats);
}

void AuditLog::Write(const AuditRecord& record, const absl::Status& outcome, uint64_t job_id) {
  WriteLine(record, outcome, job_id, 0);
}

void AuditLog::WriteLine(const AuditRecord& record, const absl::Status& outcome, uint64_t job_id, uint64_t repeats) {
  nlohmann::ordered_json line = {{"time", absl::FormatTime(absl::RFC3339_full, absl::Now(), absl::UTCTimeZone())},
                                 {"who", record.who.Shown()},
                                 {"call", Short(record.call)}};
  if (!record.from.empty()) line["from"] = record.from;
  if (!record.what.empty()) line["what"] = Short(record.what);
  if (job_id != 0) line["job_id"] = job_id;
  line["outcome"] = absl::StatusCodeToString(outcome.code());
  if (!outcome.ok()) line["error"] = Short(outcome.message());
  if (repeats > 0) line["repeats"] = repeats;
  fails_ = false;
  file_->info("{}", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  if (!fails_ && said_.exchange(false)) LogInfo("--audit-log: lines are written again");
}

}  // namespace cairn
