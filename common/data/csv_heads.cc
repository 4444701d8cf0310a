#include "common/data/csv_heads.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/data/byte_reader.h"
#include "common/data/csv_files.h"
#include "common/data/limits.h"

namespace cairn {
namespace {

// The beginning of the file, as far as it can be read, without a line that is cut.
std::string HeadOf(const std::string& path) {
  std::string head;
  absl::StatusOr<ByteReader> reader = ByteReader::Open(path);
  if (!reader.ok()) return head;
  char c;
  while (head.size() < kCsvHeadBytesMax && reader->ReadExactly(&c, 1).ok()) head.push_back(c);
  if (head.size() == kCsvHeadBytesMax) head.resize(head.rfind('\n') + 1);
  return head;
}

// The columns of the model's inputs, in their order in an example.
std::vector<size_t> InputColumns(const CsvColumns& columns) {
  std::vector<size_t> inputs(columns.features);
  for (size_t i = 0; i < columns.count(); ++i) {
    if (columns.uses[i] == CsvUse::kFeature || columns.uses[i] == CsvUse::kText) inputs[columns.places[i]] = i;
  }
  return inputs;
}

std::string ShowNames(const CsvColumns& columns, const std::vector<size_t>& of) {
  const size_t shown = std::min<size_t>(of.size(), 20);
  const auto name = [&](std::string* out, size_t column) { out->append(ShortText(columns.names[column])); };
  return absl::StrJoin(of.begin(), of.begin() + static_cast<int64_t>(shown), ", ", name) +
         (shown < of.size() ? ", ..." : "");
}

}  // namespace

std::optional<CsvHead> ReadCsvHead(const v1::Data& data, const Shape& input_shape) {
  if (!IsCsv(data)) return std::nullopt;
  const auto paths = FindCsvFiles(data.path());
  if (!paths.ok()) return std::nullopt;
  const auto found = std::find_if(paths->begin(), paths->end(), [](const auto& path) { return !path.empty(); });
  if (found == paths->end()) return std::nullopt;
  CsvHead head;
  head.path = *found;
  std::vector<std::string> first, second;
  if (!ReadTwoCsvLines(HeadOf(head.path), &first, &second).ok() || first.empty()) return std::nullopt;
  const int64_t inputs = input_shape.empty() ? -1 : NumElements(input_shape);
  const absl::StatusOr<bool> header = HasCsvHeader(data, head.path, first, second, inputs);
  if (!header.ok()) return std::nullopt;
  const std::vector<std::string> names = *header ? first : std::vector<std::string>();
  absl::StatusOr<CsvColumns> columns = ResolveColumnsFor(data, head.path, names, first.size(), inputs, &head.no_label);
  if (!columns.ok()) return std::nullopt;
  head.columns = *std::move(columns);
  return head;
}

absl::Status CheckSameInputs(const v1::Data& trained, const v1::Data& data, const Shape& input_shape) {
  const std::optional<CsvHead> with = ReadCsvHead(trained, input_shape), now = ReadCsvHead(data, input_shape);
  if (!with || !now || with->columns.names.empty() || now->columns.names.empty()) return absl::OkStatus();
  const std::vector<size_t> wanted = InputColumns(with->columns), found = InputColumns(now->columns);
  if (wanted.size() != found.size()) return absl::OkStatus();  // one of them does not fit the model, which is said then
  for (size_t i = 0; i < wanted.size(); ++i) {
    const std::string& name = with->columns.names[wanted[i]];
    if (now->columns.names[found[i]] == name) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "data.path: %s: %s would be taken for \"%s\" of %s, which the job was trained with: columns are taken by their "
        "position. Its inputs are %s, the job's are %s: put them in that order; where only their names are others, "
        "leave the header line out; a job that names its columns in data.inputs takes them in any order",
        now->path, ColumnName(now->columns, found[i]), ShortText(name), with->path, ShowNames(now->columns, found),
        ShowNames(with->columns, wanted)));
  }
  return absl::OkStatus();
}

std::string TellColumns(const v1::Data& data, const Shape& input_shape) {
  const std::optional<CsvHead> head = ReadCsvHead(data, input_shape);
  if (!head) return "";
  const CsvColumns& columns = head->columns;
  if (!columns.has_label) return absl::StrFormat("%s has %s", head->path, ColumnsText(columns.count()));
  return absl::StrFormat(
      "%s has %s, of which %s%s counts as the label; the model takes %d besides the label, or %d alone to "
      "predict",
      head->path, ColumnsText(columns.count()), ColumnName(columns, columns.label),
      columns.label + 1 == columns.count() ? ", the last one," : "", NumElements(input_shape),
      NumElements(input_shape));
}

}  // namespace cairn
