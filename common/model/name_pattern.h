// NamePattern: a regular expression that is searched for in variables' names, as Keras' optimizers search with Python's
// re.search.
//
// Immutable after construction; any thread. Invariants:
//   1. The expression comes from a job. It is compiled in bounded memory, and a search takes at most size() steps for
//      each byte of the name (RE2): no expression makes it longer.
//   2. An expression that Python reads in another way is refused, not searched for: look-around, back-references,
//      {,n}, [:alpha:]. Letters, digits and spaces of \w, \d, \s and (?i) are those of ASCII.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "common/base/status.h"

namespace re2 {
class RE2;
}

namespace cairn {

class NamePattern {
 public:
  // Errors: INVALID_ARGUMENT says what is wrong with the expression and what to do, without the field's name.
  static absl::StatusOr<NamePattern> Make(const std::string& text);

  static NamePattern OfText(std::string text) { return NamePattern(std::move(text)); }  // as it is written

  bool IsIn(absl::string_view name) const;
  int64_t size() const;  // of the compiled expression, in instructions; a text without operators: its bytes

 private:
  explicit NamePattern(std::string text) : text_(std::move(text)) {}

  std::string text_;
  std::shared_ptr<const re2::RE2> expression_;  // null: a text without operators
};

}  // namespace cairn
