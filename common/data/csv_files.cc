#include "common/data/csv_files.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/files.h"
#include "common/data/csv_columns.h"
#include "common/data/csv_parser.h"
#include "common/data/table.h"

namespace cairn {
namespace {

// The first line is a header if it has text in a column in which the next line has a number. A file of one line has a
// header if all of it is text.
bool LooksLikeHeader(const std::vector<std::string>& first, const std::vector<std::string>& second) {
  if (second.empty()) return std::none_of(first.begin(), first.end(), IsCsvNumber);
  for (size_t i = 0; i < std::min(first.size(), second.size()); ++i) {
    if (!IsCsvNumberOrMissing(first[i]) && IsCsvNumber(second[i])) return true;
  }
  return false;
}

bool NamesInputs(const v1::Data& data) {
  return std::any_of(data.inputs().begin(), data.inputs().end(),
                     [](const v1::InputSource& input) { return input.columns_size() > 0; });
}

// Names of columns in the job's fields, which only a header line can give: of inputs; without one, of the label and the
// weight, which data to predict may lack.
std::vector<std::string> NamedColumns(const v1::Data& data) {
  std::vector<std::string> names;
  for (const v1::InputSource& input : data.inputs()) {
    names.insert(names.end(), input.columns().begin(), input.columns().end());
  }
  if (names.empty()) names = {data.label_column(), data.weight_column()};
  std::erase_if(names, [](const std::string& name) { return name.empty() || IsCsvNumber(name); });
  return names;
}

std::string FirstExisting(const std::string& dir, const std::string& name) {
  for (const char* suffix : {".csv", ".csv.gz"}) {
    if (IsFile(absl::StrCat(dir, "/", name, suffix))) return absl::StrCat(dir, "/", name, suffix);
  }
  return "";
}

bool HasCsvName(const std::string& path) { return absl::EndsWith(path, ".csv") || absl::EndsWith(path, ".csv.gz"); }

std::vector<std::string> CsvFilesIn(const std::string& dir) {
  std::vector<std::string> found;
  for (const FolderEntry& entry : EntriesOf(dir)) {
    if (HasCsvName(entry.name)) found.push_back(absl::StrCat(dir, "/", entry.name));
  }
  return found;
}

// Whether all files there are have the name of a split.
bool AllNamed(const std::array<std::string, 3>& files, const std::vector<std::string>& found) {
  const auto named = std::count_if(files.begin(), files.end(), [](const std::string& file) { return !file.empty(); });
  return named > 0 && static_cast<size_t>(named) == found.size();
}

}  // namespace

bool IsCsvMissing(const std::string& text) {
  return text.empty() || text == "?" || text == "NA" || absl::EqualsIgnoreCase(text, "nan");
}

bool IsCsvNumber(const std::string& text) {
  double ignored;
  return ParseNumber(text, &ignored);
}

bool IsCsvNumberOrMissing(const std::string& text) {
  double ignored;
  return IsCsvMissing(text) || absl::SimpleAtod(text, &ignored);
}

absl::Status ReadTwoCsvLines(const std::string& text, std::vector<std::string>* first,
                             std::vector<std::string>* second) {
  CsvParser parser(text);
  CAIRN_RETURN_IF_ERROR(parser.Next(first).status());
  CAIRN_ASSIGN_OR_RETURN(const bool more, parser.Next(second));
  if (!more) second->clear();
  return absl::OkStatus();
}

absl::StatusOr<bool> HasCsvHeader(const v1::Data& data, const std::string& path, const std::vector<std::string>& first,
                                  const std::vector<std::string>& second, int64_t inputs) {
  if (data.has_header()) return data.header();
  // Beside texts a line of names looks like any other, unless another column has numbers.
  const bool texts = std::any_of(data.inputs().begin(), data.inputs().end(),
                                 [](const v1::InputSource& input) { return input.text(); });
  const bool numbers =
      std::any_of(first.begin(), first.end(), IsCsvNumber) || std::any_of(second.begin(), second.end(), IsCsvNumber);
  if (!texts || numbers) return LooksLikeHeader(first, second);
  const std::vector<std::string> names = NamedColumns(data);
  const auto missing = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
    return std::find(first.begin(), first.end(), name) == first.end();
  });
  if (missing == names.end() && !names.empty()) return true;
  const bool fits = missing != names.end() && static_cast<int64_t>(first.size()) == inputs && !NamesInputs(data);
  return absl::InvalidArgumentError(absl::StrFormat(
      "data.header: missing, and all columns of %s are texts, so that its first line may hold their names or an "
      "example; set it to true or false%s",
      path,
      fits ? absl::StrFormat(" in the job. The file seems to lack the column \"%s\", which is no input: with it, and "
                             "any text in it, the file can be predicted too",
                             ShortText(*missing))
           : ""));
}

bool IsCsv(const v1::Data& data) {
  const std::string& path = data.path();
  if (data.format() != v1::Data::AUTO) return data.format() == v1::Data::CSV;
  if (!LooksLikeCsv(path)) return false;
  return !IsFolder(path) || !(LooksLikeTfRecord(path) || LooksLikeIdx(path) || LooksLikeCifar10(path));
}

absl::StatusOr<std::array<std::string, 3>> FindCsvFiles(const std::string& path) {
  if (!IsFolder(path)) return std::array<std::string, 3>{path, "", ""};
  std::array<std::string, 3> files = {FirstExisting(path, "train"), FirstExisting(path, "validation"),
                                      FirstExisting(path, "test")};
  if (!files[kTrainSplit].empty()) return files;
  const std::vector<std::string> found = CsvFilesIn(path);
  if (AllNamed(files, found)) return files;
  if (found.size() == 1) return std::array<std::string, 3>{found[0], "", ""};
  return absl::NotFoundError(
      absl::StrFormat("%s: holds neither train.csv[.gz] nor exactly one CSV file (found %d); give the file itself",
                      path, found.size()));
}

bool LooksLikeCsv(const std::string& path) {
  if (!IsFolder(path)) return HasCsvName(path);
  return FindCsvFiles(path).ok();
}

}  // namespace cairn
