// cairn run: runs the daemons that TF_CONFIG assigns to this container. Without a job, a single daemon replaces this
// process. Several daemons are its children; if one ends, it ends all, so that the container is restarted. With a job,
// the chief submits it, and every task exits with the job's exit code once the job has ended: a TFJob is complete when
// its chief is, and tasks that keep running would occupy their machines. Without TF_CONFIG, as in a TFJob of one
// replica, it runs a whole cluster for the job.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/cli/child_process.h"
#include "client/cli/close_shape.h"
#include "client/cli/commands.h"
#include "client/cli/job_end_watch.h"
#include "client/cli/job_file.h"
#include "client/cli/set_field.h"
#include "client/cli/stop_signals.h"
#include "client/cli/tf_config.h"
#include "common/rpc/credentials.h"

namespace cairn {
namespace {

constexpr absl::Duration kPollEvery = absl::Milliseconds(100);
constexpr absl::Duration kAskEvery = absl::Seconds(1);
constexpr absl::Duration kAnswerTimeout = absl::Seconds(1);
constexpr absl::Duration kStopPatience = absl::Seconds(8);
// How long the coordinator stays for the other tasks, which ask every kAskEvery whether the job has ended.
constexpr absl::Duration kOthersPatience = absl::Seconds(30);
constexpr absl::Duration kRefusedPatience = absl::Seconds(5);  // if the job was rejected
constexpr char kCoordinator[] = "coordinator";                 // the daemon's name

void Say(const std::string& line) { absl::FPrintF(stderr, "cairn run: %s\n", line); }

// What this container runs.
struct Task {
  std::vector<TfDaemon> daemons;
  std::string coordinator;
  bool head = false;
};

absl::StatusOr<Task> TaskOf(const char* tf_config, const TfRunOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(const TfConfig config, ParseTfConfig(tf_config));
  TfRunOptions resolved = options;
  if (const char* coordinator = std::getenv("CAIRN_COORDINATOR"); coordinator != nullptr) {
    resolved.coordinator = coordinator;
  }
  Task task{{}, CoordinatorOf(config, resolved), IsHead(config)};
  CAIRN_ASSIGN_OR_RETURN(task.daemons, DaemonsOf(config, resolved));
  return task;
}

// Empty: there is no job, or its file is not in this container; then only the chief ends with the job. Errors: the job
// will be rejected. Every task finds this by itself, since the coordinator will know no such job.
absl::StatusOr<std::string> NameOf(const SubmitOptions& job) {
  if (job.file.empty()) return "";
  absl::StatusOr<v1::JobSpec> spec = LoadJobFile(job.file);
  if (absl::IsNotFound(spec.status())) {
    Say(absl::StrFormat("warning: the job's name is not known here, so its end will not be noticed: %s",
                        spec.status().message()));
    return "";
  }
  CAIRN_RETURN_IF_ERROR(spec.status());
  if (!job.model.empty()) CAIRN_RETURN_IF_ERROR(TakeModelFile(job.model, &*spec));
  for (const std::string& setting : job.settings) CAIRN_RETURN_IF_ERROR(ApplySetting(setting, &*spec));
  if (spec->name().empty()) return absl::InvalidArgumentError("name: missing; the tasks know the job by it");
  CAIRN_RETURN_IF_ERROR(CloseShapeByData(&*spec));
  CAIRN_RETURN_IF_ERROR(CheckWithoutCluster(*spec));
  return spec->name();
}

// The command `cairn submit --once --watch` for the job.
std::vector<std::string> SubmitCommand(const std::string& coordinator, const TfRunOptions& options,
                                       const SubmitOptions& job) {
  std::vector<std::string> argv = {
      options.bin_dir + "/cairn", "--coordinator", coordinator, "submit", job.file, "--once", "--watch"};
  if (!job.model.empty()) argv.insert(argv.end(), {"--model", job.model});
  for (const std::string& setting : job.settings) argv.insert(argv.end(), {"--set", setting});
  return argv;
}

JobClient ClientOf(const std::string& coordinator) {
  JobClientOptions options;
  options.address = coordinator;
  options.timeout = kAnswerTimeout;
  return JobClient(options);
}

int Exec(const TfDaemon& daemon) {
  std::vector<char*> argv;
  for (const std::string& arg : daemon.argv) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  return Fail(absl::NotFoundError(
      absl::StrFormat("%s: %s; build or install it beside this program", daemon.argv[0], std::strerror(errno))));
}

// Runs a task's daemons until one ends, a signal arrives, or the job has ended.
class TaskRun {
 public:
  TaskRun(Task task, std::vector<std::string> submit, JobEndWatch end)
      : task_(std::move(task)),
        submit_(std::move(submit)),
        end_(std::move(end)),
        client_(ClientOf(task_.coordinator)) {}

