#include "worker/backend/cudnn/tuning.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/digest.h"
#include "common/base/log.h"
#include "worker/backend/limits.h"

namespace cairn::cudnn {
namespace {

constexpr char kFormat[] = "cairn cudnn tuning 1";
// A model has some hundred shapes. Beyond this nothing is added.

bool OneField(const std::string& text) { return !text.empty() && text.find_first_of("\t\n\r") == std::string::npos; }

}  // namespace

// ---- the file ----

TuningFile::TuningFile(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  absl::StatusOr<std::string> text = Read(path_);
  if (absl::IsNotFound(text.status())) return;
  absl::StatusOr<Entries> entries = text.ok() ? Parse(*text) : absl::StatusOr<Entries>(text.status());
  if (!entries.ok()) {
    LogWarning("%s: %s; it is ignored, and what is measured now replaces it", path_, entries.status().message());
    return;
  }
  absl::MutexLock lock(&mutex_);
  entries_ = *std::move(entries);
}

absl::StatusOr<std::string> TuningFile::Read(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) return absl::NotFoundError("no such file");
  if (error) return absl::UnavailableError(error.message());
  if (status.type() != std::filesystem::file_type::regular) return absl::InvalidArgumentError("is not a regular file");
  if (const uintmax_t bytes = std::filesystem::file_size(path, error); error || bytes > kTuningFileBytesMax) {
    return absl::InvalidArgumentError(error ? error.message()
                                            : absl::StrCat("has ", bytes, " bytes, more than any such file"));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) return absl::UnavailableError("cannot be read");
  return text;
}

absl::StatusOr<TuningFile::Entries> TuningFile::Parse(const std::string& text) {
  const std::string begin = absl::StrCat(kFormat, "\n");
  if (!absl::StartsWith(text, begin))
    return absl::InvalidArgumentError("is not a tuning file of this version of Cairn");
  const size_t body = text.find('\n', begin.size());
  if (body == std::string::npos ||
      text.substr(begin.size(), body - begin.size()) !=
          absl::StrFormat("%016x", Checksum(text.data() + body + 1, text.size() - body - 1))) {
    return absl::InvalidArgumentError("is torn: its checksum is not that of its lines");
  }
  Entries entries;
  const std::vector<std::string> lines = absl::StrSplit(text.substr(body + 1), '\n', absl::SkipEmpty());
  for (const std::string& line : lines) {
    const std::vector<std::string> fields = absl::StrSplit(line, '\t');
    double microseconds = 0;
    if (fields.size() != 3 || !OneField(fields[0]) || !OneField(fields[1]) ||
        !absl::SimpleAtod(fields[2], &microseconds)) {
      return absl::InvalidArgumentError("has a line that is not a key, a choice and a time");
    }
    if (entries.size() >= kTuningEntriesMax)
      return absl::InvalidArgumentError(absl::StrCat("has more than ", kTuningEntriesMax, " lines"));
    entries[fields[0]] = {fields[1], microseconds};
  }
  return entries;
}

std::string TuningFile::Text(const Entries& entries) {
  std::string body;
  for (const auto& [key, entry] : entries)
    absl::StrAppendFormat(&body, "%s\t%s\t%.1f\n", key, entry.choice, entry.microseconds);
  return absl::StrFormat("%s\n%016x\n%s", kFormat, Checksum(body.data(), body.size()), body);
}

absl::Status TuningFile::Write(const std::string& text) const {
  const std::filesystem::path path(path_);
  std::error_code error;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  const std::string beside = absl::StrCat(path_, ".", getpid(), ".partial");
  {
    std::ofstream file(beside, std::ios::binary | std::ios::trunc);
    file << text;
    file.flush();
    if (!file) {
      const int reason = errno;
      std::filesystem::remove(beside, error);
      return absl::UnavailableError(absl::StrCat(beside, ": cannot be written: ", std::strerror(reason)));
    }
  }
  std::filesystem::rename(beside, path, error);
  if (!error) return absl::OkStatus();
  const std::string reason = error.message();
  std::filesystem::remove(beside, error);
  return absl::UnavailableError(absl::StrCat(path_, ": cannot be replaced: ", reason));
}

std::optional<std::string> TuningFile::Find(const std::string& key) const {
  absl::MutexLock lock(&mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return std::nullopt;
  return found->second.choice;
}

void TuningFile::Put(const std::string& key, const std::string& choice, double microseconds) {
  CAIRN_CHECK(OneField(key) && OneField(choice), "keys and names are texts of our own, of one line");
  absl::MutexLock lock(&mutex_);
  if (entries_.size() >= kTuningEntriesMax && !entries_.contains(key)) return;
  entries_[key] = {choice, microseconds};
  if (path_.empty() || unwritable_) return;
  // What other workers measured since.
  if (const absl::StatusOr<std::string> text = Read(path_); text.ok()) {
    const absl::StatusOr<Entries> others = Parse(*text);
    for (const auto& entry : others.ok() ? *others : Entries()) {
      if (entries_.size() < kTuningEntriesMax) entries_.insert(entry);
    }
  }
  if (const absl::Status written = Write(Text(entries_)); !written.ok()) {
    unwritable_ = true;
    LogWarning("%s; what is measured is not kept", written.message());
  }
}

// ---- the choice ----

size_t Tuner::Choose(const std::string& what, const std::vector<std::string>& names,
                     const std::function<absl::StatusOr<double>(size_t)>& microseconds) {
  CAIRN_CHECK(!names.empty(), "there is something to choose from");
  if (names.size() == 1) return 0;
  const std::string key = absl::StrCat(device_, ": ", what);
  absl::MutexLock lock(&measuring_);  // two at a time would disturb each other, and would measure the same
  if (const std::optional<std::string> known = file_.Find(key)) {
    const auto found = std::find(names.begin(), names.end(), *known);
    if (found != names.end()) return found - names.begin();
  }
  std::optional<size_t> best;
  double best_time = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    const absl::StatusOr<double> time = microseconds(i);
    if (!time.ok() || !std::isfinite(*time)) {
      LogDebug("%s: %s cannot be measured: %s", what, names[i], time.ok() ? "no time" : time.status().message());
    } else if (!best || *time < best_time) {
      best = i;
      best_time = *time;
    }
  }
  if (!best) return 0;
  LogDebug("%s: %s, %.1f us, of %d", what, names[*best], best_time, names.size());
  file_.Put(key, names[*best], best_time);
  return *best;
}

}  // namespace cairn::cudnn
