// A data set as it is found where no job describes it (`cairn data info`, `cairn data convert`): columns of a CSV data
// set that hold texts, besides the label, become texts. A column holds texts if a value of it in the training split is
// neither a number nor missing. Where almost all values are numbers the others are taken for slips, and refused, unless
// the column is named as one of texts.
//
// Free functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cairn/v1/data.pb.h"
#include "common/base/status.h"
#include "common/data/table.h"

namespace cairn {

// Of a column of texts that is not named as one at least so many percent of the values that are there are no numbers.
inline constexpr int64_t kCsvTextPercentMin = 1;

// A feature of a CSV data set, a number in the place of `column` among the features.
struct CsvFeature {
  std::string name;     // in the header line; empty: there is none
  size_t column = 0;    // in the file
  bool text = false;    // the others are numbers
  bool named = false;   // as one of texts
  std::string example;  // text: the first one that is no number, or the first one if all are
  int64_t line = 0;     // text: where that stands
  int64_t values = 0;   // that are not missing
  int64_t no_numbers = 0;
};

struct FoundData {
  LoadedData loaded;
  std::vector<CsvFeature> features;  // in their order in an example; empty: there are no columns of texts
};

// data: of its fields for columns, label_column and header alone. texts: columns that hold texts whatever their values
// look like, by name or number; --text of the commands. Errors: as LoadData; INVALID_ARGUMENT also where these are
// given for another format, where a text names no feature, where all columns are texts and data.header is missing, and
// where a column of numbers has slips.
absl::StatusOr<FoundData> LoadAsFound(const v1::Data& data, const std::vector<std::string>& texts);

// `column 3 ("age")`.
std::string ColumnName(const CsvFeature& feature);

// Of a column of texts: `column 3 ("title"): texts, as "A day" in line 2`.
std::string ShowTexts(const CsvFeature& feature);

}  // namespace cairn