  int Run() {
    for (const TfDaemon& daemon : task_.daemons) {
      if (const absl::Status status = Start(daemon.argv); !status.ok()) {
        StopAll();
        return Fail(status);
      }
    }
    std::optional<int> code;
    while (!code && !signals_.Wait(kPollEvery)) code = Look();
    StopAll();
    return code.value_or(kExitOk);
  }

 private:
  absl::Status Start(const std::vector<std::string>& argv) {
    CAIRN_ASSIGN_OR_RETURN(ChildProcess child, ChildProcess::Start(argv, /*log_file=*/""));
    children_.push_back(std::move(child));
    return absl::OkStatus();
  }

  // Returns the exit code once the task is over.
  std::optional<int> Look() {
    for (size_t i = 0; i < task_.daemons.size(); ++i) {
      if (!children_[i].Ended()) continue;
      Say(absl::StrFormat("%s ended: %s; stopping", task_.daemons[i].name, children_[i].how()));
      return kExitFailed;
    }
    const bool submitted = children_.size() > task_.daemons.size();
    if (submitted && !ended_ && children_.back().Ended()) return LookAtEnd();
    if (absl::Now() < ask_at_) return std::nullopt;
    ask_at_ = absl::Now() + kAskEvery;
    if (ended_) return absl::Now() > others_until_ || OthersAreGone() ? ended_ : std::nullopt;
    if (submitted) {
      WarnOfIdleWorkers();
    } else if (task_.head && !submit_.empty()) {
      if (!client_.ListNodes().ok()) return std::nullopt;
      if (const absl::Status status = Start(submit_); !status.ok()) return Fail(status);
    } else if (!end_.name().empty()) {
      const std::optional<int> code = end_.Ask(client_, absl::Now());
      if (code == kExitUsage) {
        Say(
            absl::StrFormat("%s is gone, and job \"%s\" was never submitted to it: it was refused, see the log of the "
                            "task that submits it; stopping",
                            task_.coordinator, end_.name()));
      } else if (code) {
        Say(absl::StrFormat("the job ended: exit code %d; stopping", *code));
      }
      return code;
    }
    return std::nullopt;
  }

  // The submitted job is over. The other tasks must still learn this from the coordinator.
  std::optional<int> LookAtEnd() {
    const ChildProcess& submit = children_.back();
    const int code = submit.exit_code() >= 0 ? submit.exit_code() : kExitFailed;
    Say(absl::StrFormat("the job ended: %s; stopping", submit.how()));
    const bool keeps_coordinator =
        std::any_of(task_.daemons.begin(), task_.daemons.end(), [](const auto& d) { return d.name == kCoordinator; });
    const std::optional<int> ended = end_.Ask(client_, absl::Now());
    // The job was rejected, so it does not exist; the other tasks notice that while the coordinator is running.
    const bool refused = !ended && code == kExitUsage;
    ended_ = code;
    others_until_ =
        keeps_coordinator ? absl::Now() + (refused ? kRefusedPatience : kOthersPatience) : absl::InfinitePast();
    return std::nullopt;
  }

  bool OthersAreGone() {
    end_.Ask(client_, absl::Now());  // an evaluator may still have been working
    const auto nodes = client_.ListNodes();
    return nodes.ok() && std::none_of(nodes->begin(), nodes->end(), [&](const v1::NodeStatus& node) {
             return node.alive() && std::none_of(task_.daemons.begin(), task_.daemons.end(),
                                                 [&](const auto& d) { return d.name == node.name(); });
           });
  }

  void WarnOfIdleWorkers() {
    if (warned_) return;
    JobRef ref;
    ref.name = end_.name();
    const auto job = client_.Get(ref);
    const auto nodes = client_.ListNodes();
    if (!job.ok() || !nodes.ok() || job->state() != v1::RUNNING) return;
    const auto workers =
        std::count_if(nodes->begin(), nodes->end(), [](const auto& n) { return n.alive() && n.role() == v1::WORKER; });
    if (workers <= job->spec().replicas()) return;
    warned_ = true;
    Say(absl::StrFormat(
        "warning: %d workers, but the job has %d replicas, and each is computed by one worker: %d of them are idle; "
        "set replicas: %d in the job (or a multiple), or start fewer workers",
        workers, job->spec().replicas(), workers - job->spec().replicas(), workers));
  }

  // Stops workers first and the coordinator last, the reverse of the starting order.
  void StopAll() {
    for (auto child = children_.rbegin(); child != children_.rend(); ++child) {
      child->Signal(SIGTERM);
      const absl::Time end = absl::Now() + kStopPatience;
      while (!child->Ended() && absl::Now() < end) {
        if (signals_.Wait(kPollEvery / 10)) return;  // a second signal: the remaining ones are killed
      }
    }
  }

