// cairn watch ID: shows progress until the job ends; Ctrl-C leaves the job running.
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "absl/strings/str_format.h"
#include "client/cli/colours.h"
#include "client/cli/commands.h"
#include "client/cli/job_end_watch.h"
#include "client/cli/progress.h"
#include "client/cli/watching.h"
#include "common/report/json.h"

namespace cairn {
namespace {

// The text that the signal handler prints. It is written before the handler is installed, since a handler may only make
// async-signal-safe calls.
char farewell[256];
size_t farewell_size = 0;

void OnInterrupt(int) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, farewell, farewell_size);
  _exit(kExitInterrupted);
}

void SayFarewellOnInterrupt(const std::string& job) {
  const std::string text = absl::StrFormat(
      "\nThe job keeps running. `cairn watch %s` shows it again, `cairn cancel %s` ends it.\n", job, job);
  farewell_size = std::min(text.size(), sizeof(farewell));
  std::memcpy(farewell, text.data(), farewell_size);
  struct sigaction action {};
  action.sa_handler = OnInterrupt;
  sigaction(SIGINT, &action, nullptr);
}

int TerminalWidth() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void Write(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace

int WatchToEnd(const Globals& globals, const JobRef& job) {
  SayFarewellOnInterrupt(job.id != 0 ? absl::StrFormat("%d", job.id) : job.name);
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  Progress progress({.terminal = terminal, .width = TerminalWidth(), .colours = ShowsColours()});
  v1::JobState last = v1::JOB_STATE_UNSPECIFIED;
  bool away = false;
  JobClient::WatchCallbacks callbacks;
  callbacks.on_status = [&](const v1::JobStatus& status) {
    last = status.state();
    away = false;
    progress.set_width(TerminalWidth());
    Write(globals.json ? JobJson(status) + "\n" : progress.Update(status));
    return true;
  };
  callbacks.on_interrupted = [&](const absl::Status& status) {
    if (!std::exchange(away, true) && !globals.json)
      Write(progress.Note(absl::StrFormat("%s; trying again", status.message())));
  };
  const absl::Status status = JobClient(globals.client).Watch(job, callbacks);
  signal(SIGINT, SIG_DFL);
  if (!status.ok()) return Fail(status);
  return ExitCodeOf(last);
}

int RunWatch(const Globals& globals, const std::string& name) {
  const auto ref = JobRef::Parse(name);
  if (!ref.ok()) return Fail(ref.status());
  return WatchToEnd(globals, *ref);
}

}  // namespace cairn
