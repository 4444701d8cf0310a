// Goal: a connection that opens more calls than it may is found, and so are those of such a machine; also a connection
// whose calls end at once. Many connections with few calls each are left alone, and are not looked at each time.
#include "common/rpc/call_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/limits.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class FakeCounters : public CallWatch::Counters {
 public:
  CallWatch::Calls All() override {
    CallWatch::Calls all;
    for (const CallWatch::Connection& one : connections) {
      all.begun += one.calls.begun;
      all.ended += one.calls.ended;
    }
    return all;
  }
  std::vector<CallWatch::Connection> Each() override {
    ++looks;
    return connections;
  }
  CallWatch::Calls& Add(int64_t begun) {
    const auto id = static_cast<int64_t>(connections.size()) + 1;
    connections.push_back({id, absl::StrCat("ipv4:10.0.0.1:", id), {begun, 0}});
    return connections.back().calls;
  }

  std::vector<CallWatch::Connection> connections;
  int looks = 0;
};

class CallWatchTest : public testing::Test {
 protected:
  std::vector<std::string> Look() {
    now_ += absl::ToChronoMilliseconds(kCallWatchEvery);
    std::vector<std::string> peers;
    for (const CallWatch::Connection& one : watch_.Look(now_)) peers.push_back(one.peer);
    return peers;
  }

  FakeCounters counters_;
  CallWatch watch_{counters_};
  CallWatch::Time now_;
};

TEST_F(CallWatchTest, AsManyAsItWasToldAreNoTrouble) {
  counters_.Add(kCallsOfConnectionMax);
  EXPECT_THAT(Look(), IsEmpty());
  EXPECT_EQ(counters_.looks, 0) << "all of them together are no more";
}

TEST_F(CallWatchTest, TheOneWithMoreIsFound) {
  counters_.connections.reserve(8);
  counters_.Add(3);
  CallWatch::Calls& second = counters_.Add(10);
  EXPECT_THAT(Look(), IsEmpty());
  second.begun = 10 + 2 * kCallsOfConnectionMax;
  EXPECT_THAT(Look(), ElementsAre("ipv4:10.0.0.1:2"));
  EXPECT_THAT(Look(), ElementsAre("ipv4:10.0.0.1:2")) << "it is still there";
  second.ended = second.begun;
  EXPECT_THAT(Look(), IsEmpty());
}

TEST_F(CallWatchTest, ManyConnectionsWithFewCallsAreLookedAtWhenTheyGrow) {
  for (int i = 0; i < 3 * kCallsOfConnectionMax; ++i) counters_.Add(1);
  EXPECT_THAT(Look(), IsEmpty());
  EXPECT_EQ(counters_.looks, 1);
  for (int i = 0; i < 5; ++i) EXPECT_THAT(Look(), IsEmpty());
  EXPECT_EQ(counters_.looks, 1);
  counters_.connections[7].calls.begun += kCallsOfConnectionMax + 1;
  EXPECT_THAT(Look(), ElementsAre("ipv4:10.0.0.1:8"));
  // Half of the connections go, and so does the number that is usual.
  counters_.connections.resize(static_cast<size_t>(kCallsOfConnectionMax));
  counters_.connections[7].calls.begun = 1;
  EXPECT_THAT(Look(), IsEmpty());
  counters_.Add(kCallsOfConnectionMax + 1);
  EXPECT_THAT(Look(), ElementsAre(absl::StrCat("ipv4:10.0.0.1:", kCallsOfConnectionMax + 1)));
}

TEST_F(CallWatchTest, AMachineHasABoundToo) {
  for (int i = 0; i < 8; ++i) counters_.Add(kCallsOfConnectionMax);
  EXPECT_THAT(Look(), IsEmpty());
  counters_.connections.push_back({100, "ipv4:10.0.0.2:7", {kCallsOfConnectionMax, 0}});
  EXPECT_THAT(Look(), IsEmpty()) << "another machine";
  counters_.Add(kCallsOfConnectionMax / 2);
  counters_.Add(kCallsOfConnectionMax - 1);
  EXPECT_EQ(Look().size(), 2u) << "without two of those with the most calls it has no more than it may";
}

// CVE-2023-44487: its streams end at once, and what they cost does not.
TEST_F(CallWatchTest, CallsThatAreResetAreFoundByTheirRate) {
  counters_.connections.reserve(8);
  CallWatch::Calls& calm = counters_.Add(100);
  CallWatch::Calls& hasty = counters_.Add(100);
  EXPECT_THAT(Look(), IsEmpty());
  const auto of_a_look = static_cast<int64_t>(absl::ToDoubleSeconds(kCallWatchEvery) * kCallsPerSecondMax);
  const auto pass = [&](int64_t times) {
    calm.begun += of_a_look / 10;
    calm.ended += of_a_look / 10;
    hasty.begun += times * of_a_look;
    hasty.ended += times * of_a_look;
    return Look();
  };
  for (int i = 0; i < 20; ++i) EXPECT_THAT(pass(1), IsEmpty()) << "as many as it may";
  std::vector<std::string> found;
  for (int i = 0; i < 10 && found.empty(); ++i) found = pass(3);
  EXPECT_THAT(found, ElementsAre("ipv4:10.0.0.1:2"));
}

