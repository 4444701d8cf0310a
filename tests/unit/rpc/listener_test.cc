// Goal: one machine does not keep out another; a listener that ran out of descriptors goes on once there are some;
// after Stop nothing is taken; gRPC's counters name a peer as the table of connections does.
#include "common/rpc/listener.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/call_watch.h"
#include "common/rpc/server.h"
#include "tests/unit/rpc/sockets.h"

namespace cairn {
namespace {

// The other half: a server's own counters.
TEST(GrpcCounters, NameAPeerOfIpv6AsTheTableDoes) {
  if (!HasIpv6()) GTEST_SKIP() << "this machine has no IPv6";
  auto server = RpcServer::Start({.listen = "[::1]:0"}, {});
  ASSERT_TRUE(server.ok()) << server.status();
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
