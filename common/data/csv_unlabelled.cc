#include "common/data/csv_unlabelled.h"

#include <optional>

#include "common/data/csv_heads.h"

namespace cairn {

bool IsGuessedUnlabelled(const v1::Data& data, const Shape& input_shape) {
  const std::optional<CsvHead> head = ReadCsvHead(data, input_shape);
  if (!head || head->no_label.empty()) return false;
  return FindCsvColumn("data.label_column", data.label_column(), head->path, head->columns).ok();
}

}  // namespace cairn
