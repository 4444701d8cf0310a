// Which numbers a Dropout layer keeps: a pure function of the job's seed, the step, the replica, the layer and the
// place of the number, the same in every backend.
//
// Number i of the layer's input [examples, height, width, channels] (channels last, in that order) is kept if
//   ToUniform(Philox(StreamKey(seed, kDropout), counter)[i % 4]) >= rate, with the 128-bit counter, b = i / 4:
//     word 0: b's bits 0..31
//     word 1: bits 0..11 the layer's node id, bits 12..21 the replica, bits 22..31 b's bits 32..41
//     word 2, 3: the step, low word first
// and it is then multiplied by 1 / (1 - rate). Backward multiplies by the same number. Thread-safe.
#pragma once

#include <array>
#include <cstdint>

#include "absl/types/span.h"
#include "common/base/limits.h"
#include "worker/backend/backend.h"

namespace cairn {

static_assert(kLayersMax <= 1 << 12 && kReplicasMax <= 1 << 10, "the counter has bits for them");

class DropoutMask {
 public:
  // rate: in [0, 1).
  DropoutMask(const StepInfo& info, int node, float rate);
  // factors[j]: what number begin + j is multiplied by, 0 or 1 / (1 - rate).
  void Fill(int64_t begin, absl::Span<float> factors) const;

 private:
  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 3> counter_;  // words 1 to 3 without the bits of the number's place
  float rate_;
  float keep_factor_;
};

}  // namespace cairn
