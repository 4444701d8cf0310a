#include "common/data/csv_unlabelled.h"

#include <algorithm>
#include <string>
#include <vector>

#include "common/data/byte_reader.h"
#include "common/data/csv_columns.h"
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

}  // namespace

bool IsGuessedUnlabelled(const v1::Data& data, const Shape& input_shape) {
  if (!IsCsv(data)) return false;
  const auto paths = FindCsvFiles(data.path());
  if (!paths.ok()) return false;
  const std::string& path = *std::find_if(paths->begin(), paths->end(), [](const auto& p) { return !p.empty(); });
  std::vector<std::string> first, second;
  if (!ReadTwoCsvLines(HeadOf(path), &first, &second).ok() || first.empty()) return false;
  const int64_t inputs = NumElements(input_shape);
  const absl::StatusOr<bool> header = HasCsvHeader(data, path, first, second, inputs);
  if (!header.ok()) return false;
  const std::vector<std::string> names = *header ? first : std::vector<std::string>();
  std::string no_label;
  const absl::StatusOr<CsvColumns> columns = ResolveColumnsFor(data, path, names, first.size(), inputs, &no_label);
  if (!columns.ok() || no_label.empty()) return false;
  return FindCsvColumn("data.label_column", data.label_column(), path, *columns).ok();
}

}  // namespace cairn
