// Goal: LeaderFinder goes through its list, follows a named leader at once, and is not led in circles by a standby that
// names one that is gone.
#include "client/leader_finder.h"

#include <gtest/gtest.h>

#include "common/base/limits.h"

namespace cairn {
namespace {

TEST(LeaderFinder, InTurn) {
  LeaderFinder finder({"a:1", "b:1", "c:1"});
  EXPECT_TRUE(finder.several());
  for (const char* address : {"a:1", "b:1", "c:1", "a:1"}) {
    EXPECT_EQ(finder.current(), address);
    EXPECT_FALSE(finder.Failed(""));
  }
}

TEST(LeaderFinder, TheNamedLeaderIsAskedAtOnceAlsoWhereItIsNotInTheList) {
  LeaderFinder finder({"a:1", "b:1"});
  EXPECT_TRUE(finder.Failed("x:9"));
  EXPECT_EQ(finder.current(), "x:9");
  finder.Served();
  EXPECT_TRUE(finder.Failed("b:1")) << "the lead went on";
  EXPECT_EQ(finder.current(), "b:1");
}

TEST(LeaderFinder, ALeaderThatIsGoneIsNotFollowedTwiceInARow) {
  LeaderFinder finder({"a:1", "b:1"});
  ASSERT_FALSE(finder.Failed(""));  // a died
  ASSERT_EQ(finder.current(), "b:1");
  ASSERT_TRUE(finder.Failed("a:1"));  // b does not know yet
  ASSERT_EQ(finder.current(), "a:1");
  ASSERT_FALSE(finder.Failed(""));
  while (finder.current() != "b:1") ASSERT_FALSE(finder.Failed(""));
  EXPECT_FALSE(finder.Failed("a:1")) << "that was tried";
  while (finder.current() != "b:1") ASSERT_FALSE(finder.Failed(""));
  EXPECT_TRUE(finder.Failed("a:1")) << "it may be back by now";
}

TEST(LeaderFinder, NonsenseIsNoLeader) {
  LeaderFinder finder({"a:1"});
  EXPECT_FALSE(finder.several());
  for (const char* named : {"a:1", "nonsense", ":", ""}) {
    EXPECT_FALSE(finder.Failed(named)) << named;
    EXPECT_EQ(finder.current(), "a:1");
  }
}

TEST(ParseCoordinators, Lists) {
  EXPECT_EQ(ParseCoordinators("a:1,b:2")->size(), 2u);
  for (const char* wrong : {"", "a", "a:1,", ",a:1", "a:1,b"}) EXPECT_FALSE(ParseCoordinators(wrong).ok()) << wrong;
  std::string many = "a:1";
  for (size_t i = 0; i < kCoordinatorsMax; ++i) many += ",a:1";
  EXPECT_FALSE(ParseCoordinators(many).ok());
}

}  // namespace
}  // namespace cairn
