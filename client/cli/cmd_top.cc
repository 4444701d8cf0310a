// cairn top: a live view of nodes and jobs in a terminal.
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/cli/colours.h"
#include "client/cli/commands.h"
#include "client/cli/stop_signals.h"
#include "client/cli/top_screen.h"

namespace cairn {
namespace {

constexpr absl::Duration kLookAtKeys = absl::Milliseconds(100);

// A terminal's second screen, whose keys come one by one. What was on the first one is there again at the end.
class FullScreen {
 public:
  FullScreen() {
    has_keys_ = ::tcgetattr(STDIN_FILENO, &before_) == 0;
    if (has_keys_) {
      termios raw = before_;
      raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
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

  // Each line over the one that was there, so that nothing flickers.
  void Show(const std::vector<std::string>& lines) {
    Write(absl::StrCat("\x1b[H", absl::StrJoin(lines, "\x1b[K\n"), "\x1b[K\x1b[J"));
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
};

// What was seen before stays if the cluster cannot be reached.
absl::Status Look(JobClient& client, TopInput* input) {
  input->now = absl::Now();
  CAIRN_ASSIGN_OR_RETURN(std::vector<v1::NodeStatus> nodes, client.ListNodes());
  CAIRN_ASSIGN_OR_RETURN(const v1::ListJobsResponse list, client.List());
  input->nodes = std::move(nodes);
  input->jobs.assign(list.jobs().begin(), list.jobs().end());
  return absl::OkStatus();
}

}  // namespace

int RunTop(const Globals& globals, const TopCommandOptions& options) {
  if (globals.json) {
    return Fail(
        absl::InvalidArgumentError("--json: top is for people; use `cairn --json nodes` and `cairn --json jobs`"));
  }
  StopSignals signals;
  JobClient client(globals.client);
  TopInput input;
  input.address = globals.client.address;
  if (const absl::Status status = Look(client, &input); !status.ok()) return Fail(status);
  if (options.once || isatty(STDOUT_FILENO) == 0) {
    absl::PrintF("%s\n", absl::StrJoin(TopScreen(input, {.colours = ShowsColours()}), "\n"));
    return kExitOk;
  }
  FullScreen screen;
  absl::Time next = absl::Now() + absl::Seconds(options.every_s);
  while (true) {
    const winsize size = FullScreen::Size();
    screen.Show(TopScreen(input, {.width = size.ws_col, .height = size.ws_row, .colours = ShowsColours()}));
    if (signals.Wait(kLookAtKeys) || screen.WantsToQuit()) return kExitOk;
    if (absl::Now() < next) continue;
    input.trouble = std::string(Look(client, &input).message());
    next = absl::Now() + absl::Seconds(options.every_s);
  }
}

}  // namespace cairn
