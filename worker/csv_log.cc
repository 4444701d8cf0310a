#include "worker/csv_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/decimal.h"
#include "common/model/job_check.h"
#include "common/model/path_template.h"

namespace cairn {
namespace {

constexpr char kEnd[] = "\r\n";  // of a line, as Python's csv module writes it
constexpr char kNone[] = "NA";   // a figure that an epoch does not have

absl::Status FileError(const std::string& path, absl::string_view what) {
  const int error = errno;
  return absl::Status(absl::ErrnoToStatus(error, "").code(),
                      absl::StrCat(path, ": ", what, ": ", std::strerror(error)));
}

bool HasFigures(const v1::EpochResult& epoch) { return epoch.train().examples() > 0; }

// Its callbacks put the learning rate among the figures.
bool LogsRate(const v1::JobSpec& spec) {
  return std::any_of(spec.callbacks().begin(), spec.callbacks().end(), [](const v1::Callback& c) {
    return c.has_learning_rate_scheduler() || c.has_reduce_lr_on_plateau();
  });
}

void AddFigures(const v1::JobSpec& spec, const v1::MetricSums& sums, const std::string& prefix,
                std::map<std::string, double>* figures) {
  if (sums.examples() == 0) return;
  (*figures)[prefix + "loss"] = sums.loss() / static_cast<double>(sums.examples());
  for (int m = 0; m < std::min(spec.metrics_size(), sums.metrics_size()); ++m) {
    (*figures)[prefix + MetricName(spec, m)] = MetricValue(spec, m, sums);
  }
}

std::map<std::string, double> FiguresOf(const v1::JobSpec& spec, const v1::EpochResult& epoch) {
  std::map<std::string, double> figures;
  AddFigures(spec, epoch.train(), "", &figures);
  AddFigures(spec, epoch.validation(), "val_", &figures);
  if (LogsRate(spec)) figures["learning_rate"] = Decimal(epoch.learning_rate());
  return figures;
}

absl::Status WriteAll(const std::string& path, const std::string& text, int flags) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644);
  if (fd < 0) return FileError(path, "cannot open");
  absl::Status status;
  for (size_t at = 0; at < text.size() && status.ok();) {
    const ssize_t n = ::write(fd, text.data() + at, text.size() - at);
    if (n < 0 && errno != EINTR) status = FileError(path, "cannot write");
    if (n > 0) at += static_cast<size_t>(n);
  }
  if (status.ok() && ::fsync(fd) != 0 && errno != EINVAL) status = FileError(path, "cannot flush");
  ::close(fd);
  return status;
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

// What there is of the file, and what of these epochs.
absl::Status CsvLog::Begin(absl::Span<const v1::EpochResult> epochs) {
  const std::string& path = options_.filename();
  std::error_code error;
  if (const auto folder = std::filesystem::path(path).parent_path(); !folder.empty()) {
    std::filesystem::create_directories(folder, error);
  }
  std::string text;
  const bool anew = epochs.front().epoch() == 0;
  if (!anew || options_.append()) {
    std::ifstream in(path, std::ios::binary);
    text.assign((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  }
  const size_t whole = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
  if (whole < text.size()) {
    text.resize(whole);
    if (::truncate(path.c_str(), static_cast<off_t>(whole)) != 0) return FileError(path, "cannot cut");
  }
  const auto first = std::find_if(epochs.begin(), epochs.end(), HasFigures);
  columns_.clear();
  for (const auto& [name, value] : FiguresOf(spec_, *first)) columns_.push_back(name);
  if (spec_.validation_freq() > 1 && first->validation().examples() == 0) {  // later epochs have them
    columns_.push_back("val_loss");
    for (int m = 0; m < spec_.metrics_size(); ++m) columns_.push_back("val_" + MetricName(spec_, m));
    std::sort(columns_.begin(), columns_.end());
  }
  std::vector<std::string> header{"epoch"};
  header.insert(header.end(), columns_.begin(), columns_.end());
  if (text.empty()) return WriteAll(path, Line(header), O_TRUNC);
  if (!anew) {  // the columns are those that the file began with
    const std::string line = text.substr(0, text.find_first_of("\r\n"));
    const std::vector<std::string> names = absl::StrSplit(line, options_.separator());
    if (names.size() > 1 && names[0] == "epoch") columns_.assign(names.begin() + 1, names.end());
  }
  for (const v1::EpochResult& epoch : epochs) {
    if (HasFigures(epoch) && absl::EndsWith(text, "\n" + Row(epoch))) next_ = epoch.epoch() + 1;
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
  CAIRN_RETURN_IF_ERROR(WriteAll(options_.filename(), rows, O_APPEND));
  next_ = next;
  return absl::OkStatus();
}

}  // namespace cairn
