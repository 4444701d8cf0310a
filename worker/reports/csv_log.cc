#include "worker/reports/csv_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
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

absl::Status WriteText(const std::string& path, const std::string& text, int flags) {
  CAIRN_ASSIGN_OR_RETURN(const FileDescriptor file, OpenPlainFile(path, O_WRONLY | O_CREAT | flags));
  CAIRN_RETURN_IF_ERROR(WriteAll(file.get(), text, path));
  if (::fsync(file.get()) != 0) return FileError(path, "cannot sync");
  return SyncFolder(std::filesystem::path(path).parent_path().string());  // the file may be new
}

// Empty if the file does not exist.
absl::StatusOr<std::string> ReadText(const std::string& path) {
  const absl::StatusOr<Buffer> bytes = ReadFileBytes(path, kCsvLogBytesMax);
  if (absl::IsNotFound(bytes.status())) return std::string();
  CAIRN_RETURN_IF_ERROR(bytes.status());
  return std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size());
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

// Finds what the file already has of these epochs.
absl::Status CsvLog::Begin(absl::Span<const v1::EpochResult> epochs) {
  const std::string& path = options_.filename();
  CAIRN_RETURN_IF_ERROR(MakeFolders(std::filesystem::path(path).parent_path().string()));
  std::string text;
  const bool anew = epochs.front().epoch() == 0;
  if (!anew || options_.append()) {
    CAIRN_ASSIGN_OR_RETURN(text, ReadText(path));
  }
  const size_t whole = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
  if (whole < text.size()) {
    text.resize(whole);
    CAIRN_ASSIGN_OR_RETURN(const FileDescriptor file, OpenPlainFile(path, O_WRONLY));
    if (::ftruncate(file.get(), static_cast<off_t>(whole)) != 0) return FileError(path, "cannot cut");
  }
  const auto first = std::find_if(epochs.begin(), epochs.end(), HasFigures);
  columns_.clear();
  for (const auto& [name, value] : FiguresOf(spec_, *first)) columns_.push_back(name);
  if (spec_.validation_freq() > 1 && first->validation().examples() == 0) {  // later epochs have them
    columns_.push_back("val_loss");
    for (int m = 0; m < FigureCount(spec_); ++m) columns_.push_back(absl::StrCat("val_", MetricName(spec_, m)));
    std::sort(columns_.begin(), columns_.end());
  }
  std::vector<std::string> header{"epoch"};
  header.insert(header.end(), columns_.begin(), columns_.end());
  if (text.empty()) {
    next_ = 0;  // anything written before is truncated here and written again
    return WriteText(path, Line(header), O_TRUNC);
  }
  if (!anew) {  // the columns are those of the existing file
    const std::string line = text.substr(0, text.find_first_of("\r\n"));
    const std::vector<std::string> names = absl::StrSplit(line, options_.separator());
    if (names.size() > 1 && names[0] == "epoch") columns_.assign(names.begin() + 1, names.end());
  }
  for (const v1::EpochResult& epoch : epochs) {
    if (HasFigures(epoch) && absl::EndsWith(text, absl::StrCat("\n", Row(epoch)))) next_ = epoch.epoch() + 1;
  }
  return absl::OkStatus();
}

absl::Status CsvLog::Write(absl::Span<const v1::EpochResult> epochs) {
  if (std::none_of(epochs.begin(), epochs.end(), HasFigures)) return absl::OkStatus();
  if (!begun_) CAIRN_RETURN_IF_ERROR(Begin(epochs));
  begun_ = true;
  std::string rows;
  int32_t next = next_;
  for (const v1::EpochResult& epoch : epochs) {
    if (!HasFigures(epoch) || epoch.epoch() < next) continue;
    rows += Row(epoch);
    next = epoch.epoch() + 1;
  }
  if (rows.empty()) return absl::OkStatus();
  absl::Status status = WriteText(options_.filename(), rows, O_APPEND);
  begun_ = status.ok();  // if false, the file's contents are checked again
  if (begun_) next_ = next;
  return status;
}

}  // namespace cairn
