#include "client/cli/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <fstream>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace cairn {
namespace {

// Runs between fork and exec: only async-signal-safe calls.
[[noreturn]] void BecomeProgram(char* const* argv, int log, int null, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // the parent died before prctl
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  dup2(null, STDIN_FILENO);
  if (log >= 0) {
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
  }
  execv(argv[0], argv);
  _exit(127);
}

}  // namespace

absl::StatusOr<ChildProcess> ChildProcess::Start(const std::vector<std::string>& argv, const std::string& log_file) {
  if (access(argv[0].c_str(), X_OK) != 0) {
    return absl::NotFoundError(
        absl::StrFormat("%s: %s; build or install it beside this program", argv[0], std::strerror(errno)));
  }
  const int log = log_file.empty() ? -1 : open(log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0 && !log_file.empty())
    return absl::ErrnoToStatus(errno, absl::StrFormat("cannot open the log %s", log_file));
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  std::vector<char*> pointers;
  for (const std::string& arg : argv) pointers.push_back(const_cast<char*>(arg.c_str()));
  pointers.push_back(nullptr);

  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) BecomeProgram(pointers.data(), log, null, parent);
  const int error = errno;
  if (log >= 0) close(log);
  if (null >= 0) close(null);
  if (pid < 0) return absl::ErrnoToStatus(error, absl::StrFormat("cannot start %s", argv[0]));
  ChildProcess child;
  child.pid_ = pid;
  return child;
}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(how_, other.how_);
  std::swap(exit_code_, other.exit_code_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (!running()) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void ChildProcess::Signal(int signal) {
  if (running()) kill(pid_, signal);
}

bool ChildProcess::Ended() {
  if (!running()) return true;
  int status = 0;
  const pid_t done = waitpid(pid_, &status, WNOHANG);
  if (done != pid_) return false;
  pid_ = 0;
  exit_code_ = WIFSIGNALED(status) ? -1 : WEXITSTATUS(status);
  how_ = WIFSIGNALED(status) ? absl::StrFormat("signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)))
                             : absl::StrFormat("exit code %d", WEXITSTATUS(status));
  return true;
}

std::string TailOfFile(const std::string& path, int lines) {
  std::ifstream in(path);
  std::deque<std::string> tail;
  for (std::string line; std::getline(in, line);) {
    tail.push_back(line);
    if (tail.size() > static_cast<size_t>(lines)) tail.pop_front();
  }
  return absl::StrJoin(tail, "\n");
}

}  // namespace cairn
