#include "common/base/decimal.h"

#include <charconv>

namespace cairn {

double Decimal(float f) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, f).ptr;
  double d = f;
  std::from_chars(text, end, d);
  return d;
}

}  // namespace cairn
