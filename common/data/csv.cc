// CSV with features that are numbers or texts and one label column, or columns of targets; one may hold weights.
//
// Labels: if all are integers >= 0 below kCsvClassesMax, they are class indices. Other numbers are regression targets.
// If some are text, all are class names, numbered in their sorted order in the training split.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/data/byte_reader.h"
#include "common/data/csv_columns.h"
#include "common/data/csv_files.h"
#include "common/data/csv_parser.h"
#include "common/data/float_table.h"
#include "common/data/limits.h"
#include "common/data/table.h"

namespace cairn {
namespace {

struct CsvFile {
  std::string path;
  CsvColumns columns;
  std::vector<float> features, targets, weights;
  std::vector<std::string> labels;
  std::vector<int64_t> lines;  // the line of each row
  std::string no_label;        // as LoadedData::no_labels
};

absl::StatusOr<float> ReadNumber(const std::string& text, size_t column, const std::string& where,
                                 const CsvFile& file) {
  double value;
  if (ParseNumber(text, &value)) return static_cast<float>(value);
  const std::string place = absl::StrFormat("%s, %s", where, ColumnName(file.columns, column));
  if (IsCsvMissing(text)) {
    const bool header = file.columns.names.empty() && file.lines.empty();  // it may be a header, such as ",0,1,2"
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: a value is missing (\"%s\"); drop the line or fill the value in%s", place, text,
                        header ? ", or set data.header: true if it names the columns" : ""));
  }
  if (IsCsvNumberOrMissing(text)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: \"%s\" is not a finite float32; drop the line or correct the value", place, ShortText(text)));
  }
  if (file.columns.uses[column] != CsvUse::kFeature) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: \"%s\" is not a number, as targets and weights are; correct the line", place, ShortText(text)));
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: \"%s\" is not a number; features are numbers: let the model take texts (an input with text: true, and a "
      "string_lookup), encode the column's categories as numbers, drop the column, or name the label's column in "
      "data.label_column",
      place, ShortText(text)));
}

absl::Status AddRow(const std::vector<std::string>& fields, int64_t line, TextStore* texts, CsvFile* file) {
  const std::string where = absl::StrFormat("%s: line %d", file->path, line);
  const CsvColumns& columns = file->columns;
  if (fields.size() != columns.count()) {
    return absl::DataLossError(
        absl::StrFormat("%s has %s, the lines before it have %d", where, ColumnsText(fields.size()), columns.count()));
  }
  const size_t target = file->targets.size();
  file->targets.resize(target + columns.targets);
  const size_t feature = file->features.size();
  file->features.resize(feature + columns.features);
  if (!columns.has_label) file->labels.emplace_back("0");
  for (size_t i = 0; i < fields.size(); ++i) {
    const std::string& text = fields[i];
    if (columns.uses[i] == CsvUse::kLabel) {
      if (text.empty()) return absl::DataLossError(absl::StrFormat("%s: no label", where));
      file->labels.push_back(text);
      continue;
    }
    if (columns.uses[i] == CsvUse::kUnused) continue;
    if (columns.uses[i] == CsvUse::kText) {
      const absl::StatusOr<float> number = texts->Add(text);
      if (!number.ok()) {
        return Annotate(number.status(), absl::StrFormat("%s, %s", where, ColumnName(columns, i)));
      }
      file->features[feature + columns.places[i]] = *number;
      continue;
    }
    CAIRN_ASSIGN_OR_RETURN(const float value, ReadNumber(text, i, where, *file));
    switch (columns.uses[i]) {
      case CsvUse::kTarget: file->targets[target + columns.places[i]] = value; break;
      case CsvUse::kWeight:
        if (value < 0) {
          return absl::InvalidArgumentError(absl::StrFormat("%s, %s: %s is negative, and a weight is not; correct it",
                                                            where, ColumnName(columns, i), ShortText(text)));
        }
        file->weights.push_back(value);
        break;
      default: file->features[feature + columns.places[i]] = value; break;
    }
  }
  file->lines.push_back(line);
  return absl::OkStatus();
}

