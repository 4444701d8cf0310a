// The arena of a process' gradients (common/shared_memory/shared_arena.h).
#pragma once

#include "common/shared_memory/shared_arena.h"

namespace cairn {

// Makes it, and buffers of AllocateInSharedPages (common/tensor/buffer_pages.h) of it from now on. Once, before the
// process has other threads. Null, and logged: the system refuses it; such buffers are private then, and copied once
// more when they are sent through shared memory.
const SharedArena* UseProcessArena();

}  // namespace cairn
