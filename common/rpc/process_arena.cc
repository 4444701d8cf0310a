#include "common/rpc/process_arena.h"

#include <memory>

#include "common/base/log.h"
#include "common/shared_memory/limits.h"
#include "common/tensor/buffer_pages.h"

namespace cairn {

const SharedArena* UseProcessArena() {
  absl::StatusOr<std::unique_ptr<SharedArena>> arena = SharedArena::Create(kArenaBytes);
  if (!arena.ok()) {
    LogInfo("gradients are copied into shared memory, for they cannot be read where they are: %s",
            arena.status().message());
    return nullptr;
  }
  SharedArena* const pages = arena->release();  // buffers may outlive all static objects
  SetSharedPages(pages);
  return pages;
}

}  // namespace cairn
