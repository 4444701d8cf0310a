// Goal: a dropout mask keeps the right share, is the same however it is cut, and differs between steps, replicas and
// layers.
#include "worker/backend/dropout.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "common/base/random.h"

namespace cairn {
namespace {

std::vector<float> Mask(const StepInfo& info, int node, float rate, int64_t begin, int64_t size) {
  std::vector<float> factors(size, -1.0f);
  DropoutMask(info, node, rate).Fill(begin, absl::MakeSpan(factors));
  return factors;
}

TEST(DropoutMask, KeepsItsShare) {
  for (float rate : {0.0f, 0.1f, 0.5f, 0.9f}) {
    int kept = 0;
    for (float f : Mask({1, 2, 3}, 4, rate, 0, 100000)) {
      EXPECT_TRUE(f == 0.0f || f == 1.0f / (1.0f - rate));
      kept += f != 0.0f;
    }
    EXPECT_NEAR(kept / 100000.0, 1.0 - rate, rate == 0.0f ? 0.0 : 0.01);
  }
}

TEST(DropoutMask, TheDefinitionOfTheHeader) {
  const StepInfo info = {.seed = 77, .step = (uint64_t{5} << 32) | 6, .replica = 1023};
  const int64_t begin = (int64_t{3} << 34) + 1;  // bit 32 and 33 of the block's number
  const std::vector<float> factors = Mask(info, 4095, 0.5f, begin, 9);
  for (int64_t i = begin; i < begin + 9; ++i) {
    const int64_t block = i / 4;
    const PhiloxBlock bits = Philox(StreamKey(77, RandomStream::kDropout),
                                    {static_cast<uint32_t>(block), 4095u | 1023u << 12 | 3u << 22, 6, 5});
    EXPECT_EQ(factors[i - begin], ToUniform(bits[i % 4]) >= 0.5f ? 2.0f : 0.0f);
  }
}

TEST(DropoutMask, TheSameHoweverItIsCut) {
  const std::vector<float> whole = Mask({1, 2, 3}, 4, 0.5f, 0, 103);
  for (int64_t size : {1, 2, 3, 4, 5, 7, 50}) {
    for (int64_t begin = 0; begin < 103; begin += size) {
      const std::vector<float> part = Mask({1, 2, 3}, 4, 0.5f, begin, std::min(size, 103 - begin));
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin)) << begin << " " << size;
    }
  }
}

TEST(DropoutMask, DiffersByEverythingThatItIsAFunctionOf) {
  std::set<std::vector<float>> masks;
  for (const StepInfo& info :
       std::vector<StepInfo>{{1, 2, 3}, {2, 2, 3}, {1, 3, 3}, {1, uint64_t{1} << 32 | 2, 3}, {1, 2, 4}}) {
    masks.insert(Mask(info, 4, 0.5f, 0, 64));
  }
  masks.insert(Mask({1, 2, 3}, 5, 0.5f, 0, 64));
  masks.insert(Mask({1, 2, 3}, 4, 0.5f, 64, 64));
  EXPECT_EQ(masks.size(), 7u);
}

}  // namespace
}  // namespace cairn