  const Task task_;
  const std::vector<std::string> submit_;  // empty: there is no job
  StopSignals signals_;
  JobEndWatch end_;
  JobClient client_;
  std::vector<ChildProcess> children_;  // the daemons, then the process that submits the job
  absl::Time ask_at_ = absl::InfinitePast();
  std::optional<int> ended_;  // in the chief: the job's exit code
  absl::Time others_until_ = absl::InfinitePast();
  bool warned_ = false;
};

// Runs a ps and a worker on this machine for this job.
int RunAlone(const TfRunOptions& options, const SubmitOptions& job, JobEndWatch end) {
  StopSignals signals;
  LocalClusterOptions local;
  local.ps = local.workers = 1;
  local.port = 0;
  local.slots = options.slots;
  local.dir = options.dir;
  local.bin_dir = options.bin_dir;
  local.log_level = options.log_level;
  auto started = LocalCluster::Start(local, Say);
  if (!started.ok()) return Fail(started.status());
  LocalCluster& cluster = **started;
  Say(absl::StrFormat("TF_CONFIG is not set: the job runs on its own cluster in this container, logs in %s/logs",
                      cluster.dir()));
  JobClient client = ClientOf(cluster.address());
  const auto all_alive = [&] {
    const auto nodes = client.ListNodes();
    return nodes.ok() &&
           std::count_if(nodes->begin(), nodes->end(), [](const auto& n) { return n.alive(); }) >= cluster.nodes();
  };
  std::optional<ChildProcess> submit;
  std::optional<int> code;
  while (!code && !signals.Wait(kPollEvery)) {
    cluster.Tick(cluster.clock().Now());
    if (!submit && all_alive()) {
      auto child = ChildProcess::Start(SubmitCommand(cluster.address(), options, job), /*log_file=*/"");
      if (!child.ok()) code = Fail(child.status());
      if (child.ok()) submit = *std::move(child);
    }
    if (!submit || !submit->Ended()) continue;
    Say(absl::StrFormat("the job ended: %s; stopping", submit->how()));
    code = submit->exit_code() >= 0 ? submit->exit_code() : kExitFailed;
    end.Ask(client, absl::Now());
  }
  cluster.Stop([&] { return signals.Wait(absl::ZeroDuration()); });
  return code.value_or(kExitOk);
}

}  // namespace

int RunRun(const Globals& globals, const TfRunOptions& given, const SubmitOptions& job) {
  if (!globals.client.token.empty()) {
    return Fail(
        absl::InvalidArgumentError("a token names a person, and `cairn run` runs a machine's daemons and submits with "
                                   "their certificate (--tls-dir): "
                                   "leave --token-file and $CAIRN_TOKEN out"));
  }
  TfRunOptions options = given;
  options.ps_prefix = NodeNamePrefix(CallerRole::kPs, OwnCaller());
  options.worker_prefix = NodeNamePrefix(CallerRole::kWorker, OwnCaller());
  std::error_code error;
  options.dir = std::filesystem::absolute(given.dir, error).lexically_normal().string();
  const char* tf_config = std::getenv("TF_CONFIG");
  const bool alone = tf_config == nullptr || *tf_config == '\0';
  if (alone && job.file.empty()) {
    return Fail(absl::InvalidArgumentError(
        "TF_CONFIG: is not set; `cairn run` is for containers started by a TFJob, or by anything else that "
        "sets it; with --job it "
        "runs the job without one, too"));
  }
  const absl::StatusOr<std::string> name = NameOf(job);
  if (!name.ok()) return Fail(name.status());
  JobEndWatch end(options.dir, *name);
  if (const std::optional<int> code = end.name().empty() ? std::nullopt : end.Remembered()) {
    Say(absl::StrFormat("job \"%s\" has already ended, with exit code %d; remove %s to run it again", end.name(), *code,
                        end.path()));
    return *code;
  }
  if (alone) return RunAlone(options, job, std::move(end));
  auto task = TaskOf(tf_config, options);
  if (!task.ok()) return Fail(task.status());
  for (const TfDaemon& daemon : task->daemons)
    Say(absl::StrFormat("%s: %s", daemon.name, absl::StrJoin(daemon.argv, " ")));
  if (task->daemons.size() == 1 && job.file.empty()) return Exec(task->daemons.front());
  const std::string coordinator = task->coordinator;
  return TaskRun(*std::move(task),
                 job.file.empty() ? std::vector<std::string>() : SubmitCommand(coordinator, options, job),
                 std::move(end))
      .Run();
}

}  // namespace cairn
