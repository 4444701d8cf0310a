#include "common/data/csv_columns.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/text.h"
#include "common/model/target_check.h"

namespace cairn {
namespace {

absl::Status Take(const std::string& field, CsvUse use, size_t column, const std::string& path, CsvColumns* columns) {
  if (columns->uses[column] != CsvUse::kFeature) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: %s of %s is named for something else too; name another",
                                                      field, ColumnName(*columns, column), path));
  }
  columns->uses[column] = use;
  return absl::OkStatus();
}

// Features are in their order in the file. With data.inputs they are in the order of these; columns not named there are
// unused.
absl::Status PlaceFeatures(const v1::Data& data, const std::string& path, CsvColumns* columns) {
  std::vector<size_t> order, texts;
  bool named = false;
  for (int n = 0; n < data.inputs_size(); ++n) {
    for (int i = 0; i < data.inputs(n).columns_size(); ++i) {
      const std::string field = absl::StrCat("data.inputs[", n, "].columns[", i, "]");
      CAIRN_ASSIGN_OR_RETURN(const size_t column, FindCsvColumn(field, data.inputs(n).columns(i), path, *columns));
      CAIRN_RETURN_IF_ERROR(Take(field, CsvUse::kUnused, column, path, columns));  // not used in any other way
      order.push_back(column);
      if (data.inputs(n).text()) texts.push_back(column);
      named = true;
    }
  }
  const bool all_texts = !named && data.inputs_size() == 1 && data.inputs(0).text();
  for (size_t i = 0; i < columns->count(); ++i) {
    if (columns->uses[i] != CsvUse::kFeature) continue;
    if (!named) order.push_back(i);
    columns->uses[i] = CsvUse::kUnused;
  }
  for (const size_t column : order) {
    const bool text = all_texts || std::find(texts.begin(), texts.end(), column) != texts.end();
    columns->uses[column] = text ? CsvUse::kText : CsvUse::kFeature;
    columns->places[column] = columns->features++;
  }
  return absl::OkStatus();
}

// The columns that have the names of the label and the weight are no features, whether or not the file has both.
absl::Status LeaveOutByName(const v1::Data& data, const std::string& path, CsvColumns* columns) {
  int64_t number;
  for (const auto& [field, name] :
       {std::pair<const char*, const std::string&>{"data.label_column", data.label_column()},
        {"data.weight_column", data.weight_column()}}) {
    if (name.empty() || absl::SimpleAtoi(name, &number)) continue;
    const auto it = std::find(columns->names.begin(), columns->names.end(), name);
    if (it == columns->names.end()) continue;
    const auto column = static_cast<size_t>(it - columns->names.begin());
    CAIRN_RETURN_IF_ERROR(Take(field, CsvUse::kUnused, column, path, columns));
  }
  return absl::OkStatus();
}

// labelled: the columns with a label, or why there are none. all: those without one.
std::string WhyNoLabel(const v1::Data& data, const std::string& path, const absl::StatusOr<CsvColumns>& labelled,
                       const CsvColumns& all) {
  const bool weight = !data.weight_column().empty() &&
                      std::find(all.names.begin(), all.names.end(), data.weight_column()) != all.names.end();
  const bool all_taken = all.features + static_cast<size_t>(weight) == all.count();
  const bool found = FindCsvColumn("data.label_column", data.label_column(), path, all).ok();
  if (!labelled.ok() && !(found && all_taken)) return std::string(labelled.status().message());
  return absl::StrFormat(
      "data.path: %s has %s%s, as many as the model has inputs, so that none is left for the label: add the "
      "label's column, or give the model one input fewer; `cairn predict` takes the file as it is",
      path, ColumnsText(all.features), weight ? " besides the weight" : "");
}

}  // namespace

std::string ShortText(const std::string& text) { return text.size() <= 40 ? text : text.substr(0, 37) + "..."; }

std::string ColumnsText(size_t count) { return CountText(static_cast<int64_t>(count), "column"); }

std::string ColumnName(const CsvColumns& columns, size_t column) {
  return columns.names.empty() ? absl::StrFormat("column %d", column)
                               : absl::StrFormat("column %d (\"%s\")", column, ShortText(columns.names[column]));
}

