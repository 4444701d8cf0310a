// cairn trace JOB -o FILE: the time line of some steps of a job over all of its nodes.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/cli/commands.h"
#include "client/cli/output_file.h"
#include "client/cli/stop_signals.h"
#include "client/cli/trace_collector.h"
#include "client/cli/trace_table.h"
#include "client/cli/trace_writer.h"
#include "common/base/files.h"
#include "common/base/limits.h"
#include "common/model/role_text.h"
#include "common/model/state_text.h"
#include "common/report/figures.h"

namespace cairn {
namespace {

constexpr absl::Duration kLookAgain = absl::Milliseconds(100);
// How often it is looked at who works for the job.
constexpr absl::Duration kLookAtJob = absl::Seconds(1);
// A trace does not begin anew for less.
constexpr absl::Duration kShortest = absl::Seconds(1);
// Beyond the nodes' own time, for the way to them.
constexpr absl::Duration kPatience = absl::Seconds(10);

absl::Status CheckOptions(const TraceOptions& options) {
  if (options.steps < 1 || options.steps > kTraceStepsMax)
    return absl::InvalidArgumentError(absl::StrFormat("--steps: %d; use 1 to %d", options.steps, kTraceStepsMax));
  if (options.seconds < 1 || options.seconds > kTraceSecondsMax)
    return absl::InvalidArgumentError(absl::StrFormat("--seconds: %d; use 1 to %d", options.seconds, kTraceSecondsMax));
  return CheckOutputFile(options.output);
}

bool HasSpans(const CollectedTrace& trace) {
  return std::any_of(trace.nodes.begin(), trace.nodes.end(), [](const NodeTrace& node) { return !node.spans.empty(); });
}

// One trace of one job; it begins anew where the job's replicas or partitions move. Its end is told to the
// coordinator, whatever happens.
class TraceRun {
 public:
  TraceRun(JobClient& client, StopSignals& signals, const TraceOptions& options)
      : client_(client), signals_(signals), options_(options) {}

  absl::Status Collect(uint64_t job_id) {
    absl::Status read;
    do {
      read = CollectOnce(job_id);
    } while (read.ok() && moved_ && !interrupted_ && absl::Now() + kShortest < deadline_);
    if (HasSpans(trace_)) {
      if (!read.ok()) absl::FPrintF(stderr, "cairn: the trace ended early: %s\n", read.message());
      return absl::OkStatus();
    }
    CAIRN_RETURN_IF_ERROR(read);
    return absl::UnavailableError(NothingText(job_id));
  }