// A client that opens a connection for every 50 calls: each of them has few.
TEST_F(CallWatchTest, ConnectionsOfAHastyMachineAreFound) {
  int64_t next = 0;
  const auto pass = [&](int64_t connections, int64_t calls_each, int64_t machine) {
    for (int64_t i = 0; i < connections; ++i) {
      ++next;
      counters_.connections.push_back(
          {next, absl::StrCat("ipv4:10.0.0.", machine, ":", next), {calls_each, calls_each}});
    }
    return Look();
  };
  pass(1, kCallsOfConnectionMax, 9);
  const auto of_a_look = static_cast<int64_t>(absl::ToDoubleSeconds(kCallWatchEvery) * kCallsOfMachinePerSecondMax);
  for (int i = 0; i < 20; ++i) EXPECT_THAT(pass(of_a_look / 50, 50, 1), IsEmpty()) << "as many as it may";
  std::vector<std::string> found;
  for (int i = 0; i < 10 && found.empty(); ++i) {
    pass(1, 10, 2);
    found = pass(3 * of_a_look / 50, 50, 1);
  }
  ASSERT_FALSE(found.empty());
  for (const std::string& peer : found) EXPECT_TRUE(absl::StartsWith(peer, "ipv4:10.0.0.1:")) << peer;
  EXPECT_LT(found.size(), static_cast<size_t>(next)) << "those that began the most of late, and no more than needed";
  for (int i = 0; i < 20; ++i) {
    counters_.connections.front().calls = {1'000'000 * (i + 1), 1'000'000 * (i + 1)};  // looks at each go on
    for (const std::string& peer : Look()) EXPECT_TRUE(absl::StartsWith(peer, "ipv4:10.0.0.9:")) << peer;
  }
}

// Nobody looks at each connection while all of them are quiet: what they begin in that time is not of one moment.
TEST_F(CallWatchTest, CallsOfALongQuietTimeAreNotOfTheMoment) {
  counters_.connections.reserve(128);
  const auto burst = [&] {
    counters_.connections.front().calls.begun += 4 * kCallsOfConnectionMax;
    counters_.connections.front().calls.ended = counters_.connections.front().calls.begun;
    return Look();
  };
  counters_.connections.push_back({1, "ipv4:10.0.0.9:1", {1, 1}});
  for (int i = 0; i < 100; ++i) counters_.Add(1).ended = 1;
  EXPECT_THAT(Look(), IsEmpty());
  burst();  // the first look at each
  EXPECT_THAT(burst(), ElementsAre("ipv4:10.0.0.9:1"));
  for (int i = 0; i < 60 * 60; ++i) {
    now_ += std::chrono::seconds(1);
    for (size_t each = 1; each < counters_.connections.size(); ++each) {
      ++counters_.connections[each].calls.begun;
      ++counters_.connections[each].calls.ended;
    }
    for (const std::string& peer : Look()) EXPECT_EQ(peer, "ipv4:10.0.0.9:1");
  }
  for (int i = 0; i < 10; ++i) {
    for (const std::string& peer : burst()) EXPECT_EQ(peer, "ipv4:10.0.0.9:1");
  }
}

// Calls of a connection that is seen for the first time may have been begun long ago.
TEST_F(CallWatchTest, CallsOfAnOldConnectionAreNotOfTheMoment) {
  counters_.connections.reserve(8);
  CallWatch::Calls& quiet = counters_.Add(100);
  quiet.ended = 100;
  EXPECT_THAT(Look(), IsEmpty());
  counters_.Add(10 * kCallsOfMachineAtOnceMax).ended = 10 * kCallsOfMachineAtOnceMax;
  EXPECT_THAT(Look(), IsEmpty());
}

TEST_F(CallWatchTest, ManyAtOnceAreNoTroubleOnceInAWhile) {
  counters_.connections.reserve(8);
  CallWatch::Calls& calls = counters_.Add(0);
  for (int i = 0; i < 20; ++i) {
    if (i % 10 == 0) calls.begun += kCallsOfConnectionMax;
    calls.ended = calls.begun;
    EXPECT_THAT(Look(), IsEmpty());
  }
}

TEST(ByteWatch, WhoSendsMoreThanAMessageWithoutOneIsFound) {
  ByteWatch watch(100);
  CallWatch::Connection busy{1, "ipv4:10.0.0.1:1", {1, 0}, 9}, endless{2, "ipv4:10.0.0.1:2", {1, 0}, 9};
  uint64_t sent = 400;
  const auto look = [&](int64_t messages, uint64_t bytes) {
    busy.messages += messages;
    sent += bytes;
    std::vector<std::string> peers;
    for (const auto& one : watch.Look({busy, endless}, {{busy.peer, sent}, {endless.peer, sent}}))
      peers.push_back(one.peer);
    return peers;
  };
  EXPECT_THAT(look(0, 0), IsEmpty()) << "the first look";
  EXPECT_THAT(look(1, 100), IsEmpty()) << "it may be a message";
  EXPECT_THAT(look(1, 1), ElementsAre("ipv4:10.0.0.1:2"));
  EXPECT_THAT(look(0, 100), ElementsAre("ipv4:10.0.0.1:2"));
  endless.calls.begun = 2;
  EXPECT_THAT(look(1, 0), IsEmpty());
  EXPECT_THAT(watch.Look({{3, "ipv4:10.0.0.1:3", {1, 0}, 0}}, {{"ipv4:10.0.0.1:3", 300}}), ElementsAre(testing::_))
      << "more than it can have sent in what is whole, at the first look";
  EXPECT_THAT(watch.Look({busy, endless}, {}), IsEmpty()) << "connections that nobody admitted";
}

TEST(GrpcCounters, AreEmptyWithoutAServer) {
  GrpcCounters counters;
  EXPECT_EQ(counters.All().open(), 0);
  EXPECT_THAT(counters.Each(), IsEmpty());
}

}  // namespace
}  // namespace cairn
