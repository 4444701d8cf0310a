// XXH3 checksums and digests. Not cryptographic: they detect corruption, not tampering.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace cairn {

uint64_t Checksum(const void* data, size_t size);  // XXH3-64

// XXH3-128 of the bytes added, in order. Not thread-safe.
class Digest {
 public:
  Digest();
  ~Digest();
  void Add(const void* data, size_t size);
  std::string Hex() const;  // 32 lower-case hex digits

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cairn
