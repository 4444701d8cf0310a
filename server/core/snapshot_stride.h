// SnapshotStride: at which versions a partition of a SNAPSHOT job takes an image.
//
// All partitions of a synchronous job need images of a common version, else only the initial values are left to go back
// to; and each partition decides on its own, on a disk of any speed. So an image is never taken late: it is taken at a
// multiple of (every * stride) or not at all. If one falls due while the last is still being written, the stride
// doubles; after kQuickInARow images that each took less than a quarter of the interval it halves (halving too early
// costs an image). Strides are powers of two, so that multiples of the largest one are multiples of all.
//
// One caller at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <set>
#include <vector>

#include "absl/types/span.h"
#include "server/core/limits.h"

namespace cairn {

// Of `versions`, the existing images, newest first: those that are not among the newest kSnapshotsKept of any stride.
inline std::vector<uint64_t> SuperfluousSnapshots(absl::Span<const uint64_t> versions, uint64_t every) {
  std::set<uint64_t> kept;
  for (uint64_t stride = 1; stride <= kSnapshotStrideMax; stride *= 2) {
    size_t found = 0;
    for (uint64_t version : versions) {
      if ((stride == 1 || version % (every * stride) == 0) && found++ < kSnapshotsKept) kept.insert(version);
    }
  }
  std::vector<uint64_t> superfluous;
  std::copy_if(versions.begin(), versions.end(), std::back_inserter(superfluous),
               [&](uint64_t v) { return !kept.contains(v); });
  return superfluous;
}

class SnapshotStride {
 public:
  explicit SnapshotStride(uint64_t every) : every_(every) {}

  // Call once for each version. writing: an image is being written.
  bool Due(uint64_t version, bool writing) {
    if (version % (every_ * stride_) != 0) return false;
    if (writing) stride_ = std::min(2 * stride_, kSnapshotStrideMax);
    return !writing;
  }
  // The image of version `taken` is in the store; the partition is at `version` by now.
  void Written(uint64_t taken, uint64_t version) {
    quick_ = 4 * (version - taken) < every_ * stride_ ? quick_ + 1 : 0;
    if (quick_ < kQuickInARow) return;
    stride_ = std::max<uint64_t>(stride_ / 2, 1);
    quick_ = 0;
  }

 private:
  static constexpr int kQuickInARow = 16;

  uint64_t every_;
  uint64_t stride_ = 1;
  int quick_ = 0;  // quick images in a row
};

}  // namespace cairn
