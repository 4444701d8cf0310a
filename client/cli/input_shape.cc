#include "client/cli/input_shape.h"

#include "absl/strings/numbers.h"
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

}  // namespace cairn
