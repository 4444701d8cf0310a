// cairn top: a live view of nodes and jobs in a terminal.
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "client/cli/colours.h"
#include "client/cli/commands.h"
#include "client/cli/stop_signals.h"
#include "client/cli/top_screen.h"

namespace cairn {
namespace {

constexpr absl::Duration kLookAtKeys = absl::Milliseconds(100);
constexpr absl::Duration kSilent = absl::Seconds(3);

// A terminal's second screen, whose keys come one by one. What was on the first one is there again at the end.
class FullScreen {
 public:
  FullScreen() {
    has_keys_ = ::tcgetattr(STDIN_FILENO, &before_) == 0;
    if (has_keys_) {
      termios raw = before_;
      raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      raw.c_cc[VSUSP] = _POSIX_VDISABLE;  // the shell would be left on this screen
      ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    Write("\x1b[?1049h\x1b[?25l");
  }
  FullScreen(const FullScreen&) = delete;
  FullScreen& operator=(const FullScreen&) = delete;
  ~FullScreen() {
    Write("\x1b[?25h\x1b[?1049l");
    if (has_keys_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }

  // Each line over the one that was there, so that nothing flickers; nothing if they are the same.
  void Show(const std::vector<std::string>& lines) {
    std::string text = absl::StrCat("\x1b[H", absl::StrJoin(lines, "\x1b[K\n"), "\x1b[K\x1b[J");
    if (text != shown_) Write(text);
    shown_ = std::move(text);
  }
  static winsize Size() {
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) size = {24, 80, 0, 0};
    return size;
  }
  // Whether q was pressed.
  bool WantsToQuit() const {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    while (has_keys_ && ::poll(&input, 1, 0) == 1) {
      char key = 0;
      if (::read(STDIN_FILENO, &key, 1) != 1) return true;  // the terminal is gone
      if (key == 'q' || key == 'Q') return true;
    }
    return false;
  }

 private:
  static void Write(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  termios before_{};
  bool has_keys_ = false;
  std::string shown_;
};

absl::StatusOr<TopInput> Look(const JobClientOptions& options) {
  JobClient client(options);
  TopInput input;
  input.address = options.address;
  CAIRN_ASSIGN_OR_RETURN(input.nodes, client.ListNodes());
  CAIRN_ASSIGN_OR_RETURN(const v1::ListJobsResponse list, client.List());
  input.jobs.assign(list.jobs().begin(), list.jobs().end());
  input.now = absl::Now();
  return input;
}

// Looks again and again on a thread of its own, since a coordinator that hangs must not hold up the keys. What was seen
// before stays if it cannot be reached.
class Looks {
 public:
  Looks(TopInput first, absl::Duration every) : every_(every), input_(std::move(first)) {}
  // The thread goes on until the process ends.
  static std::shared_ptr<Looks> Start(const JobClientOptions& options, TopInput first, absl::Duration every) {
    auto looks = std::make_shared<Looks>(std::move(first), every);
    std::thread([looks, options] { looks->Run(options); }).detach();
    return looks;
  }
  TopInput Newest() const {
    absl::MutexLock lock(&mutex_);
    TopInput newest = input_;
    if (newest.trouble.empty() && absl::Now() - newest.now > every_ + kSilent) newest.trouble = "there is no answer";
    return newest;
  }

 private:
  void Run(const JobClientOptions& options) {
    while (true) {
      absl::SleepFor(every_);
      absl::StatusOr<TopInput> input = Look(options);
      absl::MutexLock lock(&mutex_);
      if (input.ok())
        input_ = *std::move(input);
      else
        input_.trouble = std::string(input.status().message());
    }
  }

  const absl::Duration every_;
  mutable absl::Mutex mutex_;
  TopInput input_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

int RunTop(const Globals& globals, const TopCommandOptions& options) {
  if (globals.json) {
    return Fail(
        absl::InvalidArgumentError("--json: top is for people; use `cairn --json nodes` and `cairn --json jobs`"));
  }
  StopSignals signals;
  absl::StatusOr<TopInput> first = Look(globals.client);
  if (!first.ok()) return Fail(first.status());
  if (options.once || isatty(STDOUT_FILENO) == 0) {
    absl::PrintF("%s\n", absl::StrJoin(TopScreen(*first, {.colours = ShowsColours()}), "\n"));
    return kExitOk;
  }
  const auto looks = Looks::Start(globals.client, *std::move(first), absl::Seconds(options.every_s));
  FullScreen screen;
  do {
    const winsize size = FullScreen::Size();
    screen.Show(TopScreen(looks->Newest(), {.width = size.ws_col, .height = size.ws_row, .colours = ShowsColours()}));
  } while (!signals.Wait(kLookAtKeys) && !screen.WantsToQuit());
  return kExitOk;
}

}  // namespace cairn
