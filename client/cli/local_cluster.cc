#include "client/cli/local_cluster.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/limits.h"
#include "common/rpc/credentials.h"

namespace cairn {
namespace {

constexpr absl::Duration kBackoffMin = absl::Milliseconds(200);
// A daemon that ran this long is restarted without delay the next time.
constexpr absl::Duration kHealthyAfter = absl::Seconds(30);
constexpr absl::Duration kStopPatience = absl::Seconds(8);
constexpr int kLogLinesShown = 12;

struct HeldPort {
  int port = 0;
  FileDescriptor held;
};

// Takes a port of the loopback address: `wanted`, or any free one for 0. As long as it is held the system gives the
// port to no other process that asks for any, before the daemon listens and while it is started again; the daemon binds
// it too, since both sockets have SO_REUSEADDR and this one does not listen. For the same reason a `wanted` port is not
// safe from a second `cairn up` that wants it too before the daemon listens: both hold it, and the daemon that comes
// second cannot listen, ends and is told of. flag: the flag that set it.
absl::StatusOr<HeldPort> HoldPort(const char* flag, int wanted) {
  HeldPort out{wanted, FileDescriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))};
  const int fd = out.held.get();
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot make a socket");
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(wanted));
  socklen_t size = sizeof(address);
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0) {
    out.port = ntohs(address.sin_port);
    return out;
  }
  const char* const why = std::strerror(errno);
  if (wanted == 0) return absl::UnavailableError(absl::StrFormat("%s 0: 127.0.0.1 has no free port: %s", flag, why));
  return absl::UnavailableError(absl::StrFormat(
      "cannot listen on 127.0.0.1:%d: %s; does another cluster run there? %s 0 takes a free port", wanted, why, flag));
}

}  // namespace

absl::Status LocalClusterOptions::Validate() const {
  const auto in_range = [](int value, int low, int high, const char* flag) {
    if (value >= low && value <= high) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrFormat("%s %d: must be %d to %d", flag, value, low, high));
  };
  CAIRN_RETURN_IF_ERROR(in_range(ps, 1, kLocalDaemonsMax, "--ps"));
  CAIRN_RETURN_IF_ERROR(in_range(workers, 1, kLocalDaemonsMax, "--workers"));
  CAIRN_RETURN_IF_ERROR(in_range(evaluators, 0, kLocalDaemonsMax, "--evaluators"));
  CAIRN_RETURN_IF_ERROR(in_range(port, 0, 65535, "--port"));
  CAIRN_RETURN_IF_ERROR(in_range(http, -1, 65535, "--http"));
  CAIRN_RETURN_IF_ERROR(in_range(slots, 0, 1024, "--slots"));
  if (port > 0 && port == http) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--port %d and --http %d: the coordinator and its pages need a port each; --http 0 takes a free one", port,
        http));
  }
  if (dir.empty()) return absl::InvalidArgumentError("--dir: is empty");
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::Start(const LocalClusterOptions& options, Tell tell) {
  CAIRN_RETURN_IF_ERROR(options.Validate());
  LocalClusterOptions resolved = options;
  std::error_code error;
  resolved.dir = std::filesystem::absolute(options.dir, error).lexically_normal().string();
  std::filesystem::create_directories(resolved.dir + "/logs", error);
  if (error)
    return absl::PermissionDeniedError(absl::StrFormat("--dir %s: cannot make it: %s", resolved.dir, error.message()));
  if (resolved.slots == 0 && !absl::StartsWith(resolved.device, "gpu")) {  // a GPU worker chooses its own default
    resolved.slots = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / resolved.workers);
  }
  std::unique_ptr<LocalCluster> cluster(new LocalCluster(resolved, std::move(tell)));
  CAIRN_RETURN_IF_ERROR(cluster->Lock());
  if (resolved.http > 0) {  // before the system chooses the other port
    CAIRN_ASSIGN_OR_RETURN(cluster->http_, cluster->Hold("--http", resolved.http));
  }
  CAIRN_ASSIGN_OR_RETURN(cluster->address_, cluster->Hold("--port", resolved.port));
  if (resolved.http == 0) {
    CAIRN_ASSIGN_OR_RETURN(cluster->http_, cluster->Hold("--http", resolved.http));
  }
  cluster->Describe();
  for (Daemon& daemon : cluster->daemons_) CAIRN_RETURN_IF_ERROR(cluster->StartDaemon(daemon, cluster->clock_.Now()));
  return cluster;
}

LocalCluster::~LocalCluster() {
  daemons_.clear();  // their destructors kill the processes
  if (lock_ >= 0) close(lock_);
}

absl::Status LocalCluster::Lock() {
  const std::string path = options_.dir + "/lock";
  lock_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  if (flock(lock_, LOCK_EX | LOCK_NB) == 0) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrFormat("another `cairn up` uses %s; stop it, or give this one a --dir of its own", options_.dir));
}

absl::StatusOr<std::string> LocalCluster::Hold(const char* flag, int port) {
  CAIRN_ASSIGN_OR_RETURN(HeldPort held, HoldPort(flag, port));
  held_.push_back(std::move(held.held));
  return absl::StrCat("127.0.0.1:", held.port);
}

