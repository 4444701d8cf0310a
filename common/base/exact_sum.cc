#include "common/base/exact_sum.h"

#include <optional>

#include "absl/numeric/int128.h"
#include "common/base/limits.h"

namespace cairn {
namespace {

// As an integer number of units.
std::optional<absl::int128> Exact(double value, double rest) {
  if (!(std::fabs(value) <= kExactSumMax) || !(std::fabs(rest) <= kExactSumMax)) return std::nullopt;
  return static_cast<absl::int128>(std::nearbyint(value / kExactSumUnit)) +
         static_cast<absl::int128>(std::nearbyint(rest / kExactSumUnit));
}

}  // namespace

void ExactSum::Add(double added, double added_rest) {
  const std::optional<absl::int128> sum = Exact(value, rest), term = Exact(added, added_rest);
  if (!sum || !term) {
    value += added;
    rest = 0;
    return;
  }
  const absl::int128 units = *sum + *term;
  const auto nearest = static_cast<double>(units);
  value = nearest * kExactSumUnit;
  rest = static_cast<double>(units - static_cast<absl::int128>(nearest)) * kExactSumUnit;
}

}  // namespace cairn
