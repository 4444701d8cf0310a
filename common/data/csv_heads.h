// The columns of a CSV data set by the beginning of its file: for who asks for predictions or evaluations of other data
// than the job's. Columns are taken by their position, unless data.inputs names them.
//
// Free functions; any thread. input_shape: what the model takes of a line, as of OpenDataset.
#pragma once

#include <optional>
#include <string>

#include "cairn/v1/data.pb.h"
#include "common/base/status.h"
#include "common/data/csv_columns.h"
#include "common/tensor/buffer.h"

namespace cairn {

struct CsvHead {
  std::string path;  // of the training split, or of the first one that there is
  CsvColumns columns;
  std::string no_label;  // as of ResolveColumnsFor
};

// None: the data set is no CSV, or its first two lines cannot be read on this machine.
std::optional<CsvHead> ReadCsvHead(const v1::Data& data, const Shape& input_shape);

// trained: the data that the job was trained with. Errors: INVALID_ARGUMENT: by the header lines of both, another
// column would be taken for one of its inputs. OK where either has none that can be read here.
absl::Status CheckSameInputs(const v1::Data& trained, const v1::Data& data, const Shape& input_shape);

// For errors, of a data set whose examples do not fit the model: which columns it has, and which of them is the label;
// empty: it is no CSV.
std::string TellColumns(const v1::Data& data, const Shape& input_shape);

}  // namespace cairn
