// Splits comma-separated lines into fields (RFC 4180: quotes, doubled quotes, CRLF). Blank lines are skipped; blanks
// around an unquoted field are removed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/status.h"

namespace cairn {

class CsvParser {
 public:
  explicit CsvParser(absl::string_view text);  // text must outlive the parser
  // Reads the next line's fields; returns false at the end. Errors: DATA_LOSS, an unclosed quote, or bytes that are not
  // text.
  absl::StatusOr<bool> Next(std::vector<std::string>* fields);
  int64_t line() const { return line_; }  // number of the line on which the last record began, from 1

 private:
  absl::Status Quoted(std::string* field);

  absl::string_view text_;
  size_t at_ = 0;
  int64_t line_ = 0, next_line_ = 1;
};

// Parses all of `text` as a number such as "3", "-1.5e3" or "+2". NaN and infinities are not accepted.
bool ParseNumber(absl::string_view text, double* value);

}  // namespace cairn
