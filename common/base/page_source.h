// PageSource: where a process gets the memory of large buffers.
//
// Thread-safe. Invariant: ranges that are taken do not overlap.
#pragma once

#include <cstddef>

namespace cairn {

class PageSource {
 public:
  virtual ~PageSource() = default;
  // Whole pages of zeros, at least so many bytes. Null: there are none.
  virtual void* Take(size_t bytes) = 0;
  // p, bytes: as of one Take. The system gets the memory back.
  virtual void Give(void* p, size_t bytes) = 0;
  // The system gets the memory of these pages back, which stay taken: they read as zeros afterwards.
  virtual void Discard(void* p, size_t bytes) = 0;
  virtual bool Contains(const void* p) const = 0;
  virtual size_t bytes_used() const = 0;  // what it costs now
};

}  // namespace cairn
