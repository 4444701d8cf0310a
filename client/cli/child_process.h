// ChildProcess: a daemon as a child process that cannot outlive its parent.
//
// Thread rule: use it from the main thread only: the kernel kills a child when the *thread* that started it
// ends. Invariants:
//   1. A child dies with its parent, whatever kills the parent (PR_SET_PDEATHSIG).
//   2. A child has its own process group: the terminal's Ctrl-C
//      reaches the parent only, which stops its children in order.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "common/base/status.h"

namespace cairn {

class ChildProcess {
 public:
  // argv[0] is the program's path. stdout and stderr are appended to log_file (empty: inherited from this process);
  // stdin is empty.
  // Errors: the log or the program cannot be opened; the message names it.
  static absl::StatusOr<ChildProcess> Start(const std::vector<std::string>& argv, const std::string& log_file);

  ChildProcess() = default;  // no process
  ChildProcess(ChildProcess&& other) noexcept { *this = std::move(other); }
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();  // kills it and waits

  bool running() const { return pid_ > 0; }
  pid_t pid() const { return pid_; }
  void Signal(int signal);
  // Does not block. True once the process has ended; then how() says how.
  bool Ended();
  const std::string& how() const { return how_; }  // "exit code 1", "signal 9 (Killed)"
  int exit_code() const { return exit_code_; }     // -1: killed by a signal

 private:
  pid_t pid_ = 0;
  std::string how_;
  int exit_code_ = -1;
};

// The last lines of a log, at most `lines`, for an error message.
std::string TailOfFile(const std::string& path, int lines);

}  // namespace cairn
