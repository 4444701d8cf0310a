// Names of files with figures in them: "model-{epoch:02d}-{val_loss:.2f}.safetensors", as Keras' ModelCheckpoint takes
// them, which uses Python's str.format. Pure functions and values; any thread.
//
//   template := ( literal | "{{" | "}}" | "{" name [":" format] "}" )*
//   format   := ["0"] [width] ["." precision] ["d" | "f" | "F" | "e" | "E" | "g" | "G"]      "d": epoch and batch alone
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/status.h"

namespace cairn {

class PathTemplate {
 public:
  // Errors: INVALID_ARGUMENT says what is wrong at which place.
  static absl::StatusOr<PathTemplate> Parse(absl::string_view text);

  // The names that stand in it, each once.
  std::vector<std::string> Names() const;
  // `counts` are whole numbers ("epoch", "batch"), `figures` all others. Errors: INVALID_ARGUMENT, a name that is in
  // neither.
  absl::StatusOr<std::string> Fill(const std::map<std::string, int64_t>& counts,
                                   const std::map<std::string, double>& figures) const;
  // What stands before the first name.
  std::string Beginning() const;

 private:
  struct Piece {
    std::string literal;  // or
    std::string name;
    bool zeros = false;
    int width = 0, precision = -1;
    char type = 0;  // 0: none
  };
  static absl::StatusOr<Piece> ParseName(absl::string_view inside);

  std::vector<Piece> pieces_;
};

// As Python's repr: the fewest digits that read back as the same number, with a ".0" where it would look like a whole
// one.
std::string ShortestText(double value);

}  // namespace cairn
