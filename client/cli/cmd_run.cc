// cairn run: the daemons that TF_CONFIG names for this container. One takes this process' place; of several this process
// is the parent, which ends all when one ends, so that whoever started the container starts it again. With a job, the
// chief submits it and ends when it ends, with its exit code: a TFJob is done when its chief is.
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

// What this container does.
struct Task {
  std::vector<TfDaemon> daemons;
  std::string coordinator;
  bool head = false;
};

absl::StatusOr<Task> TaskOf(const TfRunOptions& options) {
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
  Task task{{}, CoordinatorOf(config, resolved), IsHead(config)};
  CAIRN_ASSIGN_OR_RETURN(task.daemons, DaemonsOf(config, resolved));
  return task;
}

// `cairn submit --once --watch` of the job.
std::vector<std::string> SubmitCommand(const std::string& coordinator, const TfRunOptions& options, const SubmitOptions& job) {
  std::vector<std::string> argv = {options.bin_dir + "/cairn", "--coordinator", coordinator, "submit", job.file, "--once", "--watch"};
  if (!job.model.empty()) argv.insert(argv.end(), {"--model", job.model});
  for (const std::string& setting : job.settings) argv.insert(argv.end(), {"--set", setting});
  return argv;
}

bool Reached(const std::string& coordinator) {
  JobClientOptions options;
  options.address = coordinator;
  options.timeout = absl::Seconds(1);
  return JobClient(options).ListNodes().ok();
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

int RunRun(const Globals&, const TfRunOptions& options, const SubmitOptions& job) {
  const auto task = TaskOf(options);
  if (!task.ok()) return Fail(task.status());
  const std::vector<TfDaemon>& daemons = task->daemons;
  const bool submits = task->head && !job.file.empty();
  for (const TfDaemon& daemon : daemons) Say(absl::StrFormat("%s: %s", daemon.name, absl::StrJoin(daemon.argv, " ")));
  if (daemons.size() == 1 && !submits) return Exec(daemons.front());
  StopSignals signals;
  std::vector<ChildProcess> children;
  const auto start = [&](const std::vector<std::string>& argv) {
    auto child = ChildProcess::Start(argv, /*log_file=*/"");
    if (child.ok()) children.push_back(*std::move(child));
    return child.status();
  };
  for (const TfDaemon& daemon : daemons) {
    if (const absl::Status status = start(daemon.argv); !status.ok()) {
      StopAll(children, signals);
      return Fail(status);
    }
  }
  bool submitted = false;
  while (!signals.Wait(kPollEvery)) {
    for (size_t i = 0; i < children.size(); ++i) {
      if (!children[i].Ended()) continue;
      const bool job_ended = i == daemons.size();
      Say(absl::StrFormat("%s ended: %s; stopping", job_ended ? "the job" : daemons[i].name, children[i].how()));
      const int code = job_ended && children[i].exit_code() >= 0 ? children[i].exit_code() : kExitFailed;
      StopAll(children, signals);
      return code;
    }
    if (!submits || submitted || !Reached(task->coordinator)) continue;
    submitted = true;
    if (const absl::Status status = start(SubmitCommand(task->coordinator, options, job)); !status.ok()) {
      StopAll(children, signals);
      return Fail(status);
    }
  }
  StopAll(children, signals);
  return kExitOk;
}

}  // namespace cairn
