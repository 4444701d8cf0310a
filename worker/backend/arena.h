// Places the buffers of a compiled program in its arena, one block of memory. The places are planned once, from the
// steps in which each buffer is used.
//
// Pure functions; any thread. Invariant: two buffers overlap only if the spans of steps in which they are used do not.
#pragma once

#include <cstdint>
#include <limits>

#include "absl/types/span.h"

namespace cairn {

struct ArenaBuffer {
  int64_t bytes = 0;
  int first_use = std::numeric_limits<int>::max();  // a step of the program
  int last_use = -1;
  int64_t offset = 0;  // set by PlaceBuffers; a multiple of the alignment

  void Use(int step) {
    first_use = first_use < step ? first_use : step;
    last_use = last_use > step ? last_use : step;
  }
};

// Places the largest buffer first, each at the lowest offset where it overlaps no buffer in use at the same time.
// Returns the size of the arena in bytes. Buffers that are never used get offset 0 and no memory.
int64_t PlaceBuffers(absl::Span<ArenaBuffer* const> buffers, int64_t alignment);

}  // namespace cairn
