// Goal: evaluation sees what keras.layers.RandomCrop shows outside training: the largest part in the middle that has
// the input's proportions, resized. The formulas are written again here, in double.
#include "common/data/middle_crop.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "common/model/data_check.h"

namespace cairn {
namespace {

constexpr int64_t kChannels = 2;

// Example i of height x width: numbers that differ.
class Pictures : public Dataset {
 public:
  Pictures(int64_t height, int64_t width) : height_(height), width_(width) {}
  const v1::DataInfo& info() const override { return info_; }
  int64_t size(v1::Split) const override { return 3; }
  int64_t example_size() const override { return height_ * width_ * kChannels; }
  int64_t label_size() const override { return 1; }
  absl::Status Read(v1::Split, int64_t index, float* example, float* label) const override {
    for (int64_t i = 0; i < example_size(); ++i) example[i] = static_cast<float>((i * 37 + index * 11) % 256);
    *label = static_cast<float>(index);
    return absl::OkStatus();
  }

 private:
  const int64_t height_, width_;
  v1::DataInfo info_;
};

struct Sizes {
  int64_t height, width, to_height, to_width;
  int64_t part_height, part_width;  // the largest with the proportions
};

TEST(MiddleCrop, IsTheLargestPartInTheMiddle) {
  for (const Sizes& s : {Sizes{36, 36, 32, 32, 36, 36}, Sizes{40, 30, 8, 8, 30, 30}, Sizes{9, 20, 4, 6, 9, 13},
                         Sizes{20, 7, 2, 10, 1, 7}, Sizes{5, 6, 5, 5, 5, 5}}) {
    SCOPED_TRACE(testing::Message() << s.height << " x " << s.width << " to " << s.to_height << " x " << s.to_width);
    v1::Data data;
    data.set_image_height(static_cast<int32_t>(s.height));
    data.set_image_width(static_cast<int32_t>(s.width));
    const auto pictures = std::make_shared<const Pictures>(s.height, s.width);
    const auto seen = AsModelInput(pictures, data, {s.to_height, s.to_width, kChannels});
    ASSERT_EQ(seen->example_size(), s.to_height * s.to_width * kChannels);
    std::vector<float> in(static_cast<size_t>(pictures->example_size())),
        out(static_cast<size_t>(seen->example_size()));
    float label = -1;
    ASSERT_TRUE(pictures->Read(v1::TEST, 2, in.data(), &label).ok());
    ASSERT_TRUE(seen->Read(v1::TEST, 2, out.data(), &label).ok());
    EXPECT_EQ(label, 2);
    const int64_t top = (s.height - s.part_height) / 2, left = (s.width - s.part_width) / 2;
    const auto place = [](int64_t i, int64_t part, int64_t to) {
      const double at = (static_cast<double>(i) + 0.5) * static_cast<double>(part) / static_cast<double>(to) - 0.5;
      return std::clamp(at, 0.0, static_cast<double>(part - 1));
    };
    for (int64_t y = 0; y < s.to_height; ++y) {
      for (int64_t x = 0; x < s.to_width; ++x) {
        const double row = place(y, s.part_height, s.to_height), column = place(x, s.part_width, s.to_width);
        for (int64_t c = 0; c < kChannels; ++c) {
          const auto at = [&](double r, double k) {
            return double{in[static_cast<size_t>(
                ((top + static_cast<int64_t>(r)) * s.width + left + static_cast<int64_t>(k)) * kChannels + c)]};
          };
          const double down = row - std::floor(row), right = column - std::floor(column);
          const double wanted = (1 - down) * ((1 - right) * at(std::floor(row), std::floor(column)) +
                                              right * at(std::floor(row), std::ceil(column))) +
                                down * ((1 - right) * at(std::ceil(row), std::floor(column)) +
                                        right * at(std::ceil(row), std::ceil(column)));
          EXPECT_NEAR(out[static_cast<size_t>((y * s.to_width + x) * kChannels + c)], wanted, 1e-3);
        }
      }
    }
  }
}

TEST(MiddleCrop, ExamplesOfTheInputsShapeAreShownAsTheyAre) {
  const auto pictures = std::make_shared<const Pictures>(4, 4);
  v1::Data data;
  EXPECT_EQ(AsModelInput(pictures, data, {4, 4, kChannels}), pictures);
  data.set_image_height(4);
  data.set_image_width(4);
  EXPECT_EQ(AsModelInput(pictures, data, {4, 4, kChannels}), pictures);
}

}  // namespace
}  // namespace cairn
