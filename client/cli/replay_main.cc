// cairn-replay --step N: a step of a job, computed again in this process and compared with the job's own.
// cairn-replay --find-nan: the first number of a job that is not finite.
//
// `cairn replay` becomes this program. Its standard input is the job's JobStatus, so that it needs no cluster; its exit
// code is that of `cairn`.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/commands.h"
#include "client/cli/replay_flags.h"
#include "client/cli/replay_report.h"
#include "client/cli/stop_signals.h"
#include "client/cli/usage_error.h"
#include "common/base/version.h"
#include "common/rpc/daemon.h"

namespace cairn {
namespace {

absl::StatusOr<v1::JobStatus> ReadJob() {
  v1::JobStatus job;
  if (isatty(STDIN_FILENO) == 0 && job.ParseFromFileDescriptor(STDIN_FILENO) && job.job_id() != 0) return job;
  return absl::InvalidArgumentError("standard input: it holds no job; use `cairn replay`, which starts this program");
}

absl::StatusOr<ReplayOptions> OptionsOf(const ReplayCommandOptions& given, const v1::JobStatus& job,
                                        StopSignals& signals) {
  if (!given.step && !given.find_nan) {
    return absl::InvalidArgumentError(
        "--step: say which step is to be computed again, from 0; or --find-nan, to look for the first number that is "
        "not finite");
  }
  if (!given.step && job.step() == 0)
    return absl::FailedPreconditionError(absl::StrCat("job ", job.job_id(), " has done no step yet"));
  ReplayOptions options;
  options.source = {given.checkpoint, given.data};
  options.step = given.step.value_or(job.step() - 1);
  options.device = given.device;
  options.go_on = [&signals](int64_t) { return !signals.Wait(absl::ZeroDuration()); };
  return options;
}

void TellSkipped(const ReplayOrigin& origin) {
  for (const std::string& skipped : origin.skipped) absl::FPrintF(stderr, "cairn: not used: %s\n", skipped);
}

void Print(bool json, const std::string& as_json, const std::string& as_text) {
  absl::PrintF("%s", json ? absl::StrCat(as_json, "\n") : as_text);
}

// The exit code.
absl::StatusOr<int> Step(bool json, const v1::JobStatus& job, const ReplayOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(const ReplayResult result, ReplayStep(job, options));
  TellSkipped(result.origin);
  Print(json, ReplayJson(job, result), ReplayText(job, result));
  if (!result.check || result.check->same()) return kExitOk;
  absl::FPrintF(stderr, "cairn: %s\n", DifferenceText(job, result));
  return kExitDiffers;
}

absl::StatusOr<int> Find(bool json, const v1::JobStatus& job, const ReplayOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(const FindResult result, FindNotFinite(job, options));
  TellSkipped(result.origin);
  Print(json, FindJson(job, result), FindText(job, result));
  return kExitOk;
}

absl::StatusOr<int> Replay(bool json, const ReplayCommandOptions& given, StopSignals& signals) {
  CAIRN_ASSIGN_OR_RETURN(const v1::JobStatus job, ReadJob());
  CAIRN_ASSIGN_OR_RETURN(const ReplayOptions options, OptionsOf(given, job, signals));
  return given.find_nan ? Find(json, job, options) : Step(json, job, options);
}

int Main(int argc, char** argv) {
  StopSignals signals;  // before other threads
  ReplayCommandOptions given;
  bool json = false;
  CLI::App app{"Computes a step of a job again. `cairn replay` starts it, and gives it the job.", "cairn-replay"};
  app.set_version_flag("--version", absl::StrCat("cairn ", ProgramVersion()));
  app.add_flag("--json", json, "JSON for scripts");
  AddReplayFlags(&app, &given);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error), kExitOk;  // --help, --version
    return Fail(absl::InvalidArgumentError(UsageError(app, error)));
  }
  const absl::StatusOr<int> code = Replay(json, given, signals);
  if (code.ok()) return *code;
  const int failed = Fail(code.status());
  return absl::IsCancelled(code.status()) ? kExitInterrupted : failed;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  cairn::KeepStandardStreams();
  cairn::EndProcess(cairn::CloseOutput(cairn::Main(argc, argv)));
}
