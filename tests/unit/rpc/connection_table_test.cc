// Goal: one machine's connections are bounded, and so are all, and how fast it begins them; closed ones make room, also
// when their descriptors are used again; a connection that is ended is gone with what it sent, and its machine waits.
#include "common/rpc/connection_table.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/limits.h"
#include "common/rpc/listener.h"
#include "tests/unit/rpc/sockets.h"

namespace cairn {
namespace {

using Outcome = ConnectionTable::Outcome;

// Far enough on each time for a look at what is closed.
class SweepClock {
 public:
  ConnectionTable::Time Next() { return now_ += absl::ToChronoMilliseconds(kConnectionSweepEvery); }
  ConnectionTable::Time Now() const { return now_; }

 private:
  ConnectionTable::Time now_;
};

TEST(ConnectionTable, BoundsOneMachineAndAll) {
  SweepClock clock;
  ConnectionTable table({.all_max = 3, .of_machine_max = 2});
  std::vector<int> fds;
  for (int i = 0; i < 5; ++i) fds.push_back(NewSocket());
  EXPECT_EQ(table.Admit(fds[0], "a", clock.Next()), Outcome::kAdmitted);
  EXPECT_EQ(table.Admit(fds[1], "a", clock.Next()), Outcome::kAdmitted);
  EXPECT_EQ(table.Admit(fds[2], "a", clock.Next()), Outcome::kTooManyOfMachine);
  EXPECT_EQ(table.Admit(fds[2], "b", clock.Next()), Outcome::kAdmitted);
  EXPECT_EQ(table.Admit(fds[3], "b", clock.Next()), Outcome::kTooMany);
  close(fds[0]);
  EXPECT_EQ(table.Admit(fds[3], "b", clock.Next()), Outcome::kAdmitted) << "a closed one of another machine makes room";
  EXPECT_EQ(table.Admit(fds[4], "a", clock.Next()), Outcome::kTooMany);
  for (const int fd : {1, 2, 3, 4}) close(fds[static_cast<size_t>(fd)]);
}

TEST(ConnectionTable, ADescriptorThatIsUsedAgainIsAnotherConnection) {
  SweepClock clock;
  ConnectionTable table({.all_max = 4, .of_machine_max = 1});
  const int first = NewSocket();
  EXPECT_EQ(table.Admit(first, "a", clock.Next()), Outcome::kAdmitted);
  close(first);
  const int second = NewSocket();
  ASSERT_EQ(second, first);
  EXPECT_EQ(table.Admit(second, "b", clock.Next()), Outcome::kAdmitted);
  const int third = NewSocket();
  EXPECT_EQ(table.Admit(third, "a", clock.Next()), Outcome::kAdmitted) << "the first one no longer counts";
  const int fourth = NewSocket();
  EXPECT_EQ(table.Admit(fourth, "b", clock.Next()), Outcome::kTooManyOfMachine) << "the second one does";
  // Closed, and its number given to a socket that is none of ours: it is not taken for the old one.
  close(second);
  const int other = NewSocket();
  ASSERT_EQ(other, second);
  EXPECT_EQ(table.Admit(fourth, "b", clock.Next()), Outcome::kAdmitted);
  for (const int fd : {third, fourth, other}) close(fd);
}

TEST(ConnectionTable, AFloodAtALimitDoesNotLookAtAllDescriptorsEachTime) {
  SweepClock clock;
  ConnectionTable table({.all_max = 2, .of_machine_max = 1});
  const int first = NewSocket(), second = NewSocket();
  EXPECT_EQ(table.Admit(first, "a", clock.Next()), Outcome::kAdmitted);
  EXPECT_EQ(table.Admit(second, "a", clock.Next()), Outcome::kTooManyOfMachine);
  close(first);
  EXPECT_EQ(table.Admit(second, "a", clock.Now()), Outcome::kTooManyOfMachine) << "it looked just now";
  EXPECT_EQ(table.Admit(second, "a", clock.Next()), Outcome::kAdmitted);
  const int third = NewSocket(), fourth = NewSocket();
  EXPECT_EQ(table.Admit(third, "b", clock.Next()), Outcome::kAdmitted);
  EXPECT_EQ(table.Admit(fourth, "c", clock.Next()), Outcome::kTooMany);
  close(third);
  EXPECT_EQ(table.Admit(fourth, "c", clock.Now()), Outcome::kTooMany);
  EXPECT_EQ(table.Admit(fourth, "c", clock.Next()), Outcome::kAdmitted);
  for (const int fd : {second, fourth}) close(fd);
}

TEST(ConnectionTable, AnEndedConnectionIsGoneAndItsMachineWaits) {
  SweepClock clock;
  ConnectionTable table({.all_max = 4, .of_machine_max = 2});
  const auto listener = Listener::Bind("127.0.0.1:0", {.all_max = 4, .of_machine_max = 2});
  ASSERT_TRUE(listener.ok()) << listener.status();
  Taken taken;
  (*listener)->Run([&](int fd) { taken.Take(fd); });
  const int client = Connect((*listener)->port(), "127.0.0.2");
  ASSERT_TRUE(taken.Wait(1));
  const int fd = taken.fds()[0];
  ASSERT_EQ(table.Admit(fd, "127.0.0.2", clock.Next()), Outcome::kAdmitted);
  sockaddr_in from{};
  socklen_t size = sizeof(from);
  ASSERT_EQ(getsockname(client, reinterpret_cast<sockaddr*>(&from), &size), 0);
  const std::string peer = absl::StrCat("ipv4:127.0.0.2:", ntohs(from.sin_port));
  ASSERT_EQ(send(client, "unread", 6, 0), 6);

  EXPECT_FALSE(table.End(absl::StrCat(peer, "0"), clock.Next())) << "there is no such one";
  EXPECT_TRUE(table.End(peer, clock.Next()));
  EXPECT_TRUE(Closed(client));
  char bytes[8];
  EXPECT_LE(recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT), 0) << "what it sent is not read any more";
  const int another = NewSocket(), of_another = NewSocket();
  EXPECT_EQ(table.Admit(another, "127.0.0.2", clock.Next()), Outcome::kBarred);
  EXPECT_EQ(table.Admit(of_another, "127.0.0.3", clock.Next()), Outcome::kAdmitted);
  close(fd);
  const int same = NewSocket();  // perhaps of the number of the one that ended
  EXPECT_EQ(table.Admit(same, "127.0.0.3", clock.Next()), Outcome::kAdmitted);
  EXPECT_EQ(table.Admit(another, "127.0.0.2", clock.Next()), Outcome::kBarred) << "it has no connection left";
  close(same);
  const auto later = clock.Next() + absl::ToChronoMilliseconds(kBarredAfterCalls);
  EXPECT_EQ(table.Admit(another, "127.0.0.2", later), Outcome::kAdmitted);
  for (const int open : {client, another, of_another}) close(open);
}

TEST(ConnectionTable, KnowsPeersOfIpv6ByTheNamesThatGrpcGivesThem) {
  SweepClock clock;
  if (!HasIpv6()) GTEST_SKIP() << "this machine has no IPv6";
  const auto listener = Listener::Bind("[::1]:0", {.all_max = 4, .of_machine_max = 4});
  ASSERT_TRUE(listener.ok()) << listener.status();
  Taken taken;
  (*listener)->Run([&](int fd) { taken.Take(fd); });
  const int client = ConnectOver6((*listener)->port());
  ASSERT_GE(client, 0);
  ASSERT_TRUE(taken.Wait(1));
  const int fd = taken.fds()[0];
  ConnectionTable table({.all_max = 4, .of_machine_max = 4});
  ASSERT_EQ(table.Admit(fd, "::1", clock.Next()), Outcome::kAdmitted);
  const std::string peer = NameOf6(client);
  ASSERT_EQ(send(client, "six by", 6, 0), 6);
  char bytes[8];
  ASSERT_EQ(recv(fd, bytes, 6, MSG_WAITALL), 6);
  EXPECT_EQ(table.BytesRead(), (std::unordered_map<std::string, uint64_t>{{peer, 6}}));
  EXPECT_TRUE(table.End(peer, clock.Next()));
  EXPECT_TRUE(Closed(client));
  EXPECT_EQ(table.Admit(fd, "::1", clock.Next()), Outcome::kBarred);
  close(client);
}

TEST(ConnectionTable, WhoIsEndedAgainAndAgainWaitsLonger) {
  SweepClock clock;
  ConnectionTable table({.all_max = 64, .of_machine_max = 64});
  const auto listener = Listener::Bind("127.0.0.1:0", {.all_max = 64, .of_machine_max = 64});
  ASSERT_TRUE(listener.ok()) << listener.status();
  Taken taken;
  (*listener)->Run([&](int fd) { taken.Take(fd); });
  auto now = clock.Next();
  size_t times = 0;
  // Two connections are ended at once: they count as one time.
  const auto bar_again = [&] {
    std::vector<std::string> peers;
    std::vector<int> clients;
    for (int i = 0; i < 2; ++i) {
      clients.push_back(Connect((*listener)->port(), "127.0.0.2"));
      EXPECT_TRUE(taken.Wait(++times));
      EXPECT_EQ(table.Admit(taken.fds().back(), "127.0.0.2", now), Outcome::kAdmitted);
      sockaddr_in from{};
      socklen_t size = sizeof(from);
      EXPECT_EQ(getsockname(clients.back(), reinterpret_cast<sockaddr*>(&from), &size), 0);
      peers.push_back(absl::StrCat("ipv4:127.0.0.2:", ntohs(from.sin_port)));
    }
    for (const std::string& peer : peers) EXPECT_TRUE(table.End(peer, now));
    for (const int client : clients) close(client);
    const auto ended = now;
    const int next = NewSocket();
    while (table.Admit(next, "127.0.0.2", now) == Outcome::kBarred) now += std::chrono::milliseconds(50);
    close(next);
    return absl::FromChrono(now - ended);
  };
  for (absl::Duration wanted = kBarredAfterCalls; wanted <= kBarredAfterCallsMax; wanted *= 2)
    EXPECT_EQ(bar_again(), wanted);
  EXPECT_EQ(bar_again(), kBarredAfterCallsMax);
  now += absl::ToChronoMilliseconds(kBarsForgottenAfter);
  EXPECT_EQ(bar_again(), kBarredAfterCalls);
}

TEST(ConnectionTable, AMachineThatBeginsThemWithoutEndIsSlowedDown) {
  SweepClock clock;
  ConnectionTable table({.all_max = size_t{1} << 20, .of_machine_max = size_t{1} << 19});
  int admitted = 0;
  const auto begin = [&](const char* machine) {
    const int fd = NewSocket();
    const Outcome outcome = table.Admit(fd, machine, clock.Now());
    close(fd);
    admitted += outcome == Outcome::kAdmitted;
    return outcome;
  };
  while (begin("a") == Outcome::kAdmitted) {
  }
  EXPECT_EQ(admitted, kConnectionsAtOnceMax);
  EXPECT_EQ(begin("a"), Outcome::kTooFast);
  EXPECT_EQ(begin("b"), Outcome::kAdmitted) << "another machine";
  admitted = 0;
  const auto until = clock.Now() + std::chrono::seconds(2);
  while (clock.Next() <= until) {
    for (int i = 0; i < 50; ++i) begin("a");
  }
  EXPECT_NEAR(admitted, 2 * kConnectionsPerSecondMax, 5);
}

// Many machines that come once are forgotten, one that was too fast is not.
TEST(ConnectionTable, WhoIsTooFastStaysSoAmongManyOthers) {
  SweepClock clock;
  ConnectionTable table({.all_max = size_t{1} << 20, .of_machine_max = size_t{1} << 19});
  const int fd = NewSocket();
  while (table.Admit(fd, "a", clock.Now()) == Outcome::kAdmitted) {
  }
  for (int i = 0; i < 5000; ++i) {
    if (i % 100 == 0) clock.Next();
    EXPECT_EQ(table.Admit(fd, absl::StrCat("b", i), clock.Now()), Outcome::kAdmitted);
  }
  int admitted = 0;
  while (table.Admit(fd, "a", clock.Now()) == Outcome::kAdmitted) ++admitted;
  EXPECT_LE(admitted, kConnectionsPerSecondMax + 1) << "one second has passed";
  close(fd);
}

TEST(ConnectionTable, LeavesHalfOfTheDescriptorsAndHalfOfTheConnections) {
  EXPECT_EQ(ConnectionLimitsOf(1024).all_max, 512u);
  EXPECT_EQ(ConnectionLimitsOf(1024).of_machine_max, 256u);
  EXPECT_EQ(ConnectionLimitsOf(1 << 20).all_max, kConnectionsMax);
  EXPECT_EQ(ConnectionLimitsOf(1 << 20).of_machine_max, kConnectionsOfMachineMax);
}

}  // namespace
}  // namespace cairn
