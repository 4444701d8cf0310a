// Which CSV files a data set has, whether their first line names the columns, and what stands for a number in them.
//
// Free functions; any thread. LooksLikeCsv (table.h) is beside them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "cairn/v1/data.pb.h"
#include "common/base/status.h"

namespace cairn {

bool IsCsvNumber(const std::string& text);
// How other programs write a missing value.
bool IsCsvMissing(const std::string& text);
// A number, or a text used in place of one: a missing value, or one that is out of range of float32.
bool IsCsvNumberOrMissing(const std::string& text);

// first, second: the fields of the first two lines; second is empty if there is one alone.
absl::Status ReadTwoCsvLines(const std::string& text, std::vector<std::string>* first,
                             std::vector<std::string>* second);

// inputs: the numbers and texts that the model takes; -1: not known. Errors: INVALID_ARGUMENT names data.header: all
// columns are texts, so that the first line may be either.
absl::StatusOr<bool> HasCsvHeader(const v1::Data& data, const std::string& path, const std::vector<std::string>& first,
                                  const std::vector<std::string>& second, int64_t inputs);

// Whether data.path is of that format, as LoadData finds it out.
bool IsCsv(const v1::Data& data);

// By SplitIndex; empty: the data set does not have the split. A folder's only file is the training split, unless its
// name is that of another. Errors: NOT_FOUND.
absl::StatusOr<std::array<std::string, 3>> FindCsvFiles(const std::string& path);

}  // namespace cairn
