// cairn sweep: submits the trials of a sweep, follows them, and writes what comes out; what to do next is decided by
// the core (client/cli/sweep/sweep.h).
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/close_shape.h"
#include "client/cli/commands.h"
#include "client/cli/job_file.h"
#include "client/cli/stop_signals.h"
#include "client/cli/sweep/record.h"
#include "client/cli/sweep/report.h"
#include "common/base/clock.h"
#include "common/rpc/daemon.h"

namespace cairn {
namespace {

constexpr absl::Duration kLookEvery = absl::Milliseconds(500);
// Calls are short and repeated, so that a signal is heard soon.
constexpr absl::Duration kCallTimeout = absl::Seconds(5);
constexpr absl::Duration kSubmitTimeout = absl::Seconds(20);
// How long the cluster may be away, or full, before the sweep ends. It can go on later.
constexpr absl::Duration kAwayPatience = absl::Minutes(10);
constexpr absl::Duration kCancelPatience = absl::Seconds(30);

JobClientOptions ClientOptions(const Globals& globals) {
  JobClientOptions options = globals.client;
  options.timeout = kCallTimeout;
  options.submit_timeout = kSubmitTimeout;
  return options;
}

// The job itself is wrong, or this trial of it.
bool IsRefusal(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsNotFound(status) || absl::IsFailedPrecondition(status);
}

// A later try may succeed: the coordinator is away, or the queue is full.
bool MayPass(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsResourceExhausted(status) ||
         absl::IsAborted(status) || absl::IsInternal(status);
}

// What is on the terminal, or the lines on another output.
class Screen {
 public:
  explicit Screen(bool json) : json_(json), terminal_(!json && isatty(STDOUT_FILENO) != 0) {}

  void Show(const std::vector<std::string>& notes, const Sweep& sweep, const std::vector<int>& changed) {
    if (json_) {
      for (const int trial : changed) absl::PrintF("%s\n", TrialJson(sweep.trials()[trial], sweep.options().by));
    } else if (!terminal_) {
      for (const std::string& note : notes) absl::PrintF("%s\n", note);
    } else if (!changed.empty() || !notes.empty()) {
      Clear();
      winsize size{};
      const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0;
      const int width = known ? size.ws_col : 80, height = known ? size.ws_row : 24;
      for (const std::string& note : notes) absl::PrintF("%s\n", note);
      const std::string block =
          CutLines(absl::StrCat(SweepTable(sweep, std::max(1, height - 5)), SweepSummary(sweep), "\n"), width);
      lines_ = static_cast<int>(std::count(block.begin(), block.end(), '\n'));
      absl::PrintF("%s", block);
    }
    std::fflush(stdout);
  }
  void End(const Sweep& sweep, const std::string& folder) {
    if (json_) return;
    Clear();
    absl::PrintF("%s%s\nresults: %s/trials.jsonl, as a page: %s/index.html\n", SweepTable(sweep, 0),
                 SweepSummary(sweep), folder, folder);
    std::fflush(stdout);
  }
  void Note(const std::string& text) {
    Clear();
    absl::FPrintF(stderr, "cairn: %s\n", text);
  }

 private:
  // Removes the table, so that the next lines stand in its place.
  void Clear() {
    if (terminal_ && lines_ > 0) absl::PrintF("\x1b[%dA\x1b[J", std::exchange(lines_, 0));
    std::fflush(stdout);
  }

  const bool json_, terminal_;
  int lines_ = 0;  // of the table on the terminal
};

class SweepRun {
 public:
  SweepRun(const Globals& globals, SweepDefinition definition, SweepFolder folder, Sweep sweep)
      : definition_(std::move(definition)),
        folder_(std::move(folder)),
        sweep_(std::move(sweep)),
        address_(globals.client.address),
        client_(ClientOptions(globals)),
        screen_(globals.json) {}

  int Run(bool cancel_on_interrupt) {
    while (true) {
      const bool ended = sweep_.done();  // once more after that: what came last is stored and said
      if (const absl::Status status = Round(); !status.ok()) return End(status);
      if (ended) break;
      if (signals_.Wait(sweep_.done() ? absl::ZeroDuration() : kLookEvery)) return Interrupted(cancel_on_interrupt);
    }
    screen_.End(sweep_, folder_.path());
    return ExitCode();
  }

 private:
  // Looks at the jobs, decides, stores the decision, carries it out.
  absl::Status Round() {
    CAIRN_RETURN_IF_ERROR(Look());
    SweepEffects effects = sweep_.Decide();
    if (!effects.changed.empty() || !stored_) CAIRN_RETURN_IF_ERROR(folder_.Write(definition_, sweep_));
    stored_ = true;
    screen_.Show(effects.notes, sweep_, effects.changed);
    for (const int trial : effects.submit) CAIRN_RETURN_IF_ERROR(Submit(trial));
    for (const int trial : effects.cancel) {
      const auto job = client_.Cancel({sweep_.trials()[trial].job(), ""});
      if (!job.ok() && !absl::IsNotFound(job.status())) CAIRN_RETURN_IF_ERROR(Tolerate(job.status()));
    }
    return absl::OkStatus();
  }

