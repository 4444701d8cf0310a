// Goal: a client dials no socket of another user; addresses that cannot work are named; what gRPC logs of connections
// is said once in a while.
#include "common/rpc/channel.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "absl/time/clock.h"
#include "common/rpc/credentials.h"
#include "common/rpc/grpc_log.h"
#include "common/rpc/server.h"
#include "tests/unit/rpc/credentials_testing.h"

namespace cairn {
namespace {

using testing::HasSubstr;

bool BecomesReady(const std::shared_ptr<grpc::Channel>& channel) {
  auto state = channel->GetState(true);
  const auto end = absl::ToChronoTime(absl::Now() + kLong);
  while (state != GRPC_CHANNEL_READY && state != GRPC_CHANNEL_TRANSIENT_FAILURE &&
         channel->WaitForStateChange(state, end)) {
    state = channel->GetState(true);
  }
  return state == GRPC_CHANNEL_READY;
}

// So that a client's certificate is looked at again, now and then.
TEST(Connections, EndWithTheirAgeAndTheNextCallMakesAnotherOne) {
  const int code = ExitCode([] {
    RpcServerOptions options;
    options.connection_age = absl::Milliseconds(200);
    const auto server = RpcServer::Start(options, {});
    if (!server.ok()) return 1;
    const auto channel = CreateChannel((*server)->Address(""), {});
    if (!channel.ok()) return 2;
    for (int connection = 0; connection < 3; ++connection) {
      if (!BecomesReady(*channel)) return 3;
      if (!(*channel)->WaitForStateChange(GRPC_CHANNEL_READY, absl::ToChronoTime(absl::Now() + kLong))) return 4;
    }
    return 0;
  });
  EXPECT_EQ(code, 0);
}

// Another user of this machine listens at a ps' socket path, in a folder that both may write to.
TEST_F(Credentials, ASocketOfAnotherUserIsNotDialled) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be two users";
  const std::string host = Make("one", "host-a"), folder = dir_ + "/shared", socket = folder + "/ps.sock";
  std::filesystem::create_directory(folder);
  std::filesystem::permissions(folder, std::filesystem::perms::all);
  std::filesystem::permissions(dir_, std::filesystem::perms::all);
  int listening[2], done[2];
  ASSERT_EQ(pipe(listening) + pipe(done), 0);
  for (const uid_t user : {uid_t{0}, uid_t{4242}}) {
    const pid_t other = fork();
    if (other == 0) {
      if (setuid(user) != 0) _exit(1);
      RpcServerOptions options;
      options.unix_socket = socket;
      const auto server = RpcServer::Start(options, {});
      char byte = server.ok() ? 'y' : 'n';
      if (write(listening[1], &byte, 1) != 1 || read(done[0], &byte, 1) != 1) _exit(2);
      _exit(0);
    }
    char byte = 0;
    ASSERT_EQ(read(listening[0], &byte, 1), 1);
    EXPECT_EQ(byte, 'y');
    for (const bool tls : {false, true}) {
      const int code = ExitCode([&] {
        if (tls && !UseTls(host).ok()) return 1;
        const auto channel = CreateChannel("127.0.0.1:1,unix:" + socket, {});  // nobody listens on the port
        return channel.ok() && BecomesReady(*channel) ? 2 : 3;
      });
      EXPECT_EQ(code, user == 0 || !tls ? 2 : 3) << "user " << user << ", TLS " << tls;
    }
    ASSERT_EQ(write(done[1], &byte, 1), 1);
    int status = -1;
    waitpid(other, &status, 0);
    std::filesystem::remove(socket);
  }
}

TEST(Addresses, WhatIsWrongWithThemIsSaid) {
  const auto error = [](const std::string& address) { return std::string(ParseAddress(address).status().message()); };
  for (const char* good : {"host:1", "[::1]:7070", "10.0.0.1:0", "host:65535,unix:/a"})
    EXPECT_EQ(error(good), "") << good;
  EXPECT_THAT(error("::1:7070"), HasSubstr("brackets"));
  EXPECT_THAT(error("host:65536"), HasSubstr("the port is a number from 0 to 65535"));
  EXPECT_THAT(error("host:http"), HasSubstr("the port is a number"));
  EXPECT_THAT(error("host"), HasSubstr("\"host:port\" is expected"));
  EXPECT_THAT(error("host:1,/a"), HasSubstr("unix:/path"));
}

TEST(TlsHint, IsGivenOnlyWhereSomebodyAnswered) {
  EXPECT_THAT(TlsHint("Socket closed"), HasSubstr("--tls-dir"));
  for (const char* nobody :
       {"connection refused", "No route to host", "Domain name not found", "Network is unreachable"}) {
    EXPECT_EQ(TlsHint(nobody), "") << nobody;
  }
}

TEST(GrpcLog, APlaceSpeaksOnceInAWhileAndTheOthersAreCounted) {
  GrpcLogGate gate;
  absl::Time now = absl::FromUnixSeconds(1'000'000);
  EXPECT_EQ(gate.Pass("a.cc:1", "handshake failed", now), "handshake failed (a.cc:1)");
  EXPECT_EQ(gate.Pass("/gRPC/src/a.cc:2", "invalid key", now), "invalid key (a.cc:2)") << "where in gRPC, to find it";
  for (int i = 0; i < 299; ++i)
    EXPECT_EQ(gate.Pass("a.cc:1", "handshake failed", now += absl::Milliseconds(100)), std::nullopt);
  EXPECT_EQ(gate.Pass("a.cc:1", "handshake failed", now += absl::Milliseconds(100)),
            "handshake failed (a.cc:1, 299 times more in the 30s before)");
  EXPECT_EQ(gate.Pass("/gRPC/src/a.cc:2", "invalid key", now), "invalid key (a.cc:2)");
  EXPECT_EQ(gate.Pass("a.cc:1", "handshake failed", now - absl::Hours(1)), "handshake failed (a.cc:1)")
      << "the clock was set back";
}

}  // namespace
}  // namespace cairn
