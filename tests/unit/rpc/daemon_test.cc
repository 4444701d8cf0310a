// Goal: a daemon that is started with few descriptors takes as many as it may: at the limit a store cannot begin its
// next file. Started with closed standard streams it gives their numbers to no file. A key of its --config file that is
// no flag is refused, as on the command line.
#include "common/rpc/daemon.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "common/rpc/credentials.h"

namespace cairn {
namespace {

TEST(Daemon, TakesAsManyOpenFilesAsItMay) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{64, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const rlim_t many =
      std::min(before.rlim_max, rlim_t{1} << 20);  // a limit without an end can be above what the system grants
  EXPECT_EQ(RaiseOpenFilesLimit(), many);
  rlimit after{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(after.rlim_cur, many);
  EXPECT_EQ(RaiseOpenFilesLimit(), many) << "again";
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(Daemon, ClosedStandardStreamsAreNoFiles) {
  const pid_t pid = fork();
  if (pid == 0) {
    for (const int fd : {0, 1, 2}) close(fd);
    KeepStandardStreams();
    const int file = open("/dev/zero", O_RDONLY);
    _exit(file > 2 && write(2, "x", 1) < 0 ? 0 : 1);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// What other machines reach needs TLS, or somebody who says that it does not.
TEST(Daemon, ListensForOtherMachinesOnlyWhenToldTo) {
  for (const char* here : {"127.0.0.1:0", "127.1.2.3:7070", "localhost:0", "[::1]:0"})
    EXPECT_TRUE(CheckListen(here).ok()) << here << " " << CheckListen(here);
  for (const char* open : {"0.0.0.0:7070", "[::]:7070", "10.0.0.7:7070", "host-a:7070", "128.0.0.1:1",
                           "127.0.0.1.evil:1", "localhost.evil:1", "1270.0.0.1:1"}) {
    const absl::Status status = CheckListen(open);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << open;
    for (const char* part : {open, "--tls-dir", "deploy/make_certs.sh", "--insecure"})
      EXPECT_NE(std::string(status.message()).find(part), std::string::npos) << status;
  }
  const pid_t pid = fork();
  if (pid == 0) {
    AllowInsecure();
    _exit(CheckListen("0.0.0.0:7070").ok() ? 0 : 1);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(Daemon, AConfigFileHoldsFlagsAlone) {
  const std::string path = testing::TempDir() + "daemon_test.toml";
  const auto code = [&](const std::string& text) {
    std::ofstream(path) << text;
    CLI::App app;
    DaemonOptions options;
    std::string coordinator;
    AddDaemonFlags(&app, &options);
    AddCoordinatorFlag(&app, &coordinator);
    std::string program = "test", flag = "--config", file = path;
    char* argv[] = {program.data(), flag.data(), file.data()};
    return ParseFlags(app, 3, argv);
  };
  EXPECT_EQ(code("coordinator = \"host:1\"\nlog-level = \"debug\"\n"), std::nullopt);
  EXPECT_EQ(code("coordinator = \"host:1\"\nlog-levle = \"debug\"\n"), 2);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace cairn
