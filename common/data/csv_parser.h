// Comma-separated lines into fields (RFC 4180: quotes, doubled quotes, CRLF). Blank lines are skipped; blanks around an
// unquoted field are dropped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/status.h"

namespace cairn {

class CsvParser {
 public:
  explicit CsvParser(absl::string_view text);  // text outlives the parser
  // The next line's fields; false at the end. Errors: DATA_LOSS, a quote that is not closed, bytes that are no text.
  absl::StatusOr<bool> Next(std::vector<std::string>* fields);
  int64_t line() const { return line_; }  // number of the last line's beginning, from 1

 private:
  absl::Status Quoted(std::string* field);

  absl::string_view text_;
  size_t at_ = 0;
  int64_t line_ = 0, next_line_ = 1;
};

// Whole of `text` as a number, as "3", "-1.5e3" or "+2". NaN and infinities are no numbers here.
bool ParseNumber(absl::string_view text, double* value);

}  // namespace cairn
