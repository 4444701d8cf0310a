// LocalCluster: starts, supervises and stops the daemons of `cairn up` as child processes.
//
// One thread (the main one). Time is passed in, so that back-off can be tested without waiting. Invariants:
//   1. Names, ports and directories stay the same for the life of the cluster: a restarted daemon finds its own data,
//      and no program that takes any free port gets one of the coordinator's, also before it listens.
//   2. Daemons stop in the order workers, ps, coordinator; one that does not stop in time is killed. None is left.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/cli/child_process.h"
#include "common/base/clock.h"
#include "common/base/files.h"
#include "common/base/status.h"

namespace cairn {

struct LocalClusterOptions {
  int ps = 2;                   // 1..64
  int workers = 2;              // 1..64
  int evaluators = 0;           // 0..64
  int port = 7070;              // of the coordinator; 0: chosen by the system
  int http = -1;                // port of the coordinator's pages; 0: chosen by the system; -1: none
  bool http_read_only = false;  // nobody changes anything by those pages
  int slots = 0;                // of each worker; 0: hardware threads / workers, at least 1
  std::string device = "auto";  // of the workers: cairn-worker's --device
  bool restart = true;          // restart daemons that exit
  std::string dir;              // data in DIR/NAME, logs in DIR/logs/NAME.log
  std::string bin_dir;          // where the daemons' programs are
  std::string log_level = "info";

  absl::Status Validate() const;
};

class LocalCluster {
 public:
  // Receives messages to the user, one line each.
  using Tell = std::function<void(const std::string&)>;

  // Locks the directory, takes the ports, and starts all daemons. Errors name the obstacle.
  static absl::StatusOr<std::unique_ptr<LocalCluster>> Start(const LocalClusterOptions& options, Tell tell);
  ~LocalCluster();  // kills what Stop did not stop

  const std::string& address() const { return address_; }
  const std::string& http() const { return http_; }  // "127.0.0.1:PORT" of the coordinator's pages, or empty
  const std::string& dir() const { return options_.dir; }
  int nodes() const { return options_.ps + options_.workers + options_.evaluators; }

  // Notices daemons that exited, and restarts those whose back-off is over. `now` is of clock(), which is steady when
  // the machine's clock is changed.
  void Tick(absl::Time now);
  Clock& clock() { return clock_; }
  // OK, or why a daemon exited, with the end of its log. For the time until the cluster is first complete.
  absl::Status AllRunning();

  // Stops the groups in order, each within its time. Polls `hurry` meanwhile: true kills at once.
  void Stop(const std::function<bool()>& hurry);

 private:
  struct Daemon {
    std::string name;
    std::vector<std::string> argv;
    std::string log;
    ChildProcess process;
    absl::Time started;
    absl::Time start_again = absl::InfiniteFuture();
    absl::Duration backoff;
  };

  LocalCluster(const LocalClusterOptions& options, Tell tell) : options_(options), tell_(std::move(tell)) {}
  absl::Status Lock();
  // Takes a port of the coordinator, 0: any, and gives its address.
  absl::StatusOr<std::string> Hold(const char* flag, int port);
  void Describe();  // fills daemons_: the coordinator, ps, workers
  absl::Status StartDaemon(Daemon& daemon, absl::Time now);
  void StopGroup(const std::string& prefix, absl::Duration patience, const std::function<bool()>& hurry);

  const LocalClusterOptions options_;
  const Tell tell_;
  RealClock clock_;
  std::string address_;
  std::string http_;
  int lock_ = -1;
  std::vector<FileDescriptor> held_;  // sockets that have the coordinator's ports
  std::vector<Daemon> daemons_;
};

}  // namespace cairn
