// GradientTracker: finds out which partitions have their whole gradient, as ranges of the parameter space become final
// in any order.
//
// Not thread-safe. One tracker serves one backward pass.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cairn/v1/commands.pb.h"

namespace cairn {

class GradientTracker {
 public:
  // ranges: those of the partitions, in order, without gaps; they outlive the tracker.
  explicit GradientTracker(const std::vector<v1::PartitionRange>& ranges) : ranges_(ranges), missing_(ranges.size()) {
    for (size_t p = 0; p < ranges.size(); ++p) missing_[p] = ranges[p].end() - ranges[p].begin();
  }

  // The numbers [begin, end) are final; each number is reported once. Calls complete(first, last) when the partitions
  // first .. last - 1 have become complete.
  template <typename Complete>
  void Final(int64_t begin, int64_t end, const Complete& complete) {
    const uint64_t from = static_cast<uint64_t>(std::max<int64_t>(begin, 0));
    const uint64_t to = std::min(static_cast<uint64_t>(std::max<int64_t>(end, 0)), ranges_.back().end());
    if (from >= to) return;
    auto it = std::partition_point(ranges_.begin(), ranges_.end(), [&](const auto& r) { return r.end() <= from; });
    uint32_t first = static_cast<uint32_t>(it - ranges_.begin()), last = first;  // a run of complete partitions
    for (; it != ranges_.end() && it->begin() < to; ++it) {
      const uint32_t p = static_cast<uint32_t>(it - ranges_.begin());
      const uint64_t covered = std::min(it->end(), to) - std::max(it->begin(), from);
      missing_[p] -= std::min(missing_[p], covered);
      if (missing_[p] == 0) {
        last = p + 1;
      } else {
        if (first < last) complete(first, last);
        first = last = p + 1;
      }
    }
    if (first < last) complete(first, last);
  }

 private:
  const std::vector<v1::PartitionRange>& ranges_;
  std::vector<uint64_t> missing_;
};

}  // namespace cairn
