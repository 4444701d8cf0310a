// Goal: one machine's connections are bounded, and so are all; closed ones make room, also when their descriptors are
// used again; a connection that is ended is gone with what it sent; a listener that ran out of descriptors goes on once
// there are some; after Stop nothing is taken.
#include "common/rpc/listener.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/call_watch.h"
#include "common/rpc/connection_table.h"
#include "common/rpc/limits.h"
#include "common/rpc/server.h"

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

int NewSocket() { return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); }

// Over IPv6; -1: error.
int ConnectOver6(int port) {
  const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  sockaddr_in6 to{};
  to.sin6_family = AF_INET6;
  to.sin6_addr = in6addr_loopback;
  to.sin6_port = htons(static_cast<uint16_t>(port));
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0) return fd;
  close(fd);
  return -1;
}

// "ipv6:[::1]:4711" of the socket's own side.
std::string NameOf6(int fd) {
  sockaddr_in6 own{};
  socklen_t size = sizeof(own);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size), 0);
  return absl::StrCat("ipv6:[::1]:", ntohs(own.sin6_port));
}

// From `source`; -1: error.
int Connect(int port, const char* source = "127.0.0.1") {
  const int fd = NewSocket();
  if (fd < 0) return -1;
  sockaddr_in from{}, to{};
  from.sin_family = to.sin_family = AF_INET;
  inet_pton(AF_INET, source, &from.sin_addr);
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  to.sin_port = htons(static_cast<uint16_t>(port));
  if (bind(fd, reinterpret_cast<sockaddr*>(&from), sizeof(from)) == 0 &&
      connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0) {
    return fd;
  }
  close(fd);
  return -1;
}

// Whether the other side closes it within 10 s.
bool Closed(int fd) {
  pollfd ready = {fd, POLLIN, 0};
  char byte = 0;
  return poll(&ready, 1, 10'000) == 1 && recv(fd, &byte, 1, 0) <= 0;
}

class Taken {
 public:
  ~Taken() { CloseAll(); }
  void Take(int fd) {
    absl::MutexLock lock(&mutex_);
    fds_.push_back(fd);
  }
  bool Wait(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [&] {
      mutex_.AssertHeld();
      return fds_.size() >= count;
    };
    return mutex_.AwaitWithTimeout(absl::Condition(&enough), absl::Seconds(20));
  }
  std::vector<int> fds() {
    absl::MutexLock lock(&mutex_);
    return fds_;
  }
  size_t CloseAll() {
    absl::MutexLock lock(&mutex_);
    for (const int fd : fds_) close(fd);
    const size_t count = fds_.size();
    fds_.clear();
    return count;
  }

 private:
  absl::Mutex mutex_;
  std::vector<int> fds_ ABSL_GUARDED_BY(mutex_);
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
  const auto listener = Listener::Bind("[::1]:0", {.all_max = 4, .of_machine_max = 4});
  if (!listener.ok()) GTEST_SKIP() << "no IPv6 here: " << listener.status();
  Taken taken;
  (*listener)->Run([&](int fd) { taken.Take(fd); });
  const int client = ConnectOver6((*listener)->port());
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

// The other half: a server's own counters.
TEST(GrpcCounters, NameAPeerOfIpv6AsTheTableDoes) {
  auto server = RpcServer::Start({.listen = "[::1]:0"}, {});
  if (!server.ok()) GTEST_SKIP() << "no IPv6 here: " << server.status();
  const int client = ConnectOver6((*server)->port());
  ASSERT_GE(client, 0);
  // The preface of HTTP/2 and SETTINGS: the server's own come when it knows the connection.
  const std::string hello =
      absl::StrCat("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", std::string(3, '\0'), "\x04", std::string(5, '\0'));
  ASSERT_EQ(send(client, hello.data(), hello.size(), 0), static_cast<ssize_t>(hello.size()));
  pollfd ready = {client, POLLIN, 0};
  ASSERT_EQ(poll(&ready, 1, 10'000), 1);
  GrpcCounters counters;
  std::vector<std::string> peers;
  for (const CallWatch::Connection& one : counters.Each()) peers.push_back(one.peer);
  EXPECT_EQ(peers, std::vector<std::string>{NameOf6(client)});
  close(client);
  (*server)->Stop(absl::ZeroDuration());
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
  const auto bar_again = [&] {
    const int client = Connect((*listener)->port(), "127.0.0.2");
    EXPECT_TRUE(taken.Wait(++times));
    const int fd = taken.fds().back();
    EXPECT_EQ(table.Admit(fd, "127.0.0.2", now), Outcome::kAdmitted);
    sockaddr_in from{};
    socklen_t size = sizeof(from);
    EXPECT_EQ(getsockname(client, reinterpret_cast<sockaddr*>(&from), &size), 0);
    EXPECT_TRUE(table.End(absl::StrCat("ipv4:127.0.0.2:", ntohs(from.sin_port)), now));
    close(client);
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

TEST(Listener, OneMachineDoesNotKeepOutAnother) {
  Taken taken;
  const auto listener = Listener::Bind("127.0.0.1:0", {.all_max = 8, .of_machine_max = 2});
  ASSERT_TRUE(listener.ok()) << listener.status();
  (*listener)->Run([&](int fd) { taken.Take(fd); });
  std::vector<int> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(Connect((*listener)->port(), "127.0.0.2"));
  EXPECT_TRUE(Closed(clients[2]));
  clients.push_back(Connect((*listener)->port(), "127.0.0.3"));
  EXPECT_TRUE(taken.Wait(3));
  for (const int fd : clients) close(fd);
}

TEST(Listener, GoesOnAfterItRanOutOfDescriptors) {
  Taken taken;
  const auto listener = Listener::Bind("127.0.0.1:0", {.all_max = 1000, .of_machine_max = 1000});
  ASSERT_TRUE(listener.ok()) << listener.status();
  (*listener)->Run([&](int fd) { taken.Take(fd); });
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  std::vector<int> clients;
  for (int i = 0; i < 20; ++i) clients.push_back(NewSocket());  // their descriptors are there before the limit
  const int used = NewSocket();
  close(used);
  const rlimit few{static_cast<rlim_t>(used) + 4, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>((*listener)->port()));
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  for (const int fd : clients) ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  ASSERT_TRUE(taken.Wait(4)) << "as many as there are descriptors";
  EXPECT_EQ(taken.CloseAll(), 4u);
  EXPECT_TRUE(taken.Wait(4)) << "the next ones";
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(taken.Wait(16)) << "all of them";
  for (const int fd : clients) close(fd);
}

TEST(Listener, AfterStopNothingListens) {
  Taken taken;
  const auto listener = Listener::Bind("localhost:0", {.all_max = 8, .of_machine_max = 8});
  ASSERT_TRUE(listener.ok()) << listener.status();
  const int port = (*listener)->port();
  EXPECT_TRUE(absl::IsUnavailable(Listener::Bind(absl::StrCat("127.0.0.1:", port), {}).status()));
  (*listener)->Run([&](int fd) { taken.Take(fd); });
  const int client = Connect(port);
  EXPECT_TRUE(taken.Wait(1));
  close(client);
  (*listener)->Stop();
  EXPECT_LT(Connect(port), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(Listener::Bind("nothing", {}).status()));
  EXPECT_TRUE(absl::IsUnavailable(Listener::Bind("192.0.2.1:0", {}).status())) << "not this host's";
}

}  // namespace
}  // namespace cairn
