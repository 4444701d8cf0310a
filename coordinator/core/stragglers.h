// StragglerWatch: which workers of one job are slower than the others, by what they say of the time of a replica's
// step.
//
// Not thread-safe; used by ClusterCore. A replica that moves costs more than a slow step, and on a machine that others
// use, too, the times of steps vary for seconds on end. So a worker is judged late and acquitted later:
//   1. Its speed is the mean of the logarithms of what it says (it is slowed down by factors), over the last seconds.
//   2. It becomes a straggler when it has taken kSlowFactor times what the others take, and more than chance explains
//      by the scatter of what they all say, for kSlowFor on end.
//   3. It ceases to be one when it has taken less than kFastFactor, or has said nothing, for a time on end that doubles
//      with every time that it was one: from kFastFor to kStragglerFastForMax. A worker that is slow again and again
//      is tried again ever more seldom. After kForgiveAfter without being one it starts with the shortest time again.
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

  // The worker says how long a replica's step takes it; what is no time is ignored.
  void Heard(const NodeName& worker, double replica_ms, absl::Time now);
  // Judges them all by what was said until now. True: one that was a straggler is none any more.
  bool Look(absl::Time now);
  // The worker has gone.
  void Forget(const NodeName& worker) { workers_.erase(worker); }

  // As of the last Look: stragglers, with how many times slower than the others they are, or were when they were heard
  // last.
  const std::map<NodeName, double>& stragglers() const { return stragglers_; }

 private:
  struct Worker {
    double mean = 0;     // of logarithms
    double last = 0;     // the last of them
    double scatter = 0;  // variance of one, by the differences of neighbours
    double weight = 1;   // what the mean's variance is of it
    int heard = 0;
    absl::Time at;
    bool slow = false;
    absl::Time since = absl::InfiniteFuture();  // on end: slow while it is not a straggler, fast while it is
    int times = 0;                              // that it was one
    absl::Time last_slow = absl::InfinitePast();
  };
  // Of all that have said something lately.
  struct Sums {
    double mean = 0, variance = 0;
    int workers = 0;
  };
  struct Comparison {
    double factor = 1;  // of what the others take
    double chance = 1;  // what the scatter explains of it
  };
  static bool HasNews(const Worker& worker, absl::Time now);
  static Comparison Compare(const Worker& worker, Sums others, absl::Time now);
  static void Judge(Worker& worker, const Comparison& comparison, absl::Time now);

  std::map<NodeName, Worker> workers_;
  std::map<NodeName, double> stragglers_;
};

}  // namespace cairn
