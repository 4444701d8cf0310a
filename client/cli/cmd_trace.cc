// cairn trace JOB -o FILE: the time line of some steps of a job over all of its nodes.
#include <algorithm>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/cli/commands.h"
#include "client/cli/output_file.h"
#include "client/cli/stop_signals.h"
#include "client/cli/trace_collector.h"
#include "client/cli/trace_writer.h"
#include "common/base/files.h"
#include "common/base/limits.h"
#include "common/model/role_text.h"
#include "common/report/figures.h"

namespace cairn {
namespace {

constexpr absl::Duration kLookAgain = absl::Milliseconds(100);
// Beyond the nodes' own time, for the way to them.
constexpr absl::Duration kPatience = absl::Seconds(10);

absl::Status CheckOptions(const TraceOptions& options) {
  if (options.steps < 1 || options.steps > kTraceStepsMax)
    return absl::InvalidArgumentError(absl::StrFormat("--steps: %d; use 1 to %d", options.steps, kTraceStepsMax));
  if (options.seconds < 1 || options.seconds > kTraceSecondsMax)
    return absl::InvalidArgumentError(absl::StrFormat("--seconds: %d; use 1 to %d", options.seconds, kTraceSecondsMax));
  return CheckOutputFile(options.output);
}

// One trace of one job. Its end is told to the coordinator, whatever happens.
class TraceRun {
 public:
  TraceRun(JobClient& client, StopSignals& signals, const TraceOptions& options)
      : client_(client), signals_(signals), options_(options) {}

  absl::Status Collect(uint64_t job_id) {
    v1::StartTraceRequest request;
    request.set_job_id(job_id);
    request.set_steps(static_cast<int32_t>(options_.steps));
    request.set_seconds(static_cast<int32_t>(options_.seconds));
    CAIRN_ASSIGN_OR_RETURN(const v1::StartTraceResponse started, client_.StartTrace(request));
    TraceCollector collector([this](const v1::ReadTraceRequest& read) { return client_.ReadTrace(read); }, started,
                             options_.steps);
    const absl::Status read = ReadUntilDone(collector);
    client_.EndTrace(started.trace_id()).IgnoreError();  // it ends by itself, too
    trace_ = collector.Take();
    job_ended_ = collector.job_ended();
    const bool any =
        std::any_of(trace_.nodes.begin(), trace_.nodes.end(), [](const auto& n) { return !n.spans.empty(); });
    if (any) {
      if (!read.ok()) absl::FPrintF(stderr, "cairn: the trace ended early: %s\n", read.message());
      return absl::OkStatus();
    }
    CAIRN_RETURN_IF_ERROR(read);
    return absl::UnavailableError(NothingText(job_id));
  }

  absl::Status Write(const v1::JobStatus& job, const std::string& beside) {
    std::ofstream out(beside, std::ios::binary | std::ios::trunc);
    WriteTrace(trace_, {job.job_id(), job.spec().name(), options_.steps}, out);
    out.close();
    return out ? absl::OkStatus() : FileError(options_.output, "cannot be written");
  }

  void TellMissing() const {
    for (const NodeTrace& node : trace_.nodes) {
      if (node.missing.empty()) continue;
      absl::FPrintF(stderr, "cairn: missing of %s \"%s\": %s\n", RoleText(node.role), node.name, node.missing);
    }
    const int64_t steps = trace_.last_step - trace_.first_step + 1;
    if (!trace_.synchronous || steps >= options_.steps) return;
    absl::FPrintF(stderr, "cairn: %d of %d steps: %s\n", steps, options_.steps, WhyShort());
  }

  std::string Summary(uint64_t job_id) const {
    size_t spans = 0;
    for (const NodeTrace& node : trace_.nodes) spans += node.spans.size();
    return absl::StrFormat("%s: steps %d to %d of job %d, %d nodes, %s spans; https://ui.perfetto.dev shows it",
                           options_.output, trace_.first_step, trace_.last_step, job_id, trace_.nodes.size(),
                           Thousands(spans));
  }
  bool interrupted() const { return interrupted_; }

 private:
  absl::Status ReadUntilDone(TraceCollector& collector) {
    const absl::Time end = absl::Now() + absl::Seconds(options_.seconds) + kPatience;
    while (true) {
      CAIRN_RETURN_IF_ERROR(collector.Round(absl::Now(), /*stop=*/false));
      if (collector.Done() || collector.job_ended() || absl::Now() > end) break;
      if (signals_.Wait(kLookAgain)) {
        interrupted_ = true;
        break;
      }
    }
    return collector.Round(absl::Now(), /*stop=*/true);
  }

  std::string WhyShort() const {
    if (interrupted_) return "it was interrupted";
    if (job_ended_) return "the job has ended";
    return absl::StrFormat("the job did no more within %d s (--seconds)", options_.seconds);
  }

  std::string NothingText(uint64_t job_id) const {
    std::string text = absl::StrFormat("no whole step of job %d was recorded: %s", job_id, WhyShort());
    for (const NodeTrace& node : trace_.nodes) {
      if (!node.missing.empty())
        absl::StrAppendFormat(&text, "\n%s \"%s\": %s", RoleText(node.role), node.name, node.missing);
    }
    return text;
  }

  JobClient& client_;
  StopSignals& signals_;
  const TraceOptions& options_;
  CollectedTrace trace_;
  bool job_ended_ = false, interrupted_ = false;
};

absl::Status RunTraceOf(const Globals& globals, const TraceOptions& options, StopSignals& signals, int* code) {
  CAIRN_RETURN_IF_ERROR(CheckOptions(options));
  CAIRN_ASSIGN_OR_RETURN(const JobRef ref, JobRef::Parse(options.job));
  JobClient client(globals.client);
  CAIRN_ASSIGN_OR_RETURN(const v1::JobStatus job, client.Get(ref));
  TraceRun run(client, signals, options);
  // A file that cannot be written is noticed before the nodes record anything.
  CAIRN_RETURN_IF_ERROR(WriteFileWhole(options.output, [&](const std::string& beside) -> absl::Status {
    if (const FileDescriptor file = CreateBeside(beside); file.get() < 0) {
      const absl::Status why = FileError(options.output, "cannot be written");
      return absl::Status(absl::StatusCode::kInvalidArgument, absl::StrCat("-o ", why.message()));
    }
    CAIRN_RETURN_IF_ERROR(run.Collect(job.job_id()));
    return run.Write(job, beside);
  }));
  run.TellMissing();
  if (!globals.json) absl::PrintF("%s\n", run.Summary(job.job_id()));
  *code = run.interrupted() ? kExitInterrupted : kExitOk;
  return absl::OkStatus();
}

}  // namespace

int RunTrace(const Globals& globals, const TraceOptions& options) {
  StopSignals signals;  // before the client's threads
  int code = kExitOk;
  const absl::Status status = RunTraceOf(globals, options, signals, &code);
  return status.ok() ? code : Fail(status);
}

}  // namespace cairn
