// The use of each column of a CSV file: a feature (a number or a text), the label, part of the target (data.targets),
// the weight, or, with data.inputs, unused.
//
// Pure functions; any thread. Errors: INVALID_ARGUMENT names data.label_column or the like, and lists the file's
// columns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cairn/v1/data.pb.h"
#include "common/base/status.h"

namespace cairn {

enum class CsvUse : uint8_t { kFeature, kText, kLabel, kTarget, kWeight, kUnused };

struct CsvColumns {
  std::vector<std::string> names;  // of all columns; empty without a header line
  std::vector<CsvUse> uses;        // of all columns
  std::vector<size_t> places;      // of all columns: the position of a target's number in the target, or of a feature's
                                   // in the example
  size_t label = 0;                // the label's column, if there is one
  size_t targets = 0, features = 0;  // features: texts too
  bool has_label = true, has_weight = false;

  size_t count() const { return uses.size(); }
};

std::string ShortText(const std::string& text);
std::string ColumnName(const CsvColumns& columns, size_t column);  // `column 3 ("age")`
std::string ColumnsText(size_t count);                             // "1 column", "2 columns"

// names: those of the header line, empty without one. count: the number of columns of the file at `path`. labelled:
// false: no column is the label or the weight; one that has the name of either is unused.
absl::StatusOr<CsvColumns> ResolveColumns(const v1::Data& data, const std::string& path, std::vector<std::string> names,
                                          size_t count, bool labelled = true);

// The same for a model that takes `inputs` numbers and texts; -1: not known. Where there are as many features only
// without a label, the file has none, and no_label says so, as LoadedData::no_labels (table.h).
absl::StatusOr<CsvColumns> ResolveColumnsFor(const v1::Data& data, const std::string& path,
                                             const std::vector<std::string>& names, size_t count, int64_t inputs,
                                             std::string* no_label);

// The number of the column that the field names, by its name or its number; empty: the last one. Errors: without the
// names of other fields.
absl::StatusOr<size_t> FindCsvColumn(const std::string& field, const std::string& wanted, const std::string& path,
                                     const CsvColumns& file);

// Compares the columns of two splits. Errors: DATA_LOSS.
absl::Status CheckSameColumns(const std::string& train_path, const CsvColumns& train, const std::string& other_path,
                              const CsvColumns& other);

}  // namespace cairn
