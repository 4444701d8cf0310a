// Which numbers a Dropout layer keeps: a pure function of the job's seed, the step, the replica, the layer and the
// index of the number, the same in every backend.
//
// Number i of the layer's input [examples, height, width, channels] (channels last, in that order) is kept if
//   ToUniform(Philox(StreamKey(seed, kDropout), counter)[i % 4]) >= rate, with the 128-bit counter, b = i / 4:
//     word 0: b's bits 0..31
//     word 1: bits 0..11 the layer's node id, bits 12..21 the replica, bits 22..31 b's bits 32..41
//     word 2, 3: the step, low word first
// and is then multiplied by 1 / (1 - rate). Backward multiplies by the same factor. Before that the words of
// kSeedFactor * the layer's own seed are XORed into the stream's key; the default seed 0 leaves it unchanged.
// Thread-safe.
#pragma once

#include <array>
#include <cstdint>

#include "absl/types/span.h"
#include "common/base/limits.h"
#include "worker/backend/backend.h"

namespace cairn {

static_assert(kLayersMax <= 1 << 12 && kReplicasMax <= 1 << 10, "the counter has bits for them");

inline constexpr uint64_t kSeedFactor = 0x9E3779B97F4A7C15;  // odd: no two seeds give one key

// Of a layer within layer `outer` (a TimeDistributed whose steps are part of the batch): its own node id is one of a
// graph of its own, so that the outer one's goes into the seed, which is the first two words, low one first, of
//   Philox(info.seed's words, {outer, 0, 0, kWithinLayer})
StepInfo WithinLayer(const StepInfo& info, int outer);
inline constexpr uint32_t kWithinLayer = 0x4C415952;

class DropoutMask {
 public:
  // rate: in [0, 1). seed: the layer's own.
  DropoutMask(const StepInfo& info, int node, float rate, uint64_t seed = 0);
  // The random bits of the numbers 4 * block .. 4 * block + 3.
  std::array<uint32_t, 4> BitsAt(int64_t block) const;
  // factors[j] becomes the factor of number begin + j: 0 or 1 / (1 - rate).
  void Fill(int64_t begin, absl::Span<float> factors) const;

 private:
  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 3> counter_;  // words 1 to 3, without the bits of the number's index
  float rate_;
  float keep_factor_;
};

}  // namespace cairn
