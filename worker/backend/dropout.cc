#include "worker/backend/dropout.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/random.h"

namespace cairn {

StepInfo WithinLayer(const StepInfo& info, int outer) {
  const PhiloxBlock bits = Philox({static_cast<uint32_t>(info.seed), static_cast<uint32_t>(info.seed >> 32)},
                                  {static_cast<uint32_t>(outer), 0, 0, kWithinLayer});
  StepInfo within = info;
  within.seed = bits[0] | static_cast<uint64_t>(bits[1]) << 32;
  return within;
}

DropoutMask::DropoutMask(const StepInfo& info, int node, float rate, uint64_t seed)
    : key_(StreamKey(info.seed, RandomStream::kDropout)),
      counter_{static_cast<uint32_t>(node) | info.replica << 12, static_cast<uint32_t>(info.step),
               static_cast<uint32_t>(info.step >> 32)},
      rate_(rate),
      keep_factor_(1.0f / (1.0f - rate)) {
  key_[0] ^= static_cast<uint32_t>(seed * kSeedFactor);
  key_[1] ^= static_cast<uint32_t>((seed * kSeedFactor) >> 32);
  CAIRN_CHECK(node >= 0 && node < kLayersMax && info.replica < kReplicasMax, "limits checked at submission");
}

std::array<uint32_t, 4> DropoutMask::BitsAt(int64_t block) const {
  const uint32_t high = static_cast<uint32_t>(block >> 32) << 22;
  return Philox(key_, {static_cast<uint32_t>(block), counter_[0] | high, counter_[1], counter_[2]});
}

void DropoutMask::Fill(int64_t begin, absl::Span<float> factors) const {
  const int64_t end = begin + static_cast<int64_t>(factors.size());
  for (int64_t block = begin / 4; block * 4 < end; ++block) {
    const PhiloxBlock bits = BitsAt(block);
    for (int64_t i = std::max(begin, block * 4); i < std::min(end, block * 4 + 4); ++i) {
      factors[i - begin] = ToUniform(bits[i % 4]) >= rate_ ? keep_factor_ : 0.0f;
    }
  }
}

}  // namespace cairn
