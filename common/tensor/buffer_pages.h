// Buffers in pages that other processes of this host may read (common/shared_memory/shared_arena.h).
//
// Thread-safe. SetSharedPages once, before there are other threads.
#pragma once

#include <cstddef>

#include "common/base/page_source.h"
#include "common/tensor/buffer.h"

namespace cairn {

// pages: lives for ever. Where it has none left, buffers are private.
void SetSharedPages(PageSource* pages);
// As Buffer::Allocate, Buffer::Discard too; of shared pages where there are some and the buffer is large. Slower: the
// system gives and takes the memory each time.
Buffer AllocateInSharedPages(size_t bytes);
// What the shared pages cost now; 0: there are none.
size_t SharedPagesUsed();

}  // namespace cairn
