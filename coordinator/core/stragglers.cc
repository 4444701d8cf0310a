#include "coordinator/core/stragglers.h"

#include <algorithm>
#include <cmath>

#include "coordinator/core/limits.h"

namespace cairn {
namespace {

// The time constant of the mean. A worker that becomes three times as slow exceeds kSlowFactor after half of it.
constexpr absl::Duration kForget = absl::Seconds(4);
// Reports of a worker before it is judged.
constexpr int kHeardMin = 3;
// A report of a worker is valid for this long; older ones are not used to judge others.
constexpr absl::Duration kNewsFor = absl::Seconds(10);
// A difference of this many standard deviations is not chance.
constexpr double kDeviations = 5;

}  // namespace

void StragglerWatch::Heard(const NodeName& worker, double replica_ms, absl::Time now) {
  if (!(replica_ms > 0) || !std::isfinite(replica_ms)) return;
  Worker& w = workers_[worker];
  const double value = std::log(replica_ms);
  if (w.heard > 0 && now - w.at > kNewsFor) w.heard = 0;  // from before its replicas were moved
  // A plain mean at first, then an exponential one.
  const double forget = w.heard == 0 ? 1 : 1 - std::exp(-absl::FDivDuration(now - w.at, kForget));
  const double alpha = std::max(forget, 1.0 / (w.heard + 1));
  if (w.heard == 0) {
    w.mean = value;
    w.scatter = 0;
    w.weight = 1;
  } else {
    const double step = value - w.last;
    const double beta = w.heard == 1 ? 1 : std::max(forget, 1.0 / w.heard);
    w.mean += alpha * (value - w.mean);
    w.scatter += beta * (step * step / 2 - w.scatter);
    w.weight = (1 - alpha) * (1 - alpha) * w.weight + alpha * alpha;
  }
  w.last = value;
  w.at = now;
  ++w.heard;
}

bool StragglerWatch::HasNews(const Worker& w, absl::Time now) { return w.heard >= kHeardMin && now - w.at <= kNewsFor; }

// sums: the worker's own values are subtracted from them.
StragglerWatch::Comparison StragglerWatch::Compare(const Worker& w, Sums sums, absl::Time now) {
  if (HasNews(w, now)) {
    sums.mean -= w.mean;
    sums.variance -= w.scatter * w.weight;
    --sums.workers;
  }
  if (sums.workers <= 0) return {};
  const double n = sums.workers;
  const double deviation = std::sqrt(w.scatter * w.weight + std::max(0.0, sums.variance) / n / n);
  return {std::exp(w.mean - sums.mean / n), std::exp(kDeviations * deviation)};
}

void StragglerWatch::Judge(Worker& w, const Comparison& comparison, absl::Time now) {
  if (!w.slow) {
    const bool slow = HasNews(w, now) && comparison.factor > std::max(kSlowFactor, comparison.chance);
    w.since = slow ? std::min(w.since, now) : absl::InfiniteFuture();
    if (now - w.last_slow > kForgiveAfter) w.times = 0;
    if (now - w.since < kSlowFor) return;
    w.slow = true;
    ++w.times;
  } else {
    const bool fast = now - w.at > kNewsFor || comparison.factor < kFastFactor;
    w.since = fast ? std::min(w.since, now) : absl::InfiniteFuture();
    w.last_slow = now;
    if (now - w.since < std::min(kStragglerFastForMax, kFastFor * (1 << std::min(w.times - 1, 10)))) return;
    w.slow = false;
  }
  w.since = absl::InfiniteFuture();
}

bool StragglerWatch::Look(absl::Time now) {
  std::erase_if(workers_,
                [&](const auto& worker) { return !worker.second.slow && now - worker.second.at > kForgiveAfter; });
  Sums sums;
  for (const auto& [name, w] : workers_) {
    if (!HasNews(w, now)) continue;
    sums.mean += w.mean;
    sums.variance += w.scatter * w.weight;
    ++sums.workers;
  }
  std::map<NodeName, double> stragglers;
  bool acquitted = false;
  for (auto& [name, w] : workers_) {
    const Comparison comparison = Compare(w, sums, now);
    const bool was = w.slow;
    Judge(w, comparison, now);
    acquitted = acquitted || (was && !w.slow);
    if (!w.slow) continue;
    // While it reports too little, it keeps its previous state.
    const auto before = stragglers_.find(name);
    stragglers[name] =
        HasNews(w, now) || before == stragglers_.end() ? std::max(comparison.factor, kFastFactor) : before->second;
  }
  stragglers_ = std::move(stragglers);
  return acquitted;
}

}  // namespace cairn
