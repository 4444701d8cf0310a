// Goal: machines take turns, each with its calls in their order; and who adds the first call is told to begin it.
#include "coordinator/node/call_turns.h"

#include <gtest/gtest.h>

#include <string>

namespace cairn {
namespace {

class CallTurnsTest : public testing::Test {
 protected:
  bool Add(const std::string& machine, char name) {
    return turns_.Add(machine, [this, name] { begun_.push_back(name); });
  }
  // Begins all; returns them in order.
  std::string BeginAll() {
    begun_.clear();
    while (const CallTurns::Begin begin = turns_.Next()) {
      begin();
      turns_.Began();
    }
    return begun_;
  }

  CallTurns turns_;
  std::string begun_;
};

TEST_F(CallTurnsTest, MachinesTakeTurns) {
  for (const char name : {'a', 'b', 'c', 'd'}) Add("greedy", name);
  Add("other", 'X');
  Add("third", '1');
  Add("third", '2');
  EXPECT_EQ(BeginAll(), "aX1b2cd");
  EXPECT_EQ(BeginAll(), "");
}

TEST_F(CallTurnsTest, OneThatComesLaterIsNext) {
  for (const char name : {'a', 'b', 'c', 'd'}) Add("greedy", name);
  turns_.Next()();
  turns_.Began();
  Add("other", 'X');
  EXPECT_EQ(BeginAll(), "bXcd");
}

TEST_F(CallTurnsTest, TheFirstIsBegunByWhoAddsItTheOthersAfterIt) {
  EXPECT_TRUE(Add("a", '1'));
  EXPECT_FALSE(Add("b", '2'));
  const CallTurns::Begin first = turns_.Next();
  EXPECT_FALSE(Add("a", '3')) << "the first is beginning";
  first();
  EXPECT_TRUE(turns_.Began());
  EXPECT_EQ(BeginAll(), "23");
  EXPECT_TRUE(Add("b", '4'));
}

}  // namespace
}  // namespace cairn
