// StragglerWatch: which workers of one job are slower than the others, from the times that they report for a replica's
// step.
//
// Not thread-safe; used by ClusterCore. Moving a replica costs more than a slow step, and on a shared machine the times
// of steps vary for seconds on end. So a worker is declared a straggler late, and cleared even later:
//   1. Its speed is the mean logarithm of its reported times over the last seconds (slowdowns are factors).
//   2. It becomes a straggler when it has taken kSlowFactor times as long as the others, and longer than the scatter of
//      all reports explains by chance, for kSlowFor without a break.
//   3. It ceases to be one when it has stayed below kFastFactor, or has reported nothing, for a time that doubles with
//      every relapse, from kFastFor to kStragglerFastForMax: a worker that is slow again and again is retried less and
//      less often. After kForgiveAfter without a relapse it starts with the shortest time again.
#pragma once

#include <map>
#include <string>

#include "absl/time/time.h"
#include "common/base/ids.h"
#include "coordinator/core/limits.h"

namespace cairn {

class StragglerWatch {
 public:
  static constexpr double kSlowFactor = 1.5;
  static constexpr double kFastFactor = 1.2;
  static constexpr absl::Duration kSlowFor = absl::Seconds(1);
  static constexpr absl::Duration kFastFor = absl::Seconds(30);
  static constexpr absl::Duration kForgiveAfter = absl::Hours(1);

  // The worker reports how long a replica's step takes; values that are not a time are ignored.
  void Heard(const NodeName& worker, double replica_ms, absl::Time now);
  // Judges all workers by the reports until now. True: a straggler ceased to be one.
  bool Look(absl::Time now);
  // The worker has gone.
  void Forget(const NodeName& worker) { workers_.erase(worker); }

  // The stragglers as of the last Look, each with its slowdown relative to the others, now or when it last
  // reported.
  const std::map<NodeName, double>& stragglers() const { return stragglers_; }

 private:
  struct Worker {
    double mean = 0;     // of the logarithms
    double last = 0;     // the last logarithm
    double scatter = 0;  // variance of one logarithm, from the differences of neighbours
    double weight = 1;   // the mean's variance as a share of it
    int heard = 0;
    absl::Time at;
    bool slow = false;
    absl::Time since = absl::InfiniteFuture();  // since when: slow while it is no straggler, fast while it is
    int times = 0;                              // how often it was a straggler
    absl::Time last_slow = absl::InfinitePast();
  };
  // Over all workers that have reported lately.
  struct Sums {
    double mean = 0, variance = 0;
    int workers = 0;
  };
  struct Comparison {
    double factor = 1;  // relative to the others' times
    double chance = 1;  // the factor that the scatter explains
  };
  static bool HasNews(const Worker& worker, absl::Time now);
  static Comparison Compare(const Worker& worker, Sums others, absl::Time now);
  static void Judge(Worker& worker, const Comparison& comparison, absl::Time now);

  std::map<NodeName, Worker> workers_;
  std::map<NodeName, double> stragglers_;
};

}  // namespace cairn
