// A daemon as a child process that cannot outlive its parent.
//
// Thread rule: Start and everything else from the main thread: the kernel kills a child when the *thread* that started
// it ends. Invariants:
//   1. A child dies with its parent, whatever kills the parent (PR_SET_PDEATHSIG).
//   2. A child is in a process group of its own: the terminal's Ctrl-C
//      reaches the parent only, which stops its children in order.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "common/base/status.h"

namespace cairn {

class ChildProcess {
 public:
  // argv[0] is the program's path. stdout and stderr are appended to log_file (empty: this process'); stdin is
  // empty.
  // Errors: the log or the program cannot be opened (names it).
  static absl::StatusOr<ChildProcess> Start(const std::vector<std::string>& argv, const std::string& log_file);

  ChildProcess() = default;  // none
  ChildProcess(ChildProcess&& other) noexcept { *this = std::move(other); }
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();  // kills it and waits

  bool running() const { return pid_ > 0; }
  pid_t pid() const { return pid_; }
  void Signal(int signal);
  // Does not wait: true once it has ended; then how() says how.
  bool Ended();
  const std::string& how() const { return how_; }  // "exit code 1", "signal 9 (Killed)"
  int exit_code() const { return exit_code_; }     // -1: a signal ended it

 private:
  pid_t pid_ = 0;
  std::string how_;
  int exit_code_ = -1;
};

// The end of a log for an error message: at most `lines` lines.
std::string TailOfFile(const std::string& path, int lines);

}  // namespace cairn
