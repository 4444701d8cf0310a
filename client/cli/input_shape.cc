#include "client/cli/input_shape.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/bad.h"

namespace cairn {

absl::StatusOr<Shape> ParseInputShape(absl::string_view text) {
  Shape shape;
  if (text.empty()) return shape;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    int32_t size = 0;
    if (!absl::SimpleAtoi(part, &size) || size <= 0) {
      return Bad("--input-shape: ", part.empty() ? "an empty text" : part,
                 " is not a size; give positive numbers with commas ", "between, as 128,128,3");
    }
    shape.push_back(size);
  }
  return shape;
}

absl::StatusOr<std::vector<InputShape>> ParseInputShapes(const std::vector<std::string>& texts) {
  std::vector<InputShape> shapes;
  for (const std::string& text : texts) {
    const size_t equals = text.rfind('=');
    const std::string input = equals == std::string::npos ? "" : text.substr(0, equals);
    for (const InputShape& other : shapes) {
      if (other.input != input && !other.input.empty() && !input.empty()) continue;
      return Bad("--input-shape: given twice for ", input.empty() ? "an input" : absl::StrCat("\"", input, "\""),
                 "; name each input once, as left=128,128,3");
    }
    CAIRN_ASSIGN_OR_RETURN(Shape shape, ParseInputShape(equals == std::string::npos ? text : text.substr(equals + 1)));
    if (shape.empty() && equals == std::string::npos) continue;
    if (shape.empty()) return Bad("--input-shape: ", text, " has no size; give one, as left=128,128,3");
    shapes.push_back({input, std::move(shape)});
  }
  return shapes;
}

}  // namespace cairn
