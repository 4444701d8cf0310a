#include "worker/reports/csv_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/base/decimal.h"
#include "common/base/files.h"
#include "common/formats/plain_file.h"
#include "common/model/job_check.h"
#include "common/model/job_outputs.h"
#include "common/model/path_template.h"
#include "common/report/figures.h"
#include "worker/limits.h"

namespace cairn {
namespace {

constexpr char kEnd[] = "\r\n";  // line end, as Python's csv module writes it
constexpr char kNone[] = "NA";   // a figure that an epoch does not have

// Whether its callbacks log the learning rate.
bool LogsRate(const v1::JobSpec& spec) {
  return std::any_of(spec.callbacks().begin(), spec.callbacks().end(), [](const v1::Callback& c) {
    return c.has_learning_rate_scheduler() || c.has_reduce_lr_on_plateau();
  });
}

void AddFigures(const v1::JobSpec& spec, const v1::MetricSums& sums, const std::string& prefix,
                std::map<std::string, double>* figures) {
  for (const auto& [name, value] : MeanFigures(spec, sums)) (*figures)[absl::StrCat(prefix, name)] = value;
}

std::map<std::string, double> FiguresOf(const v1::JobSpec& spec, const v1::EpochResult& epoch) {
  std::map<std::string, double> figures;
  AddFigures(spec, epoch.train(), "", &figures);
  AddFigures(spec, epoch.validation(), "val_", &figures);
  if (LogsRate(spec)) figures["learning_rate"] = Decimal(epoch.learning_rate());
  return figures;
}

// Another worker that writes the same rows, as a former chief may, holds the lock for one write.
absl::Status Lock(int fd, const std::string& path) {
  for (int tries = 0; ::flock(fd, LOCK_EX | LOCK_NB) != 0; ++tries) {
    if (errno != EWOULDBLOCK && errno != EINTR) return absl::OkStatus();  // a file system without locks
    if (tries == kCsvLockTries) return FileError(path, "another program holds its lock");
    absl::SleepFor(kCsvLockPause);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const Buffer bytes, ReadFileBytes(path, kCsvLogBytesMax));
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// Truncates the file to `keep` bytes and writes `text` there.
absl::Status WriteAt(int fd, const std::string& path, size_t keep, const std::string& text) {
  if (::ftruncate(fd, static_cast<off_t>(keep)) != 0) return FileError(path, "cannot truncate");
  if (::lseek(fd, static_cast<off_t>(keep), SEEK_SET) < 0) return FileError(path, "cannot seek");
  CAIRN_RETURN_IF_ERROR(WriteAll(fd, text, path));
  if (::fsync(fd) != 0) return FileError(path, "cannot sync");
  return SyncFolder(std::filesystem::path(path).parent_path().string());  // the file may be new
}

}  // namespace

std::string CsvLog::Line(const std::vector<std::string>& cells) const {
  return absl::StrCat(absl::StrJoin(cells, options_.separator()), kEnd);
}

std::string CsvLog::Row(const v1::EpochResult& epoch) const {
  const std::map<std::string, double> figures = FiguresOf(spec_, epoch);
  std::vector<std::string> cells{absl::StrCat(epoch.epoch())};
  for (const std::string& column : columns_) {
    const auto figure = figures.find(column);
    cells.push_back(figure == figures.end() ? kNone : ShortestText(figure->second));
  }
  return Line(cells);
}

std::string CsvLog::Rows(const Epochs& epochs, size_t from) const {
  std::string rows;
  for (size_t i = from; i < epochs.size(); ++i) rows += Row(*epochs[i]);
  return rows;
}

void CsvLog::ChooseColumns(const v1::EpochResult& first) {
  columns_.clear();
  for (const auto& [name, value] : FiguresOf(spec_, first)) columns_.push_back(name);
  if (spec_.validation_freq() > 1 && first.validation().examples() == 0) {  // later epochs have them
    columns_.push_back("val_loss");
    for (int m = 0; m < FigureCount(spec_); ++m) columns_.push_back(absl::StrCat("val_", MetricName(spec_, m)));
    std::sort(columns_.begin(), columns_.end());
  }
}

// In whole lines that this job may have written. Replaced: lines that went otherwise before it fell back are not kept.
CsvLog::Missing CsvLog::FindRows(const std::string& text, bool replaced, const Epochs& epochs) const {
  const std::string first = absl::StrCat("\n", Row(*epochs.front()));
  const size_t found = text.rfind(first);
  if (found == std::string::npos) return {replaced ? text.find('\n') + 1 : text.size(), Rows(epochs, 0)};
  size_t end = found + first.size(), count = 1;
  for (; count < epochs.size(); ++count) {
    const std::string row = Row(*epochs[count]);
    if (text.compare(end, row.size(), row) != 0) break;
    end += row.size();
  }
  const bool same = count == epochs.size() || end == text.size();
  return {same || !replaced ? text.size() : end, Rows(epochs, count)};
}

absl::StatusOr<CsvLog::Missing> CsvLog::Find(int fd, bool anew, const Epochs& epochs) {
  const std::string& path = options_.filename();
  struct stat info {};
  if (::fstat(fd, &info) != 0) return FileError(path, "cannot look at it");
  if (info.st_size == size_) {
    size_t from = 0;
    while (from < epochs.size() && epochs[from]->epoch() < next_) ++from;
    return Missing{static_cast<size_t>(size_), Rows(epochs, from)};
  }
  const bool ours = absl::TimeFromTimespec(info.st_mtim) >= submitted_;
  const bool replaced = anew && !options_.append();  // what another job wrote
  std::string text;
  if (info.st_size > 0 && (ours || !replaced)) {
    CAIRN_ASSIGN_OR_RETURN(text, ReadText(path));
    text.resize(text.rfind('\n') + 1);  // 0 without a whole line
  }
  ChooseColumns(*epochs.front());
  std::vector<std::string> names{"epoch"};
  names.insert(names.end(), columns_.begin(), columns_.end());
  const std::string header = Line(names);
  if (replaced && !absl::StartsWith(text, header)) text.clear();
  if (text.empty()) return Missing{0, absl::StrCat(header, Rows(epochs, 0))};
  if (!anew) {  // the columns are those of the existing file
    const std::string line = text.substr(0, text.find_first_of("\r\n"));
    const std::vector<std::string> there = absl::StrSplit(line, options_.separator());
    if (there.size() > 1 && there[0] == "epoch") columns_.assign(there.begin() + 1, there.end());
  }
  if (anew && !ours) return Missing{text.size(), Rows(epochs, 0)};
  return FindRows(text, replaced, epochs);
}

absl::Status CsvLog::Write(absl::Span<const v1::EpochResult> epochs) {
  Epochs with_figures;
  for (const v1::EpochResult& epoch : epochs) {
    if (HasFigures(epoch)) with_figures.push_back(&epoch);
  }
  if (with_figures.empty()) return absl::OkStatus();
  const std::string& path = options_.filename();
  CAIRN_RETURN_IF_ERROR(MakeFolders(std::filesystem::path(path).parent_path().string()));
  CAIRN_ASSIGN_OR_RETURN(const FileDescriptor file, OpenPlainFile(path, O_RDWR | O_CREAT));
  CAIRN_RETURN_IF_ERROR(Lock(file.get(), path));  // until it is closed
  CAIRN_ASSIGN_OR_RETURN(const Missing missing, Find(file.get(), epochs.front().epoch() == 0, with_figures));
  size_ = -1;  // if the write fails, the file is read again
  CAIRN_RETURN_IF_ERROR(WriteAt(file.get(), path, missing.keep, missing.text));
  size_ = static_cast<int64_t>(missing.keep + missing.text.size());
  next_ = std::max(next_, with_figures.back()->epoch() + 1);
  return absl::OkStatus();
}

}  // namespace cairn
