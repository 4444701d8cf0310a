// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11).
//
// A draw is a pure function of (key, counter), whichever process computes it, when, and in which order. Every use has
// its own stream number, so that no two uses share random numbers.
#pragma once

#include <array>
#include <cstdint>

namespace cairn {

enum class RandomStream : uint32_t {
  kInitializer = 1,  // counter: (variable index, element / 4)
  kShuffle = 2,      // counter: (epoch, ...)
  kDropout = 3,      // counter: (step, replica, layer, element / 4)
  kSplit = 4,
  kGlyphs = 5,
  kAugment = 6,
};

using PhiloxBlock = std::array<uint32_t, 4>;

// The block of 128 random bits at `counter` for `key`.
PhiloxBlock Philox(std::array<uint32_t, 2> key, PhiloxBlock counter);

// The key of a stream: the seed's bits mixed with the stream number by one Philox call, so that similar seeds give
// unrelated streams.
std::array<uint32_t, 2> StreamKey(uint64_t seed, RandomStream stream);

// [0, 1) with 24 random bits.
inline float ToUniform(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1.0p-24f; }

// A stateless bijection of [0, size): maps `index` to its element in a shuffled order, by a Feistel network with Philox
// rounds, applied repeatedly until the result is below size (cycle walking). O(1) memory, expected O(1) time.
class Permutation {
 public:
  // `which` (the epoch) selects one of the key's permutations. size >= 1.
  Permutation(std::array<uint32_t, 2> key, uint64_t which, uint64_t size);
  uint64_t operator()(uint64_t index) const;  // index < size

 private:
  uint64_t Round(uint64_t x) const;

  std::array<uint32_t, 2> key_;
  uint64_t which_;
  uint64_t size_;
  int half_bits_;
};

}  // namespace cairn
