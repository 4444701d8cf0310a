// Goal: glyphs are a function of the seed alone, differ from one another, and open as an IDX data set with what was
// drawn.
#include "common/data/glyphs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "common/data/dataset.h"
#include "common/data/limits.h"
#include "tests/unit/data/data_files.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

std::vector<uint8_t> Draw(uint64_t seed, uint32_t split, uint32_t index, int* digit) {
  std::vector<uint8_t> pixels(kGlyphPixels);
  *digit = DrawGlyph(seed, split, index, absl::MakeSpan(pixels));
  return pixels;
}

TEST(Glyphs, AFunctionOfSeedSplitAndIndex) {
  std::set<std::string> pictures;
  std::array<int, kGlyphClasses> counts{};
  for (uint64_t seed : {1, 2}) {
    for (uint32_t split : {0, 1}) {
      for (uint32_t i = 0; i < 250; ++i) {
        int digit, again;
        const std::vector<uint8_t> pixels = Draw(seed, split, i, &digit);
        EXPECT_EQ(pixels, Draw(seed, split, i, &again));
        EXPECT_EQ(digit, again);
        ASSERT_GE(digit, 0);
        ASSERT_LT(digit, kGlyphClasses);
        ++counts[digit];
        pictures.emplace(pixels.begin(), pixels.end());
        EXPECT_GT(*std::max_element(pixels.begin(), pixels.end()), 120) << "no ink on picture " << i;
      }
    }
  }
  EXPECT_EQ(pictures.size(), 1000);
  for (int count : counts) EXPECT_GT(count, 60);
}

TEST(Glyphs, FilesHoldWhatIsDrawn) {
  TempFolder dir;
  ASSERT_TRUE(WriteGlyphs(dir / "new/folder", 4100, 30, 5).ok());  // more than one chunk
  v1::Data data;
  data.set_path(dir / "new/folder");
  const auto dataset = OpenDataset(data, {28, 28, 1});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->info().format(), v1::Data::IDX);
  EXPECT_EQ((*dataset)->size(v1::TRAIN), 4100);
  EXPECT_EQ((*dataset)->size(v1::TEST), 30);
  EXPECT_EQ((*dataset)->info().classes(), 10);
  std::vector<float> example(kGlyphPixels);
  float label;
  for (auto [split, index] :
       std::vector<std::pair<v1::Split, uint32_t>>{{v1::TRAIN, 0}, {v1::TRAIN, 4099}, {v1::TEST, 29}}) {
    ASSERT_TRUE((*dataset)->Read(split, index, example.data(), &label).ok());
    int digit;
    const std::vector<uint8_t> drawn = Draw(5, split == v1::TRAIN ? 0 : 1, index, &digit);
    EXPECT_EQ(label, digit);
    EXPECT_TRUE(std::equal(drawn.begin(), drawn.end(), example.begin()));
  }
}

TEST(Glyphs, BadCountsAndFoldersAreRefused) {
  TempFolder dir;
  EXPECT_EQ(WriteGlyphs(dir.path(), 0, 10, 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteGlyphs(dir.path(), 10, kGlyphsMax + 1, 1).code(), absl::StatusCode::kInvalidArgument);
  WriteFile(dir / "file", "");
  const absl::Status status = WriteGlyphs(dir / "file", 1, 1, 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(dir / "file"));
}

}  // namespace
}  // namespace cairn
