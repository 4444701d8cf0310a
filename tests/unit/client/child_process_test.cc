// Goal: a child is started with its log, its end is reported as what it was, it dies with its handle and with its
// parent; the options of a local cluster are checked before anything is started, and its ports are its own.
#include "client/cli/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "client/cli/local_cluster.h"
#include "common/base/files.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(30);

template <typename Condition>
bool Until(Condition condition) {
  const absl::Time end = absl::Now() + kPatience;
  while (!condition()) {
    if (absl::Now() > end) return false;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

class ChildProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "cairn-child-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string log() const { return dir_ + "/log"; }
  absl::StatusOr<ChildProcess> Shell(const std::string& script) const {
    return ChildProcess::Start({"/bin/sh", "-c", script}, log());
  }
  std::string dir_;
};

TEST_F(ChildProcessTest, OutputGoesToTheLogAndTheEndIsTold) {
  auto child = Shell("echo out; echo err >&2; exit 3");
  ASSERT_TRUE(child.ok()) << child.status();
  ASSERT_TRUE(Until([&] { return child->Ended(); }));
  EXPECT_EQ(child->how(), "exit code 3");
  EXPECT_EQ(child->exit_code(), 3);
  EXPECT_FALSE(child->running());
  EXPECT_EQ(TailOfFile(log(), 10), "out\nerr");
  EXPECT_EQ(TailOfFile(log(), 1), "err");
  EXPECT_EQ(TailOfFile(dir_ + "/absent", 1), "");

  auto killed = Shell("kill -9 $$");
  ASSERT_TRUE(killed.ok());
  ASSERT_TRUE(Until([&] { return killed->Ended(); }));
  EXPECT_EQ(killed->how(), "signal 9 (Killed)");
  EXPECT_EQ(killed->exit_code(), -1);
}

TEST_F(ChildProcessTest, SignalsReachItAndItsHandleKillsIt) {
  auto child = Shell("sleep 1000");
  ASSERT_TRUE(child.ok());
  EXPECT_FALSE(child->Ended());
  child->Signal(SIGTERM);
  ASSERT_TRUE(Until([&] { return child->Ended(); }));
  EXPECT_THAT(child->how(), HasSubstr("signal 15"));

  pid_t pid = 0;
  {
    auto other = Shell("sleep 1000");
    ASSERT_TRUE(other.ok());
    pid = other->pid();
  }
  EXPECT_NE(kill(pid, 0), 0);
}

TEST_F(ChildProcessTest, DiesWithItsParent) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    auto child = Shell("sleep 1000");
    const pid_t pid = child.ok() ? child->pid() : 0;
    const ssize_t n = write(pipe_ends[1], &pid, sizeof(pid));
    kill(getpid(), n == sizeof(pid) ? SIGKILL : SIGTERM);
  }
  pid_t pid = 0;
  ASSERT_EQ(read(pipe_ends[0], &pid, sizeof(pid)), static_cast<ssize_t>(sizeof(pid)));
  int status = 0;
  ASSERT_EQ(waitpid(parent, &status, 0), parent);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  ASSERT_GT(pid, 0);
  // Gone, or a zombie that waits for init.
  EXPECT_TRUE(Until([&] {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    return !std::getline(stat, text) || text.find(") Z ") != std::string::npos;
  }));
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST_F(ChildProcessTest, WhatCannotStartIsNamed) {
  const auto missing = ChildProcess::Start({dir_ + "/cairn-ps"}, log());
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(missing.status().message(), HasSubstr("cairn-ps"));
  EXPECT_THAT(ChildProcess::Start({"/bin/true"}, dir_ + "/no/such/log").status().message(), HasSubstr("no/such/log"));
}

LocalClusterOptions Options(const std::string& dir) {
  LocalClusterOptions options;
  options.dir = dir;
  options.bin_dir = dir + "/bin";
  options.port = 0;
  options.ps = 1;
  options.workers = 1;
  return options;
}

// Daemons that are shell scripts.
void MakeDaemons(const std::string& dir, const std::string& worker_script) {
  std::filesystem::create_directories(dir + "/bin");
  for (const char* name : {"cairn-coordinator", "cairn-ps", "cairn-worker"}) {
    const std::string path = dir + "/bin/" + name;
    std::ofstream(path) << "#!/bin/sh\n"
                        << (std::string(name) == "cairn-worker" ? worker_script : "exec sleep 1000") << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }
}

TEST_F(ChildProcessTest, ClusterRefusesWrongOptions) {
  const auto error = [&](auto change) {
    LocalClusterOptions options = Options(dir_);
    change(options);
    return std::string(LocalCluster::Start(options, [](const std::string&) {}).status().message());
  };
  EXPECT_THAT(error([](auto& o) { o.ps = 0; }), HasSubstr("--ps 0: must be 1 to 64"));
  EXPECT_THAT(error([](auto& o) { o.workers = 65; }), HasSubstr("--workers 65"));
  EXPECT_THAT(error([](auto& o) { o.port = 70000; }), HasSubstr("--port 70000"));
  EXPECT_THAT(error([](auto& o) { o.slots = -1; }), HasSubstr("--slots -1"));
  EXPECT_THAT(error([](auto& o) { o.port = o.http = 8000; }), HasSubstr("--port 8000 and --http 8000: "));
  EXPECT_THAT(error([](auto& o) { o.dir = "/proc/cairn"; }), HasSubstr("--dir /proc/cairn"));
  EXPECT_THAT(error([](auto&) {}), HasSubstr("cairn-coordinator"));  // no programs there
}

