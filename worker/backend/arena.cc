#include "worker/backend/arena.h"

#include <algorithm>
#include <vector>

namespace cairn {
namespace {

int64_t AlignUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

}  // namespace

int64_t PlaceBuffers(absl::Span<ArenaBuffer* const> buffers, int64_t alignment) {
  std::vector<ArenaBuffer*> order, placed;  // placed: by offset
  for (ArenaBuffer* buffer : buffers) {
    if (buffer->last_use >= 0) order.push_back(buffer);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const ArenaBuffer* a, const ArenaBuffer* b) { return a->bytes > b->bytes; });
  int64_t arena_bytes = 0;
  for (ArenaBuffer* buffer : order) {
    int64_t offset = 0;
    for (const ArenaBuffer* other : placed) {
      if (other->last_use < buffer->first_use || other->first_use > buffer->last_use) continue;
      if (offset + buffer->bytes <= other->offset) break;
      offset = std::max(offset, AlignUp(other->offset + other->bytes, alignment));
    }
    buffer->offset = offset;
    arena_bytes = std::max(arena_bytes, AlignUp(offset + buffer->bytes, alignment));
    placed.insert(std::upper_bound(placed.begin(), placed.end(), buffer,
                                   [](const ArenaBuffer* a, const ArenaBuffer* b) { return a->offset < b->offset; }),
                  buffer);
  }
  return arena_bytes;
}

}  // namespace cairn
