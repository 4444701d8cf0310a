// Goal: --input-shape takes sizes separated by commas; anything else is refused.
#include "client/cli/input_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(InputShape, IsSizesWithCommasBetween) {
  EXPECT_EQ(ParseInputShape("128,96,3").value(), (Shape{128, 96, 3}));
  EXPECT_EQ(ParseInputShape("4").value(), Shape{4});
  EXPECT_EQ(ParseInputShape("").value(), Shape{});
}

TEST(InputShape, WhatIsNoSizeIsRefused) {
  for (const auto& [text, shown] :
       {std::pair("0", "0"), std::pair("128,,3", "an empty text"), std::pair("128,3,", "an empty text"),
        std::pair("-1,3", "-1"), std::pair("8x8", "8x8"), std::pair("9999999999", "9999999999"),
        std::pair("1.5", "1.5")}) {
    EXPECT_THAT(std::string(ParseInputShape(text).status().message()),
                testing::HasSubstr(absl::StrCat("--input-shape: ", shown, " is not a size; give positive numbers")));
  }
}

}  // namespace
}  // namespace cairn
