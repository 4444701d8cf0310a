#include "common/base/random.h"

#include "common/base/check.h"

namespace cairn {

PhiloxBlock Philox(std::array<uint32_t, 2> key, PhiloxBlock c) {
  constexpr uint64_t kM0 = 0xD2511F53, kM1 = 0xCD9E8D57;
  constexpr uint32_t kW0 = 0x9E3779B9, kW1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = kM0 * c[0], p1 = kM1 * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += kW0;
    key[1] += kW1;
  }
  return c;
}

std::array<uint32_t, 2> StreamKey(uint64_t seed, RandomStream stream) {
  const PhiloxBlock b = Philox({static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
                               {static_cast<uint32_t>(stream), 0, 0, 0});
  return {b[0], b[1]};
}

Permutation::Permutation(std::array<uint32_t, 2> key, uint64_t which, uint64_t size)
    : key_(key), which_(which), size_(size), half_bits_(1) {
  CAIRN_CHECK(size >= 1, "a permutation of nothing");
  while (half_bits_ < 32 && (uint64_t{1} << (2 * half_bits_)) < size) ++half_bits_;
}

uint64_t Permutation::Round(uint64_t x) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = x >> half_bits_, right = x & mask;
  for (uint32_t round = 0; round < 4; ++round) {
    const PhiloxBlock f = Philox(key_, {static_cast<uint32_t>(right), round, static_cast<uint32_t>(which_),
                                        static_cast<uint32_t>(which_ >> 32)});
    const uint64_t next = left ^ (f[0] & mask);
    left = right;
    right = next;
  }
  return (left << half_bits_) | right;
}

uint64_t Permutation::operator()(uint64_t index) const {
  CAIRN_CHECK(index < size_, "permutation index out of range");
  do {
    index = Round(index);
  } while (index >= size_);
  return index;
}

}  // namespace cairn