  absl::Status Look() {
    std::vector<int> gone;
    for (const Trial& trial : sweep_.trials()) {
      const int index = trial.number - 1;
      if (!trial.is_active() || trial.state == TrialState::kSubmitting) continue;
      const auto job = client_.Get({trial.job(), ""});
      const std::string name = TrialJobName(definition_, trial, sweep_.trials().size());
      if (absl::IsNotFound(job.status()) || (job.ok() && job->spec().name() != name)) {
        gone.push_back(index);
      } else if (!job.ok()) {
        return Tolerate(job.status());
      } else {
        Answered();
        known_ = true;
        sweep_.OnJob(index, *job);
      }
    }
    if (!gone.empty() && !known_) {
      return absl::FailedPreconditionError(
          absl::StrFormat("the cluster at %s does not have job %d of trial %d; give the --coordinator of the sweep's "
                          "cluster. If its jobs "
                          "were deleted, remove the trials' lines from %s/trials.jsonl: they begin anew",
                          address_, sweep_.trials()[gone[0]].job(), gone[0] + 1, folder_.path()));
    }
    for (const int index : gone)
      sweep_.OnJobGone(index,
                       absl::StrFormat("job %d was deleted before its end was seen", sweep_.trials()[index].job()));
    return absl::OkStatus();
  }

  absl::Status Submit(int index) {
    const Trial& trial = sweep_.trials()[index];
    CAIRN_ASSIGN_OR_RETURN(v1::JobSpec job, JobOfTrial(definition_, trial, sweep_.trials().size(), CloseShapeByData));
    if (sweep_.Resumes(index)) job = Resumed(std::move(job), trial.checkpoint);
    const auto response = client_.Submit(job, sweep_.KeyOf(index));
    if (IsRefusal(response.status())) {
      Answered();
      sweep_.OnRefused(index, std::string(response.status().message()));
      return absl::OkStatus();
    }
    if (!response.ok()) return Tolerate(response.status());
    Answered();
    known_ = true;
    sweep_.OnSubmitted(index, response->job());
    const v1::DataInfo& data = response->job().data();
    if (!absl::StartsWith(sweep_.options().by, "val_") || data.train_examples() == 0 || data.validation_examples() > 0)
      return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrFormat(
        "--by %s: the data have no validation split; give another -o and --set data.validation_split=0.1, "
        "or compare by a figure of the training",
        sweep_.options().by));
  }

  void Answered() { away_since_.reset(); }

  // OK while a later try may succeed.
  absl::Status Tolerate(const absl::Status& status) {
    if (!MayPass(status)) return status;
    if (!away_since_) {
      away_since_ = clock_.Now();
      screen_.Note(absl::StrCat(status.message(), "; trying again"));
    }
    return clock_.Now() - *away_since_ < kAwayPatience ? absl::OkStatus() : status;
  }

  std::string HowToGoOn() const { return absl::StrFormat("`cairn sweep -o %s` goes on with it", folder_.path()); }

  int End(const absl::Status& status) {
    const bool hopeless = absl::IsInvalidArgument(status);
    if (hopeless) CancelAll();
    const absl::Status stored = folder_.Write(definition_, sweep_);
    const int code = Fail(status);
    if (!stored.ok()) Fail(stored);
    if (!hopeless) screen_.Note(absl::StrCat("the sweep is not finished; ", HowToGoOn()));
    return code;
  }

  int Interrupted(bool cancel) {
    if (cancel) CancelAll();
    const absl::Status stored = folder_.Write(definition_, sweep_);
    const auto& trials = sweep_.trials();
    const auto left = std::count_if(trials.begin(), trials.end(), [](const Trial& t) { return t.is_active(); });
    screen_.Note(absl::StrFormat("the sweep is interrupted; %s%s",
                                 left > 0 ? absl::StrFormat("%d of its jobs stay in the cluster; ", left) : "",
                                 HowToGoOn()));
    if (!stored.ok()) return Fail(stored);
    return kExitInterrupted;
  }

  // Until all have ended, a second signal, or patience is over: then the next `cairn sweep` does the rest.
  void CancelAll() {
    sweep_.Interrupt();
    const absl::Time end = clock_.Now() + kCancelPatience;
    const auto active = [&] {
      const auto& trials = sweep_.trials();
      return std::any_of(trials.begin(), trials.end(),
                         [](const Trial& t) { return t.is_active() && t.state != TrialState::kSubmitting; });
    };
    do {
      if (const absl::Status status = Round(); !status.ok()) return;
    } while (active() && clock_.Now() < end && !signals_.Wait(kLookEvery));
  }

  int ExitCode() const {
    const auto& trials = sweep_.trials();
    const auto good = std::count_if(trials.begin(), trials.end(), [](const Trial& t) {
      return t.state == TrialState::kSucceeded || t.state == TrialState::kStopped;
    });
    if (good == static_cast<int64_t>(trials.size())) return kExitOk;
    return good > 0 ? kExitErrors : kExitFailed;
  }

