// File names that contain figures: "model-{epoch:02d}-{val_loss:.2f}.safetensors", with the syntax of Keras'
// ModelCheckpoint, which uses Python's str.format. Pure functions and values; any thread.
//
//   template := ( literal | "{{" | "}}" | "{" name [":" format] "}" )*
//   format   := ["0"] [width] ["." precision] ["d" | "f" | "F" | "e" | "E" | "g" | "G"]      "d": only epoch and batch
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
  // Errors: INVALID_ARGUMENT says what is wrong and at which position.
  static absl::StatusOr<PathTemplate> Parse(absl::string_view text);

  // The names in the template, each once.
  std::vector<std::string> Names() const;
  // `counts` are the integers ("epoch", "batch"), `figures` all other values. Errors: INVALID_ARGUMENT, a name is in
  // neither of them.
  absl::StatusOr<std::string> Fill(const std::map<std::string, int64_t>& counts,
                                   const std::map<std::string, double>& figures) const;
  // The text before the first name.
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

// Formats as Python's repr: with the fewest digits that read back as the same number, and with a ".0" if the text would
// otherwise be an integer's.
std::string ShortestText(double value);

}  // namespace cairn