// inputs: as of ResolveColumnsFor.
absl::StatusOr<CsvFile> ReadCsv(const std::string& path, const v1::Data& data, int64_t inputs, TextStore* texts) {
  CsvFile file;
  file.path = path;
  CAIRN_ASSIGN_OR_RETURN(ByteReader reader, ByteReader::Open(path));
  CAIRN_ASSIGN_OR_RETURN(const std::string text, reader.ReadToEnd(kCsvBytesMax));
  CsvParser parser(text);
  std::vector<std::string> fields, first;
  const auto next = [&](std::vector<std::string>* out) -> absl::StatusOr<bool> {
    absl::StatusOr<bool> more = parser.Next(out);
    if (!more.ok()) return Annotate(more.status(), absl::StrFormat("%s: line %d", path, parser.line()));
    return more;
  };
  CAIRN_ASSIGN_OR_RETURN(bool more, next(&first));
  if (!more) return absl::DataLossError(path + ": empty");
  const int64_t first_line = parser.line();
  CAIRN_ASSIGN_OR_RETURN(more, next(&fields));
  if (!more) fields.clear();
  const size_t fewest = data.targets().empty() && inputs != 1 ? 2 : 1;
  if (first.size() < fewest || first.size() > kCsvColumnsMax) {
    const std::string needed = inputs > 0 ? absl::StrFormat(
                                                "the model takes %d of each line, and a label besides them "
                                                "except to predict",
                                                inputs)
                                          : "at least one feature and a label are needed";
    return absl::DataLossError(absl::StrFormat("%s: line %d has %s; %s, with commas between them", path, first_line,
                                               ColumnsText(first.size()), needed));
  }
  CAIRN_ASSIGN_OR_RETURN(const bool header, HasCsvHeader(data, path, first, fields, inputs));
  CAIRN_ASSIGN_OR_RETURN(file.columns, ResolveColumnsFor(data, path, header ? first : std::vector<std::string>(),
                                                         first.size(), inputs, &file.no_label));
  if (!header) CAIRN_RETURN_IF_ERROR(AddRow(first, first_line, texts, &file));
  while (more) {
    CAIRN_RETURN_IF_ERROR(AddRow(fields, parser.line(), texts, &file));
    CAIRN_ASSIGN_OR_RETURN(more, next(&fields));
  }
  if (file.labels.empty()) return absl::DataLossError(path + ": a header line and no data");
  return file;
}

using Files = std::array<std::optional<CsvFile>, 3>;

struct LabelKinds {
  bool numbers = true, integers = true, any_number = false;
  double min = 0, max = 0;
  // Labels for messages: the largest, the first number that is not a class index, and the first text.
  std::string largest, first_other, first_text;
};

bool IsClassNumber(double value) { return value >= 0 && value < kCsvClassesMax && value == std::floor(value); }

std::string DescribeLabel(const CsvFile& file, size_t row) {
  return absl::StrFormat("%s: line %d has label %s", file.path, file.lines[row], ShortText(file.labels[row]));
}

LabelKinds InspectLabels(const Files& files) {
  LabelKinds kinds;
  for (const auto& file : files) {
    if (!file) continue;
    for (size_t row = 0; row < file->labels.size(); ++row) {
      double value;
      if (!ParseNumber(file->labels[row], &value)) {
        kinds.numbers = false;
        if (kinds.first_text.empty()) kinds.first_text = DescribeLabel(*file, row);
        continue;
      }
      if (kinds.first_other.empty() && !IsClassNumber(value)) kinds.first_other = DescribeLabel(*file, row);
      if (kinds.largest.empty() || value > kinds.max) kinds.largest = DescribeLabel(*file, row);
      kinds.any_number = true;
      kinds.integers = kinds.integers && value == std::floor(value);
      kinds.min = std::min(kinds.min, value);
      kinds.max = std::max(kinds.max, value);
    }
  }
  return kinds;
}

// The class names of the training split, sorted.
absl::StatusOr<std::vector<std::string>> TextClasses(const CsvFile& train) {
  const std::set<std::string> names(train.labels.begin(), train.labels.end());
  if (names.size() > kCsvClassesMax) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: %s, the label, holds more than %d different texts; is another column the label? (data.label_column)",
        train.path, ColumnName(train.columns, train.columns.label), kCsvClassesMax));
  }
  return std::vector<std::string>(names.begin(), names.end());
}

absl::StatusOr<std::vector<float>> ClassNumbers(const CsvFile& file, const std::vector<std::string>& classes) {
  std::vector<float> numbers;
  numbers.reserve(file.labels.size());
  for (size_t i = 0; i < file.labels.size(); ++i) {
    const auto it = std::lower_bound(classes.begin(), classes.end(), file.labels[i]);
    if (it == classes.end() || *it != file.labels[i]) {
      return absl::DataLossError(absl::StrFormat("%s: line %d: class \"%s\" is not among the training data's",
                                                 file.path, file.lines[i], ShortText(file.labels[i])));
    }
    numbers.push_back(static_cast<float>(it - classes.begin()));
  }
  return numbers;
}

