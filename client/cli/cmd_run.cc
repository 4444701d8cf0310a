// cairn run: the daemons that TF_CONFIG names for this container. One takes this process' place; of several this process
// is the parent, which ends all when one ends, so that whoever started the container starts it again.
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/cli/child_process.h"
#include "client/cli/commands.h"
#include "client/cli/stop_signals.h"
#include "client/cli/tf_config.h"

namespace cairn {
namespace {

constexpr absl::Duration kPollEvery = absl::Milliseconds(100);
constexpr absl::Duration kStopPatience = absl::Seconds(8);

void Say(const std::string& line) { absl::FPrintF(stderr, "cairn run: %s\n", line); }

absl::StatusOr<std::vector<TfDaemon>> Daemons(const TfRunOptions& options) {
  const char* text = std::getenv("TF_CONFIG");
  if (text == nullptr || *text == '\0') {
    return absl::InvalidArgumentError(
        "TF_CONFIG: is not set; `cairn run` is for containers that a TFJob, or whoever else sets it, starts");
  }
  CAIRN_ASSIGN_OR_RETURN(const TfConfig config, ParseTfConfig(text));
  TfRunOptions resolved = options;
  if (const char* coordinator = std::getenv("CAIRN_COORDINATOR"); coordinator != nullptr) {
    resolved.coordinator = coordinator;
  }
  std::error_code error;
  resolved.dir = std::filesystem::absolute(options.dir, error).lexically_normal().string();
  return DaemonsOf(config, resolved);
}

int Exec(const TfDaemon& daemon) {
  std::vector<char*> argv;
  for (const std::string& arg : daemon.argv) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  return Fail(absl::NotFoundError(absl::StrFormat("%s: %s; build or install it beside this program", daemon.argv[0],
                                                  std::strerror(errno))));
}

// Workers first, the coordinator last: the reverse of the order of starting.
void StopAll(std::vector<ChildProcess>& children, StopSignals& signals) {
  for (auto child = children.rbegin(); child != children.rend(); ++child) {
    child->Signal(SIGTERM);
    const absl::Time end = absl::Now() + kStopPatience;
    while (!child->Ended() && absl::Now() < end) {
      if (signals.Wait(kPollEvery / 10)) return;  // again: what is left is killed
    }
  }
}

}  // namespace

int RunRun(const Globals&, const TfRunOptions& options) {
  const auto daemons = Daemons(options);
  if (!daemons.ok()) return Fail(daemons.status());
  for (const TfDaemon& daemon : *daemons) Say(absl::StrFormat("%s: %s", daemon.name, absl::StrJoin(daemon.argv, " ")));
  if (daemons->size() == 1) return Exec(daemons->front());
  StopSignals signals;
  std::vector<ChildProcess> children;
  for (const TfDaemon& daemon : *daemons) {
    auto child = ChildProcess::Start(daemon.argv, /*log_file=*/"");
    if (!child.ok()) {
      StopAll(children, signals);
      return Fail(child.status());
    }
    children.push_back(*std::move(child));
  }
  while (!signals.Wait(kPollEvery)) {
    for (size_t i = 0; i < children.size(); ++i) {
      if (!children[i].Ended()) continue;
      Say(absl::StrFormat("%s ended: %s; stopping", (*daemons)[i].name, children[i].how()));
      StopAll(children, signals);
      return kExitFailed;
    }
  }
  StopAll(children, signals);
  return kExitOk;
}

}  // namespace cairn
