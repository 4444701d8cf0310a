#include "worker/reports/csv_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
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

struct Place {
  int32_t epoch = 0;
  size_t begin = 0;  // of its line
};

// The rows that count, with growing epochs: a row takes the place of those before it whose epochs are not lower. Lines
// that do not begin with a number end what came before them.
std::vector<Place> RowsThatCount(const std::string& text) {
  std::vector<Place> run;
  for (size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1) {
    const size_t digits = text.find_first_not_of("0123456789", begin) - begin;
    Place place{0, begin};
    const bool is_row = absl::SimpleAtoi(absl::string_view(text).substr(begin, digits), &place.epoch);
    if (!is_row) run.clear();
    while (!run.empty() && place.epoch <= run.back().epoch) run.pop_back();
    if (is_row) run.push_back(place);
  }
  return run;
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

// Compares the rows with those that count in the file. replaces: other rows of these epochs, and all after them, are
// replaced; else the rows come after what is there.
CsvLog::Missing CsvLog::FindRows(const std::string& text, bool replaces, const Epochs& epochs) const {
  const std::vector<Place> run = RowsThatCount(text);
  auto place = run.begin();
  for (size_t i = 0; i < epochs.size(); ++i) {
    while (place != run.end() && place->epoch < epochs[i]->epoch()) ++place;
    if (place == run.end()) return {text.size(), Rows(epochs, i)};
    const std::string row = Row(*epochs[i]);
    if (place->epoch == epochs[i]->epoch() && text.compare(place->begin, row.size(), row) == 0) continue;
    return {replaces ? place->begin : text.size(), Rows(epochs, i)};
  }
  return {text.size(), "", std::next(place) == run.end()};
}

absl::StatusOr<CsvLog::Missing> CsvLog::Find(int fd, bool anew, const Epochs& epochs) {
  const std::string& path = options_.filename();
  struct stat info {};
  if (::fstat(fd, &info) != 0) return FileError(path, "cannot look at it");
  if (info.st_size == size_ && epochs.front()->epoch() >= next_)
    return Missing{static_cast<size_t>(size_), Rows(epochs, 0)};
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
  return FindRows(text, ours && !options_.append(), epochs);
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
  if (!missing.ends_here) return absl::OkStatus();
  size_ = static_cast<int64_t>(missing.keep + missing.text.size());
  next_ = with_figures.back()->epoch() + 1;
  return absl::OkStatus();
}

}  // namespace cairn
