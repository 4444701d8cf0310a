// Compares push+pull of a parameter space over Exchange with a raw gRPC stream of the same bytes each way.
//
// Rounds of the two alternate, so that a drift in the machine's speed affects both; the result is the ratio of the
// medians.
#pragma once

#include <cstdint>
#include <functional>

#include "client/bench/exchange_load.h"
#include "client/bench/raw_stream.h"
#include "common/base/status.h"

namespace cairn {

struct ExchangeFigures {
  double gb_per_s = 0;  // 1e9 bytes, each way
  double raw_gb_per_s = 0;
  double ratio = 0;
};

// Runs a few warm-up rounds first. Calls `stop` between rounds; if it returns true, the result is CANCELLED.
absl::StatusOr<ExchangeFigures> MeasureExchange(ExchangeLoad& load, RawStream& raw, int64_t bytes, int rounds,
                                                const std::function<bool()>& stop);

}  // namespace cairn
