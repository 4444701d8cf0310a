// cairn submit FILE: submits a job from a text-protobuf file, --model and --set.
#include <algorithm>

#include "absl/strings/str_format.h"
#include "client/cli/close_shape.h"
#include "client/cli/commands.h"
#include "client/cli/dry_run.h"
#include "client/cli/job_file.h"
#include "client/cli/resume_from.h"
#include "client/cli/set_field.h"
#include "client/cli/watching.h"
#include "client/limits.h"
#include "common/report/figures.h"
#include "common/report/json.h"

namespace cairn {

absl::StatusOr<v1::JobSpec> ReadSubmittedJob(const SubmitOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(v1::JobSpec spec, LoadJobFile(options.file));
  if (!options.model.empty()) CAIRN_RETURN_IF_ERROR(TakeModelFile(options.model, &spec));
  for (const std::string& setting : options.settings) CAIRN_RETURN_IF_ERROR(ApplySetting(setting, &spec));
  CAIRN_RETURN_IF_ERROR(MakeDataPathAbsolute(&spec));
  CAIRN_RETURN_IF_ERROR(CheckResumeFrom(spec));
  MakeFilePathsAbsolute(&spec);
  return spec;
}

namespace {

absl::StatusOr<v1::JobSpec> ReadSpec(const SubmitOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(v1::JobSpec spec, ReadSubmittedJob(options));
  CAIRN_RETURN_IF_ERROR(CloseShapeByData(&spec));
  return spec;
}

absl::Status Explained(const Globals& globals, const absl::Status& refused, const v1::JobSpec& spec) {
  return ExplainResumeFrom(refused, spec, [&](const JobRef& job) {
    JobClientOptions options = globals.client;
    options.timeout = std::min(options.timeout, kExplanationMax);
    options.election_max = kExplanationMax;
    return JobClient(options).Get(job);
  });
}

bool Failed(const v1::JobStatus& job) { return job.state() == v1::FAILED || job.state() == v1::CANCELLED; }

// Returns the newest job of that name unless it failed; otherwise submits a new one.
absl::StatusOr<v1::SubmitResponse> SubmitOnce(JobClient& client, const v1::JobSpec& spec) {
  if (spec.name().empty())
    return absl::InvalidArgumentError("name: missing; a job that is submitted once is known by it");
  const auto known = client.Get({0, spec.name()});
  if (!known.ok() && !absl::IsNotFound(known.status())) return known.status();
  if (!known.ok() || Failed(*known)) return client.Submit(spec);
  v1::SubmitResponse response;
  *response.mutable_job() = *known;
  return response;
}

void PrintWarnings(const v1::SubmitResponse& response) {
  for (const std::string& warning : response.warnings()) absl::FPrintF(stderr, "cairn: warning: %s\n", warning);
}

int DryRun(const Globals& globals, JobClient& client, const v1::JobSpec& spec) {
  const auto checked = client.Check(spec);
  if (!checked.ok()) return Fail(Explained(globals, checked.status(), spec));
  absl::PrintF("%s", globals.json ? DryRunJson(*checked) + "\n" : DryRunText(checked->job()));
  PrintWarnings(*checked);
  return kExitOk;
}

}  // namespace

int RunSubmit(const Globals& globals, const SubmitOptions& options) {
  if (options.dry_run && (options.watch || options.once)) {
    return Fail(absl::InvalidArgumentError("--dry-run: submits nothing; leave --watch and --once out"));
  }
  JobClient client(globals.client);
  const auto spec = ReadSpec(options);
  if (!spec.ok()) {
    Fail(Explained(globals, spec.status(), {}));
    return kExitUsage;
  }
  if (options.dry_run) return DryRun(globals, client, *spec);
  const auto response = options.once ? SubmitOnce(client, *spec) : client.Submit(*spec);
  if (!response.ok()) return Fail(Explained(globals, response.status(), *spec));
  const v1::JobStatus& job = response->job();
  if (globals.json) {
    absl::PrintF("%s\n", SubmitJson(*response));
  } else {
    absl::PrintF("job %d \"%s\" is submitted: %s%s%s\n", job.job_id(), job.spec().name(), StateText(job.state()),
                 job.reason().empty() ? "" : " - ", job.reason());
  }
  PrintWarnings(*response);
  std::fflush(stdout);
  if (!options.watch) return kExitOk;
  JobRef ref;
  ref.id = job.job_id();
  return WatchToEnd(globals, ref);
}

}  // namespace cairn