  absl::Status Write(const v1::JobStatus& job, const std::string& beside) {
    std::ofstream out(beside, std::ios::binary | std::ios::trunc);
    WriteTrace(trace_, About(job), out);
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
  std::string Table() const { return TraceTable(trace_); }
  std::string JsonSummary(const v1::JobStatus& job) const {
    std::error_code ignored;
    const std::string file = std::filesystem::absolute(options_.output, ignored).string();
    return TraceSummaryJson(trace_, About(job), file);
  }
  bool interrupted() const { return interrupted_; }

 private:
  TraceAbout About(const v1::JobStatus& job) const { return {job.job_id(), job.spec().name(), options_.steps}; }

  // Traces the nodes that work for the job now. moved_: others work for it before the steps are there.
  absl::Status CollectOnce(uint64_t job_id) {
    v1::StartTraceRequest request;
    request.set_job_id(job_id);
    request.set_steps(static_cast<int32_t>(options_.steps));
    const double left = std::ceil(absl::ToDoubleSeconds(deadline_ - absl::Now()));
    request.set_seconds(static_cast<int32_t>(std::clamp(left, 1.0, static_cast<double>(options_.seconds))));
    const absl::StatusOr<v1::StartTraceResponse> started = client_.StartTrace(request);
    if (!started.ok()) return AfterRefusal(job_id, started.status());
    moved_ = false;
    TraceCollector collector([this](const v1::ReadTraceRequest& read) { return client_.ReadTrace(read); }, *started,
                             options_.steps);
    const absl::Status read = ReadUntilDone(job_id, collector);
    client_.EndTrace(started->trace_id()).IgnoreError();  // it ends by itself, too
    CollectedTrace taken = collector.Take();
    if (moves_ == 0 || HasSpans(taken)) trace_ = std::move(taken);
    job_ended_ = collector.job_ended();
    if (moved_ && read.ok() && moves_++ == 0 && absl::Now() + kShortest < deadline_) {
      absl::FPrintF(stderr,
                    "cairn: replicas or partitions moved: the trace begins anew with the nodes that work now\n");
    }
    return read;
  }

  // While its replicas move, a job may not run for a moment.
  absl::Status AfterRefusal(uint64_t job_id, const absl::Status& refusal) {
    if (moves_ == 0 || !absl::IsFailedPrecondition(refusal)) return refusal;
    CAIRN_ASSIGN_OR_RETURN(const v1::JobStatus job, client_.Get(JobRef{job_id, ""}));
    job_ended_ = IsFinal(job.state());
    moved_ = !job_ended_;
    interrupted_ = signals_.Wait(kLookAtJob);
    return absl::OkStatus();
  }

  absl::Status ReadUntilDone(uint64_t job_id, TraceCollector& collector) {
    absl::Time look = absl::Now() + kLookAtJob;
    while (true) {
      const absl::Time now = absl::Now();
      CAIRN_RETURN_IF_ERROR(collector.Round(now, /*stop=*/false));
      if (collector.job_ended() || now > deadline_ + kPatience) break;
      const bool done = collector.Done(), enough = done && collector.Enough(), over = done && collector.AllEnded();
      if (!enough && (over || now >= look)) {
        const std::set<std::string> working = WorkingFor(job_id);
        moved_ = !working.empty() && !collector.Asks(working);
        look = now + kLookAtJob;
      }
      if (moved_ || enough || over) break;
      interrupted_ = signals_.Wait(kLookAgain);
      if (interrupted_) break;
    }
    return collector.Round(absl::Now(), /*stop=*/true);
  }

  // Empty: it is not known, or is about to change.
  std::set<std::string> WorkingFor(uint64_t job_id) {
    std::set<std::string> names;
    const absl::StatusOr<v1::JobStatus> job = client_.Get(JobRef{job_id, ""});
    if (!job.ok()) return names;
    for (const v1::ReplicaPlacement& replica : job->replicas()) {
      if (replica.worker().empty()) return {};
      names.insert(replica.worker());
    }
    for (const v1::PartitionPlacement& p : job->partitions()) {
      names.insert(p.primary());
      for (const v1::BackupPlacement& backup : p.backups()) names.insert(backup.node());
    }
    return names;
  }

  std::string WhyShort() const {
    if (interrupted_) return "it was interrupted";
    if (job_ended_) return "the job has ended";
    const int64_t waited = absl::ToInt64Seconds(absl::Now() - began_);
    if (moves_ > 0) {
      return absl::StrFormat("replicas or partitions moved during the trace (%d s in all); trace again", waited);
    }
    if (waited < options_.seconds) return absl::StrFormat("the nodes recorded no more after %d s; trace again", waited);
    return absl::StrFormat("the job did no more within %d s (--seconds)", waited);
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
  const absl::Time began_ = absl::Now();
  const absl::Time deadline_ = began_ + absl::Seconds(options_.seconds);
  CollectedTrace trace_;  // of the last time that it began
  int moves_ = 0;
  bool moved_ = false, job_ended_ = false, interrupted_ = false;
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
  if (globals.json) {
    absl::PrintF("%s\n", run.JsonSummary(job));
  } else {
    absl::PrintF("%s\n%s", run.Summary(job.job_id()), run.Table());
  }
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
