// The random numbers of common/base/random.h and the masks of worker/backend/dropout.h, for kernels: the same bits.
#pragma once

#include "worker/backend/cudnn/kernels/launch.h"

namespace cairn::cudnn::kernels {

struct PhiloxBlock {
  uint32_t at[4];
};

// Philox4x32-10 (Salmon et al., SC'11).
CAIRN_DEVICE PhiloxBlock Philox(uint32_t key0, uint32_t key1, PhiloxBlock c) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c.at[0], p1 = uint64_t{0xCD9E8D57} * c.at[2];
    c = {{static_cast<uint32_t>(p1 >> 32) ^ c.at[1] ^ key0, static_cast<uint32_t>(p1),
          static_cast<uint32_t>(p0 >> 32) ^ c.at[3] ^ key1, static_cast<uint32_t>(p0)}};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return c;
}

// The factors of the numbers 4 * block .. 4 * block + 3 of the layer: 0 or 1 / (1 - rate).
struct Factors {
  float at[4];
  // at[k] for a k that is not known at compile time: indexing would put the four numbers into local memory.
  CAIRN_DEVICE float Of(int64_t k) const { return k < 2 ? (k == 0 ? at[0] : at[1]) : (k == 2 ? at[2] : at[3]); }
};
// The random bits of those numbers.
CAIRN_DEVICE PhiloxBlock DrawnBits(const StepKey& key, const Draw& draw, int64_t block) {
  const uint32_t high = static_cast<uint32_t>(block >> 32) << 22;
  const uint64_t own = draw.seed * 0x9E3779B97F4A7C15;  // kSeedFactor
  return Philox(key.key[0] ^ static_cast<uint32_t>(own), key.key[1] ^ static_cast<uint32_t>(own >> 32),
                {{static_cast<uint32_t>(block), (static_cast<uint32_t>(draw.node) | key.replica << 12) | high,
                  key.step[0], key.step[1]}});
}
CAIRN_DEVICE float Uniform(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1.0p-24f; }
// keep: 1 / (1 - rate).
CAIRN_DEVICE Factors DropoutFactors(const StepKey& key, const Draw& draw, float keep, int64_t block) {
  const PhiloxBlock bits = DrawnBits(key, draw, block);
  Factors f;
  CAIRN_UNROLL
  for (int k = 0; k < 4; ++k) f.at[k] = Uniform(bits.at[k]) >= draw.rate ? keep : 0.0f;
  return f;
}

}  // namespace cairn::cudnn::kernels
