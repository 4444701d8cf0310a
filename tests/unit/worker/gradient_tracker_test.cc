// Goal: each partition is announced once, when its last number became final, however the ranges come. Compared with
// counting.
#include "worker/backend/gradient_tracker.h"

#include <gtest/gtest.h>

#include <random>

namespace cairn {
namespace {

TEST(GradientTrackerTest, EqualsCountingNumberByNumber) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    std::vector<v1::PartitionRange> ranges(1 + random() % 6);
    uint64_t size = 0;
    for (auto& range : ranges) {
      range.set_begin(size);
      size += 16 * (1 + random() % 5);
      range.set_end(size);
    }
    // Cuts of the space into ranges, in a random order.
    std::vector<int64_t> cuts = {0, static_cast<int64_t>(size)};
    for (int i = 0; i < 5; ++i) cuts.push_back(static_cast<int64_t>(16 * (random() % (size / 16))));
    std::sort(cuts.begin(), cuts.end());
    std::vector<std::pair<int64_t, int64_t>> pieces;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) pieces.emplace_back(cuts[i], cuts[i + 1]);
    std::shuffle(pieces.begin(), pieces.end(), random);

    GradientTracker tracker(ranges);
    std::vector<bool> final(size, false);
    std::vector<int> announced(ranges.size(), 0);
    for (const auto& [begin, end] : pieces) {
      for (int64_t i = begin; i < end; ++i) final[static_cast<size_t>(i)] = true;
      tracker.Final(begin, end, [&](uint32_t first, uint32_t last) {
        EXPECT_LT(first, last);
        for (uint32_t p = first; p < last; ++p) ++announced[p];
      });
      for (size_t p = 0; p < ranges.size(); ++p) {
        const bool complete =
            std::all_of(final.begin() + static_cast<int64_t>(ranges[p].begin()),
                        final.begin() + static_cast<int64_t>(ranges[p].end()), [](bool f) { return f; });
        EXPECT_EQ(announced[p], complete ? 1 : 0) << "partition " << p;
      }
    }
  }
}

}  // namespace
}  // namespace cairn