  const SweepDefinition definition_;
  const SweepFolder folder_;
  Sweep sweep_;
  const std::string address_;
  StopSignals signals_;  // before the client, whose threads inherit the mask
  JobClient client_;
  RealClock clock_;
  Screen screen_;
  std::optional<absl::Time> away_since_;
  bool known_ = false;   // the cluster has jobs of this sweep
  bool stored_ = false;  // by this process
};

// The sweep that the flags describe. Without a file: none.
absl::StatusOr<std::optional<SweepDefinition>> Given(const SweepCommandOptions& options) {
  const SweepFlags& flags = options.flags;
  if (options.submit.file.empty()) {
    const bool more = !flags.grid.empty() || !flags.ranges.empty() || flags.random > 0 || !flags.by.empty() ||
                      !options.submit.settings.empty() || !options.submit.model.empty() || flags.halving.on;
    if (more) return absl::InvalidArgumentError("FILE is missing: without it a sweep goes on as it began, by -o alone");
    if (options.folder.empty())
      return absl::InvalidArgumentError("give the job's FILE, or the -o of a sweep to go on with");
    return std::optional<SweepDefinition>();
  }
  SweepDefinition definition;
  CAIRN_ASSIGN_OR_RETURN(definition.job, ReadSubmittedJob(options.submit));
  definition.flags = flags;
  definition.key = absl::StrFormat("%016x%016x", RandomBits(), RandomBits());
  return std::optional<SweepDefinition>(std::move(definition));
}

// The sweep of the folder, or the given one, which is then the folder's.
absl::StatusOr<SweepDefinition> Define(std::optional<SweepDefinition> given, const SweepFolder& folder) {
  CAIRN_ASSIGN_OR_RETURN(std::optional<SweepDefinition> stored, folder.ReadDefinition());
  if (!given && !stored)
    return absl::InvalidArgumentError(absl::StrCat("there is no sweep in ", folder.path(), "; give the job's FILE"));
  if (!stored) {
    given->folder = folder.path();
    return *std::move(given);
  }
  const std::string difference = given ? DifferenceOf(*stored, *given) : "";
  if (difference.empty()) return *std::move(stored);
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s holds another sweep: %s is not what it was begun with; give another -o, or go on with `cairn sweep -o %s`",
      folder.path(), difference, folder.path()));
}

absl::StatusOr<Sweep> Prepare(const SweepDefinition& definition, const SweepCommandOptions& options,
                              const SweepFolder& folder) {
  CAIRN_ASSIGN_OR_RETURN(SweepPlan plan, MakePlan(definition, CloseShapeByData));
  plan.options.max_parallel = options.max_parallel;
  CAIRN_RETURN_IF_ERROR(folder.ReadTrials(&plan.trials));
  return Sweep(std::move(plan.options), std::move(plan.trials));
}

absl::Status ListTrials(SweepDefinition definition, const std::string& folder) {
  definition.folder = folder;
  CAIRN_ASSIGN_OR_RETURN(const SweepPlan plan, MakePlan(definition, CloseShapeByData));
  for (const Trial& trial : plan.trials) absl::PrintF("trial %d: %s\n", trial.number, AssignmentText(trial.parameters));
  const std::string rungs = absl::StrJoin(plan.options.rungs, ", ");
  absl::PrintF("%d trials%s%s\n", plan.trials.size(), rungs.empty() ? "" : ", compared after epochs ", rungs);
  return absl::OkStatus();
}

}  // namespace

int RunSweep(const Globals& globals, const SweepCommandOptions& options) {
  auto given = Given(options);
  if (!given.ok()) return Fail(given.status());
  const std::string name = *given ? (*given)->job.name() : "";
  const std::string path =
      !options.folder.empty() ? options.folder : absl::StrCat(name.empty() ? "job" : name, "-sweep");
  if (options.dry_run) {
    if (!*given) return Fail(absl::InvalidArgumentError("--dry-run: give the job's FILE"));
    const absl::Status status = ListTrials(**given, path);
    return status.ok() ? kExitOk : Fail(status);
  }
  if (*given) {  // what is wrong is said before a folder is made
    SweepDefinition tried = **given;
    tried.folder = path;
    const auto plan = MakePlan(tried, CloseShapeByData);
    if (!plan.ok()) return Fail(plan.status());
  }
  auto folder = SweepFolder::Open(path);
  if (!folder.ok()) return Fail(folder.status());
  auto definition = Define(*std::move(given), *folder);
  if (!definition.ok()) return Fail(definition.status());
  auto sweep = Prepare(*definition, options, *folder);
  if (!sweep.ok()) return Fail(sweep.status());
  if (const absl::Status status = folder->Write(*definition); !status.ok()) return Fail(status);
  return SweepRun(globals, *std::move(definition), *std::move(folder), *std::move(sweep))
      .Run(options.cancel_on_interrupt);
}

}  // namespace cairn