void LocalCluster::Describe() {
  const auto add = [this](const std::string& name, const std::string& program, std::vector<std::string> flags) {
    Daemon daemon;
    daemon.name = name;
    daemon.log = absl::StrCat(options_.dir, "/logs/", name, ".log");
    daemon.argv = {options_.bin_dir + "/" + program, "--log-level", options_.log_level};
    daemon.argv.insert(daemon.argv.end(), flags.begin(), flags.end());
    daemon.backoff = kBackoffMin;
    daemons_.push_back(std::move(daemon));
  };
  const auto data = [this](const std::string& name) { return options_.dir + "/" + name; };
  const Caller& own = OwnCaller();
  const std::string of_worker = NodeNamePrefix(CallerRole::kWorker, own);
  std::vector<std::string> of_coordinator = {"--listen", address_, "--data-dir", data("coordinator")};
  if (!http_.empty()) of_coordinator.insert(of_coordinator.end(), {"--http", http_});
  if (!http_.empty() && options_.http_read_only) of_coordinator.push_back("--http-read-only");
  add("coordinator", "cairn-coordinator", std::move(of_coordinator));
  for (int i = 0; i < options_.ps; ++i) {
    const std::string name = absl::StrCat("ps-", i);
    add(name, "cairn-ps",
        {"--coordinator", address_, "--listen", "127.0.0.1:0", "--name", NodeNamePrefix(CallerRole::kPs, own) + name,
         "--data-dir", data(name)});
  }
  for (int i = 0; i < options_.workers; ++i) {
    const std::string name = absl::StrCat("worker-", i);
    std::vector<std::string> flags = {"--coordinator", address_,        "--name", of_worker + name,
                                      "--device",      options_.device, "--root", "/"};  // it is this user's alone
    if (options_.slots > 0) flags.insert(flags.end(), {"--slots", absl::StrCat(options_.slots)});
    add(name, "cairn-worker", std::move(flags));
  }
  for (int i = 0; i < options_.evaluators; ++i) {
    const std::string name = absl::StrCat("evaluator-", i);
    add(name, "cairn-worker",
        {"--role", "evaluator", "--coordinator", address_, "--name", of_worker + name, "--slots", "1", "--root", "/"});
  }
}

absl::Status LocalCluster::StartDaemon(Daemon& daemon, absl::Time now) {
  CAIRN_ASSIGN_OR_RETURN(daemon.process, ChildProcess::Start(daemon.argv, daemon.log));
  daemon.started = now;
  daemon.start_again = absl::InfiniteFuture();
  return absl::OkStatus();
}

void LocalCluster::Tick(absl::Time now) {
  for (Daemon& daemon : daemons_) {
    if (daemon.process.running() && daemon.process.Ended()) {
      std::string line = absl::StrFormat("%s ended: %s (log: %s)", daemon.name, daemon.process.how(), daemon.log);
      if (options_.restart) {
        if (now - daemon.started >= kHealthyAfter) daemon.backoff = kBackoffMin;
        daemon.start_again = now + daemon.backoff;
        absl::StrAppend(&line, "; starting it again in ", absl::FormatDuration(daemon.backoff));
        daemon.backoff = std::min(daemon.backoff * 2, kRestartBackoffMax);
      }
      tell_(line);
    } else if (!daemon.process.running() && now >= daemon.start_again) {
      const absl::Status status = StartDaemon(daemon, now);
      tell_(status.ok() ? absl::StrFormat("%s started again, pid %d", daemon.name, daemon.process.pid())
                        : absl::StrFormat("%s cannot be started again: %s", daemon.name, status.message()));
      if (!status.ok()) daemon.start_again = now + kRestartBackoffMax;
    }
  }
}

absl::Status LocalCluster::AllRunning() {
  for (Daemon& daemon : daemons_) {
    if (!daemon.process.Ended()) continue;
    const std::string tail = TailOfFile(daemon.log, kLogLinesShown);
    return absl::AbortedError(absl::StrFormat("%s ended right after its start: %s. %s", daemon.name,
                                              daemon.process.how(),
                                              tail.empty() ? absl::StrCat(daemon.log, " is empty; is its disk full?")
                                                           : absl::StrCat("The end of ", daemon.log, ":\n", tail)));
  }
  return absl::OkStatus();
}

void LocalCluster::StopGroup(const std::string& prefix, absl::Duration patience, const std::function<bool()>& hurry) {
  const auto in_group = [&](const Daemon& d) { return absl::StartsWith(d.name, prefix); };
  for (Daemon& d : daemons_) {
    if (in_group(d)) d.process.Signal(SIGTERM);
  }
  const absl::Time end = clock_.Now() + patience;
  bool left = true;
  while (left && clock_.Now() < end && !hurry()) {
    left = false;
    for (Daemon& d : daemons_) left |= in_group(d) && !d.process.Ended();
    if (left) absl::SleepFor(absl::Milliseconds(5));
  }
  for (Daemon& d : daemons_) {
    if (!in_group(d) || d.process.Ended()) continue;
    tell_(absl::StrFormat("%s did not stop in time; killing it", d.name));
    d.process = ChildProcess();  // kills the old process and waits for it
  }
}

void LocalCluster::Stop(const std::function<bool()>& hurry) {
  StopGroup("evaluator-", kStopPatience, hurry);
  StopGroup("worker-", kStopPatience, hurry);
  StopGroup("ps-", kStopPatience, hurry);
  StopGroup("coordinator", kStopPatience, hurry);
}

}  // namespace cairn