TEST_F(ChildProcessTest, ClusterStartsAgainWhatEndsAndStopsAll) {
  MakeDaemons(dir_, "exit 7");
  std::vector<std::string> told;
  auto cluster = LocalCluster::Start(Options(dir_), [&](const std::string& line) { told.push_back(line); });
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_THAT((*cluster)->address(), ::testing::StartsWith("127.0.0.1:"));

  EXPECT_THAT(LocalCluster::Start(Options(dir_), [](const std::string&) {}).status().message(),
              HasSubstr("another `cairn up`"));

  absl::Time now = absl::FromUnixSeconds(1);
  ASSERT_TRUE(Until([&] {
    (*cluster)->Tick(now);
    return !told.empty();
  }));
  EXPECT_THAT(told[0], HasSubstr("worker-0 ended: exit code 7"));
  EXPECT_THAT(told[0], HasSubstr("starting it again in 200ms"));
  (*cluster)->Tick(now + absl::Milliseconds(199));
  EXPECT_EQ(told.size(), 1u);
  (*cluster)->Tick(now + absl::Milliseconds(200));
  ASSERT_EQ(told.size(), 2u);
  EXPECT_THAT(told[1], HasSubstr("worker-0 started again"));
  ASSERT_TRUE(Until([&] {
    (*cluster)->Tick(now + absl::Milliseconds(201));
    return told.size() > 2;
  }));
  EXPECT_THAT(told[2], HasSubstr("in 400ms"));
  (*cluster)->Stop([] { return false; });
  EXPECT_EQ(told.size(), 3u);
  cluster->reset();
  EXPECT_TRUE(LocalCluster::Start(Options(dir_), [](const std::string&) {}).ok());  // the lock is free again
}

// A socket that listens at the address as a daemon does, with reuse, or only takes it.
absl::Status Take(const std::string& address, bool reuse, bool listens, FileDescriptor* out) {
  int port = 0;
  if (!absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port)) return absl::InternalError(address);
  *out = FileDescriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = reuse ? 1 : 0;
  setsockopt(out->get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  at.sin_port = htons(static_cast<uint16_t>(port));
  if (bind(out->get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)) != 0) return absl::ErrnoToStatus(errno, "");
  return listens && listen(out->get(), 1) != 0 ? absl::ErrnoToStatus(errno, "") : absl::OkStatus();
}

// Between the choice of a port and the daemon's listening another process may ask for one.
TEST_F(ChildProcessTest, ClusterHoldsItsPortsForItsDaemons) {
  MakeDaemons(dir_, "exec sleep 1000");
  LocalClusterOptions options = Options(dir_);
  options.http = 0;
  auto cluster = LocalCluster::Start(options, [](const std::string&) {});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const std::string address = (*cluster)->address(), http = (*cluster)->http();
  EXPECT_NE(address, http);
  FileDescriptor taken;
  for (const std::string& at : {http, address}) {
    EXPECT_FALSE(Take(at, /*reuse=*/false, /*listens=*/false, &taken).ok()) << at << " is free for others";
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(Take(at, true, true, &taken).ok()) << "a daemon, and the one after it";
  }
  options.dir = dir_ + "/other";
  EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &options.port));
  EXPECT_THAT(LocalCluster::Start(options, [](const std::string&) {}).status().message(),
              HasSubstr("cannot listen on " + address + ": Address already in use; does another cluster run there?"));
}

TEST_F(ChildProcessTest, StopKillsWhatDoesNotListen) {
  MakeDaemons(dir_, "trap '' TERM; while :; do sleep 1000; done");
  std::vector<std::string> told;
  auto cluster = LocalCluster::Start(Options(dir_), [&](const std::string& line) { told.push_back(line); });
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_TRUE((*cluster)->AllRunning().ok());
  (*cluster)->Stop([] { return true; });  // a second Ctrl-C
  EXPECT_THAT(told, ::testing::Contains(HasSubstr("worker-0 did not stop in time; killing it")));
  EXPECT_FALSE((*cluster)->AllRunning().ok());
}

TEST_F(ChildProcessTest, AnEarlyEndShowsTheLog) {
  MakeDaemons(dir_, "echo no such coordinator; exit 1");
  auto cluster = LocalCluster::Start(Options(dir_), [](const std::string&) {});
  ASSERT_TRUE(cluster.ok());
  absl::Status status;
  ASSERT_TRUE(Until([&] { return !(status = (*cluster)->AllRunning()).ok(); }));
  EXPECT_THAT(status.message(), HasSubstr("worker-0 ended right after its start: exit code 1"));
  EXPECT_THAT(status.message(), HasSubstr("no such coordinator"));
}

TEST_F(ChildProcessTest, AnEarlyEndWithoutAWordAsksForTheDisk) {
  MakeDaemons(dir_, "exit 1");
  auto cluster = LocalCluster::Start(Options(dir_), [](const std::string&) {});
  ASSERT_TRUE(cluster.ok());
  absl::Status status;
  ASSERT_TRUE(Until([&] { return !(status = (*cluster)->AllRunning()).ok(); }));
  EXPECT_THAT(status.message(), HasSubstr("worker-0.log is empty; is its disk full?"));
}

}  // namespace
}  // namespace cairn
