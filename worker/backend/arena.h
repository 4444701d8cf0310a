// Where the buffers of a compiled program stand in its arena: one block of memory, planned once from when each buffer
// is in use.
//
// Pure. Two buffers overlap only if the spans of time in which they are used do not.
#pragma once

#include <cstdint>
#include <limits>

#include "absl/types/span.h"

namespace cairn {

struct ArenaBuffer {
  int64_t bytes = 0;
  int first_use = std::numeric_limits<int>::max();  // of the program's steps
  int last_use = -1;
  int64_t offset = 0;  // set by PlaceBuffers; a multiple of the alignment

  void Use(int step) {
    first_use = first_use < step ? first_use : step;
    last_use = last_use > step ? last_use : step;
  }
};

// The largest first, each at the lowest place where it overlaps none that is in use at the same time. Returns the
// arena's size in bytes. Buffers that are never used get offset 0 and no room.
int64_t PlaceBuffers(absl::Span<ArenaBuffer* const> buffers, int64_t alignment);

}  // namespace cairn
