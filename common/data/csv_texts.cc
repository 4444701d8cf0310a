#include "common/data/csv_texts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/data/byte_reader.h"
#include "common/data/csv_columns.h"
#include "common/data/csv_files.h"
#include "common/data/csv_parser.h"
#include "common/data/limits.h"

namespace cairn {
namespace {

struct FileFeatures {
  bool header = false;
  CsvColumns columns;
  std::vector<CsvFeature> features;
};

void Note(const std::string& value, int64_t line, CsvFeature* feature) {
  if (IsCsvMissing(value)) return;
  const bool text = !IsCsvNumberOrMissing(value);
  if (feature->values++ == 0 || (text && !feature->text)) {
    feature->example = value;
    feature->line = line;
  }
  feature->text = feature->text || text;
  feature->no_numbers += text;
}

// As far as the file's lines can be read.
absl::StatusOr<FileFeatures> FindFeatures(const v1::Data& data, const std::string& path, const std::string& text,
                                          bool header) {
  CsvParser parser(text);
  std::vector<std::string> fields, names;
  CAIRN_ASSIGN_OR_RETURN(bool more, parser.Next(&fields));
  if (header) names = fields;
  FileFeatures file;
  file.header = header;
  CAIRN_ASSIGN_OR_RETURN(file.columns, ResolveColumns(data, path, names, fields.size()));
  for (size_t i = 0; i < file.columns.count(); ++i) {
    if (file.columns.uses[i] == CsvUse::kFeature) file.features.push_back({header ? names[i] : "", i});
  }
  if (header) {
    CAIRN_ASSIGN_OR_RETURN(more, parser.Next(&fields));
  }
  while (more && fields.size() == file.columns.count()) {
    for (CsvFeature& feature : file.features) Note(fields[feature.column], parser.line(), &feature);
    CAIRN_ASSIGN_OR_RETURN(more, parser.Next(&fields));
  }
  return file;
}

// The columns that are named as ones of texts become texts.
absl::Status NameTexts(const std::vector<std::string>& texts, const std::string& path, FileFeatures* file) {
  for (const std::string& text : texts) {
    CAIRN_ASSIGN_OR_RETURN(const size_t column, FindCsvColumn("--text", text, path, file->columns));
    const auto feature = std::find_if(file->features.begin(), file->features.end(),
                                      [&](const CsvFeature& f) { return f.column == column; });
    if (feature == file->features.end()) {
      return absl::InvalidArgumentError(absl::StrFormat("--text: %s of %s is the label; name another column",
                                                        ColumnName(file->columns, column), path));
    }
    feature->text = feature->named = true;
  }
  return absl::OkStatus();
}

absl::Status CheckSlips(const std::string& path, const std::vector<CsvFeature>& features) {
  for (const CsvFeature& f : features) {
    if (!f.text || f.named || f.no_numbers * 100 >= f.values * kCsvTextPercentMin) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: line %d, %s: \"%s\" is not a number, as %d of the column's %d values are; correct it, or give --text %d "
        "if the column holds texts",
        path, f.line, ColumnName(f), ShortText(f.example), f.values - f.no_numbers, f.values, f.column));
  }
  return absl::OkStatus();
}

// Without features: all are numbers, or LoadData refuses the file.
absl::StatusOr<FileFeatures> FindTexts(const v1::Data& data, const std::vector<std::string>& texts) {
  const auto paths = FindCsvFiles(data.path());
  if (!paths.ok()) return FileFeatures();
  const std::string& path = *std::find_if(paths->begin(), paths->end(), [](const auto& p) { return !p.empty(); });
  absl::StatusOr<ByteReader> reader = ByteReader::Open(path);
  if (!reader.ok()) return FileFeatures();
  const absl::StatusOr<std::string> text = reader->ReadToEnd(kCsvBytesMax);
  std::vector<std::string> first, second;
  if (!text.ok() || !ReadTwoCsvLines(*text, &first, &second).ok()) return FileFeatures();
  if (second.empty() && texts.empty()) return FileFeatures();
  v1::Data of_texts = data;
  v1::InputSource* const input = of_texts.add_inputs();
  input->set_text(true);
  for (const std::string& column : texts) input->add_columns(column);
  const absl::StatusOr<bool> header = HasCsvHeader(of_texts, path, first, second, /*inputs=*/-1);
  absl::StatusOr<FileFeatures> file = FindFeatures(data, path, *text, header.ok() ? *header : true);
  if (!file.ok()) return FileFeatures();
  if (header.ok()) CAIRN_RETURN_IF_ERROR(NameTexts(texts, path, &*file));
  const auto is_text = [](const CsvFeature& feature) { return feature.text; };
  if (std::none_of(file->features.begin(), file->features.end(), is_text)) return FileFeatures();
  if (!header.ok()) return header.status();
  CAIRN_RETURN_IF_ERROR(CheckSlips(path, file->features));
  return file;
}

// The field that is for columns of CSV files alone; empty: none is given.
const char* FieldOfColumns(const v1::Data& data, const std::vector<std::string>& texts) {
  if (data.has_header()) return "data.header";
  if (!data.label_column().empty()) return "data.label_column";
  return texts.empty() ? "" : "--text";
}

}  // namespace

absl::StatusOr<FoundData> LoadAsFound(const v1::Data& data, const std::vector<std::string>& texts) {
  FoundData found;
  v1::Data described = data;
  if (IsCsv(data)) {
    CAIRN_ASSIGN_OR_RETURN(FileFeatures file, FindTexts(data, texts));
    found.features = std::move(file.features);
    if (!found.features.empty()) described.set_header(file.header);
  }
  for (const CsvFeature& feature : found.features) {
    v1::InputSource* const input = described.add_inputs();
    input->add_columns(absl::StrCat(feature.column));
    input->set_text(feature.text);
  }
  CAIRN_ASSIGN_OR_RETURN(found.loaded, LoadData(described, {}));
  const std::string field = FieldOfColumns(data, texts);
  if (found.loaded.format != v1::Data::CSV && !field.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(data.path(), ": is ", v1::Data::Format_Name(found.loaded.format),
                                                   ", and ", field, " is for the columns of CSV files; leave it out"));
  }
  return found;
}

std::string ColumnName(const CsvFeature& feature) {
  return feature.name.empty() ? absl::StrCat("column ", feature.column)
                              : absl::StrCat("column ", feature.column, " (\"", ShortText(feature.name), "\")");
}

std::string ShowTexts(const CsvFeature& feature) {
  return absl::StrFormat("%s: texts, as \"%s\" in line %d", ColumnName(feature), ShortText(feature.example),
                         feature.line);
}

}  // namespace cairn
