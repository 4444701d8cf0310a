// Goal: text is UTF-8 exactly if the Unicode standard says so; other bytes are replaced and nothing else changes; a cut
// never falls into a character.
#include "common/base/text.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(TextTest, KnowsUtf8) {
  for (const std::string_view text : {"", "plain", "\u00e9\u20ac", "\U0001f600", "\xf4\x8f\xbf\xbf", "\xed\x9f\xbf"}) {
    EXPECT_TRUE(IsUtf8(text)) << text;
    EXPECT_EQ(ToUtf8(text), text);
  }
  for (const std::string_view text : {"caf\xe9", "\x80", "\xc0\xaf", "\xc3", "\xe2\x82", "\xe0\x80\x80", "\xed\xa0\x80",
                                      "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xff"}) {
    EXPECT_FALSE(IsUtf8(text)) << text;
    EXPECT_TRUE(IsUtf8(ToUtf8(text))) << text;
  }
  EXPECT_FALSE(IsUtf8(std::string_view("a\xc3\0b", 4)));
}

TEST(TextTest, ReplacesEachBadByteAndKeepsTheRest) {
  EXPECT_EQ(ToUtf8("caf\xe9/\u00e9"), "caf\ufffd/\u00e9");
  EXPECT_EQ(ToUtf8("\xe2\x82"), "\ufffd\ufffd");
}

TEST(TextTest, CutsBetweenCharacters) {
  const std::string_view text = "a\u20acb";  // 1 + 3 + 1 bytes
  const std::string_view want[] = {"", "a", "a", "a", "a\u20ac", text, text};
  for (size_t n = 0; n < std::size(want); ++n) EXPECT_EQ(CutUtf8(text, n), want[n]) << n;
}

TEST(TextTest, ACountHasItsThingInTheRightNumber) {
  EXPECT_EQ(CountText(0, "slot"), "0 slots");
  EXPECT_EQ(CountText(1, "slot"), "1 slot");
  EXPECT_EQ(CountText(12, "slot"), "12 slots");
  EXPECT_EQ(Verb(1, "lacks", "lack"), "lacks");
  EXPECT_EQ(Verb(2, "lacks", "lack"), "lack");
}

}  // namespace
}  // namespace cairn