// If labels are text and numbers, they are class names, such as "1", "2", "more". The numbers must then be integers,
// and no text may denote a missing value.
absl::Status CheckMixedLabels(const Files& files, bool integers) {
  for (const auto& file : files) {
    if (!file) continue;
    for (size_t i = 0; i < file->labels.size(); ++i) {
      const std::string& label = file->labels[i];
      if (IsCsvNumber(label) || (integers && !IsCsvNumberOrMissing(label))) continue;
      return absl::DataLossError(
          absl::StrFormat("%s: line %d: label \"%s\" is not a number, as other labels are; correct the line",
                          file->path, file->lines[i], ShortText(label)));
    }
  }
  return absl::OkStatus();
}

// The training split, or the first one that there is.
int FirstOf(const std::array<std::string, 3>& paths) {
  return static_cast<int>(std::find_if(paths.begin(), paths.end(), [](const auto& path) { return !path.empty(); }) -
                          paths.begin());
}

std::string NoTraining(const std::string& path) {
  return absl::StrFormat(
      "data.path: there is %s, but no train.csv[.gz] beside it, and by its name it is not to be trained with: add "
      "train.csv, or set data.path to the file itself to train with it",
      path);
}

// Where nothing says which column is the label.
std::string TakenForLabel(const v1::Data& data, const CsvColumns& columns) {
  if (!data.label_column().empty()) return "";
  return absl::StrFormat(": %s, the last one, is taken for the label", ColumnName(columns, columns.label));
}

}  // namespace

absl::StatusOr<LoadedData> LoadCsv(const v1::Data& data, const Shape& input_shape) {
  CAIRN_ASSIGN_OR_RETURN(const auto paths, FindCsvFiles(data.path()));
  const int64_t inputs = input_shape.empty() ? -1 : NumElements(input_shape);
  const int base = FirstOf(paths);
  Files files;
  const auto texts = std::make_shared<TextStore>();
  for (int s = 0; s < 3; ++s) {
    if (paths[s].empty()) continue;
    CAIRN_ASSIGN_OR_RETURN(files[s], ReadCsv(paths[s], data, inputs, texts.get()));
    if (s != base)
      CAIRN_RETURN_IF_ERROR(CheckSameColumns(paths[base], files[base]->columns, paths[s], files[s]->columns));
  }
  const CsvFile& train = *files[base];
  const LabelKinds kinds = InspectLabels(files);
  LoadedData loaded;
  if (base != kTrainSplit) loaded.no_training = NoTraining(paths[base]);
  loaded.no_labels = train.no_label;
  loaded.shape = {static_cast<int64_t>(train.columns.features)};
  loaded.element = Element::kFloat;
  for (size_t i = 0; i < train.columns.count(); ++i) {
    if (train.columns.uses[i] == CsvUse::kText)
      loaded.text_places.push_back(static_cast<int64_t>(train.columns.places[i]));
  }
  std::sort(loaded.text_places.begin(), loaded.text_places.end());
  if (!loaded.text_places.empty()) loaded.texts = texts;
  loaded.target_size = static_cast<int64_t>(train.columns.targets);
  if (!train.columns.has_label) {
    // There are no classes.
  } else if (!kinds.numbers) {
    if (kinds.any_number) {
      CAIRN_RETURN_IF_ERROR(CheckMixedLabels(files, kinds.integers));
      loaded.deciding_label = kinds.first_text;
    }
    CAIRN_ASSIGN_OR_RETURN(loaded.class_names, TextClasses(train));
    loaded.classes = static_cast<int32_t>(loaded.class_names.size());
  } else if (kinds.integers && kinds.min >= 0 && kinds.max < kCsvClassesMax) {
    loaded.classes = static_cast<int32_t>(kinds.max) + 1;
    loaded.deciding_label = kinds.largest;
  } else {
    loaded.deciding_label = absl::StrCat(kinds.first_other, TakenForLabel(data, train.columns));
  }
  for (int s = 0; s < 3; ++s) {
    if (!files[s]) continue;
    std::vector<float> labels;
    if (!loaded.class_names.empty()) {
      CAIRN_ASSIGN_OR_RETURN(labels, ClassNumbers(*files[s], loaded.class_names));
    } else {
      for (const std::string& text : files[s]->labels) {
        double value = 0;
        ParseNumber(text, &value);
        labels.push_back(static_cast<float>(value));
      }
    }
    if (loaded.target_size > 0)
      loaded.targets[s] = std::make_shared<FloatTargets>(std::move(files[s]->targets), loaded.target_size);
    if (train.columns.has_weight)
      loaded.weights[s] = std::make_shared<const std::vector<float>>(std::move(files[s]->weights));
    loaded.splits[s] = std::make_shared<NamedFloatTable<int64_t>>(std::move(files[s]->features), std::move(labels),
                                                                  std::move(files[s]->lines));
  }
  return loaded;
}

}  // namespace cairn
