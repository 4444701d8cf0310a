// Whether a CSV file would be read as one without a label, by its first two lines: for who asks for predictions of it.
//
// Free function; any thread.
#pragma once

#include "cairn/v1/data.pb.h"
#include "common/tensor/buffer.h"

namespace cairn {

// True where only the number of columns says that there is no label (ResolveColumnsFor, csv_columns.h), since the label
// has no name: the file may have another column too many or too few. False also where the file cannot be read here.
bool IsGuessedUnlabelled(const v1::Data& data, const Shape& input_shape);

}  // namespace cairn