absl::StatusOr<size_t> FindCsvColumn(const std::string& field, const std::string& wanted, const std::string& path,
                                     const CsvColumns& file) {
  int64_t number = -1;
  if (wanted.empty() || absl::SimpleAtoi(wanted, &number)) {
    const int64_t columns = static_cast<int64_t>(file.count());
    if (number < -columns || number >= columns) {
      return absl::InvalidArgumentError(absl::StrFormat("%s: %d, but %s has %s, 0 to %d", field, number, path,
                                                        CountText(columns, "column"), columns - 1));
    }
    return static_cast<size_t>(number < 0 ? number + columns : number);
  }
  if (file.names.empty()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: \"%s\" is a name, but %s has no header line; give the column's number, or set data.header",
                        field, wanted, path));
  }
  const auto it = std::find(file.names.begin(), file.names.end(), wanted);
  if (it == file.names.end()) {
    const size_t shown = std::min<size_t>(file.names.size(), 20);
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: %s has no column \"%s\"; its columns are %s%s", field, path, wanted,
        absl::StrJoin(file.names.begin(), file.names.begin() + shown, ", "), shown < file.names.size() ? ", ..." : ""));
  }
  return static_cast<size_t>(it - file.names.begin());
}

absl::StatusOr<CsvColumns> ResolveColumns(const v1::Data& data, const std::string& path, std::vector<std::string> names,
                                          size_t count, bool labelled) {
  CsvColumns columns;
  columns.names = std::move(names);
  columns.uses.assign(count, CsvUse::kFeature);
  columns.places.assign(count, 0);
  columns.has_label = labelled && TakesLabel(data);
  if (columns.has_label) {
    CAIRN_ASSIGN_OR_RETURN(columns.label, FindCsvColumn("data.label_column", data.label_column(), path, columns));
    columns.uses[columns.label] = CsvUse::kLabel;
  }
  for (int t = 0; t < data.targets_size(); ++t) {
    for (int i = 0; i < data.targets(t).columns_size(); ++i) {
      const std::string field = absl::StrCat("data.targets[", t, "].columns[", i, "]");
      CAIRN_ASSIGN_OR_RETURN(const size_t column, FindCsvColumn(field, data.targets(t).columns(i), path, columns));
      CAIRN_RETURN_IF_ERROR(Take(field, CsvUse::kTarget, column, path, &columns));
      columns.places[column] = columns.targets++;
    }
  }
  if (labelled && !data.weight_column().empty()) {
    CAIRN_ASSIGN_OR_RETURN(const size_t column,
                           FindCsvColumn("data.weight_column", data.weight_column(), path, columns));
    CAIRN_RETURN_IF_ERROR(Take("data.weight_column", CsvUse::kWeight, column, path, &columns));
    columns.has_weight = true;
  }
  if (!labelled) CAIRN_RETURN_IF_ERROR(LeaveOutByName(data, path, &columns));
  CAIRN_RETURN_IF_ERROR(PlaceFeatures(data, path, &columns));
  if (columns.features > 0) return columns;
  return absl::InvalidArgumentError(
      absl::StrFormat("data: %s has %s, and none is left as a feature", path, ColumnsText(count)));
}

absl::StatusOr<CsvColumns> ResolveColumnsFor(const v1::Data& data, const std::string& path,
                                             const std::vector<std::string>& names, size_t count, int64_t inputs,
                                             std::string* no_label) {
  absl::StatusOr<CsvColumns> columns = ResolveColumns(data, path, names, count);
  const auto fits = [&](const absl::StatusOr<CsvColumns>& some) {
    return some.ok() && static_cast<int64_t>(some->features) == inputs;
  };
  if (inputs <= 0 || fits(columns) || !data.targets().empty()) return columns;
  absl::StatusOr<CsvColumns> all = ResolveColumns(data, path, names, count, /*labelled=*/false);
  if (!fits(all)) {
    if (columns.ok() || !all.ok()) return columns;  // else it has no label of that name
    return absl::Status(columns.status().code(),
                        absl::StrFormat("%s; besides the label the model takes %s", columns.status().message(),
                                        CountText(inputs, "column")));
  }
  *no_label = WhyNoLabel(data, path, columns, *all);
  return all;
}

absl::Status CheckSameColumns(const std::string& train_path, const CsvColumns& train, const std::string& other_path,
                              const CsvColumns& other) {
  if (train.count() != other.count()) {
    return absl::DataLossError(
        absl::StrFormat("%s has %s, %s has %d", other_path, ColumnsText(other.count()), train_path, train.count()));
  }
  for (size_t i = 0; i < std::min(train.names.size(), other.names.size()); ++i) {
    if (train.names[i] != other.names[i]) {
      return absl::DataLossError(absl::StrFormat("%s: column %d is \"%s\", in %s it is \"%s\"", other_path, i,
                                                 ShortText(other.names[i]), train_path, ShortText(train.names[i])));
    }
  }
  if (train.has_label && train.label != other.label) {
    return absl::DataLossError(absl::StrFormat("%s: the label is column %d, in %s it is column %d", other_path,
                                               other.label, train_path, train.label));
  }
  if (train.uses == other.uses && train.places == other.places) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrFormat("%s: targets and weights are other columns than in %s", other_path, train_path));
}

}  // namespace cairn
