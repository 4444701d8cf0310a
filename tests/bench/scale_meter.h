// ScaleMeter: the processor time of one thread, by what it is spent on. Nested pieces of work are not counted twice.
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <utility>

namespace cairn::bench {

// What the coordinator does for nodes and users. kNodes: what the simulated nodes do, which is not the coordinator's.
enum class Work { kDecode, kEncode, kHeartbeat, kReport, kFigures, kTick, kOther, kNodes };
inline constexpr size_t kWorks = static_cast<size_t>(Work::kNodes) + 1;

class ScaleMeter {
 public:
  template <typename Function>
  void In(Work work, Function&& function) {
    const int64_t outer = std::exchange(inner_ns_, 0), begin = Now();
    function();
    const int64_t all = Now() - begin, own = all - std::exchange(inner_ns_, outer + all);
    spent_ns_[static_cast<size_t>(work)] += own;
    ++times_[static_cast<size_t>(work)];
    if (work != Work::kNodes) longest_ns_ = std::max(longest_ns_, own);
  }

  double Seconds(Work work) const { return 1e-9 * static_cast<double>(spent_ns_[static_cast<size_t>(work)]); }
  int64_t Times(Work work) const { return times_[static_cast<size_t>(work)]; }
  // Of all kinds but kNodes.
  double Seconds() const {
    int64_t sum = 0;
    for (size_t i = 0; i + 1 < kWorks; ++i) sum += spent_ns_[i];
    return 1e-9 * static_cast<double>(sum);
  }
  // The longest single piece, in seconds: meanwhile nothing else is handled.
  double Longest() const { return 1e-9 * static_cast<double>(longest_ns_); }
  void Reset() { *this = ScaleMeter(); }

 private:
  static int64_t Now() {
    timespec t = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
  }

  std::array<int64_t, kWorks> spent_ns_ = {}, times_ = {};
  int64_t inner_ns_ = 0;  // of the pieces within the present one
  int64_t longest_ns_ = 0;
};

}  // namespace cairn::bench
