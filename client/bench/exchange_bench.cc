#include "client/bench/exchange_bench.h"

#include <algorithm>
#include <vector>

namespace cairn {
namespace {

constexpr int kWarmUpRounds = 3;
constexpr absl::Duration kRoundTimeout = absl::Minutes(2);

double Median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

}  // namespace

absl::StatusOr<ExchangeFigures> MeasureExchange(ExchangeLoad& load, RawStream& raw, int64_t bytes, int rounds,
                                                const std::function<bool()>& stop) {
  std::vector<double> raw_seconds, seconds;
  for (int i = 0; i < rounds + kWarmUpRounds; ++i) {
    if (stop()) return absl::CancelledError("stopped");
    CAIRN_ASSIGN_OR_RETURN(const absl::Duration raw_time, raw.Round(bytes, kRoundTimeout));
    CAIRN_ASSIGN_OR_RETURN(const absl::Duration time, load.Round(kRoundTimeout));
    if (i < kWarmUpRounds) continue;
    raw_seconds.push_back(absl::ToDoubleSeconds(raw_time));
    seconds.push_back(absl::ToDoubleSeconds(time));
  }
  const double size = static_cast<double>(bytes);
  return ExchangeFigures{size / Median(seconds) / 1e9, size / Median(raw_seconds) / 1e9,
                         Median(raw_seconds) / Median(seconds)};
}

}  // namespace cairn
