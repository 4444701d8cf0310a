#include "client/cli/resume_from.h"

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/job_file.h"
#include "common/model/state_text.h"

namespace cairn {
namespace {

// The job that may have been meant. A directory of that name on the workers is taken before: it is not refused.
std::optional<JobRef> JobMeant(const absl::Status& refused, const v1::JobSpec& spec) {
  if (const auto number = refused.GetPayload(kJobGivenPayload); number) {
    const absl::StatusOr<JobRef> job = JobRef::Parse(std::string(*number));
    return job.ok() ? std::optional(*job) : std::nullopt;
  }
  if (spec.resume_from().empty() || !absl::StrContains(refused.message(), "resume_from: ")) return std::nullopt;
  const std::filesystem::path path = spec.resume_from();
  std::error_code error;
  if (path.parent_path() != std::filesystem::current_path(error) || error) return std::nullopt;
  return JobRef{0, path.filename().string()};
}

absl::Status Add(const absl::Status& refused, const std::string& text) {
  return {refused.code(), absl::StrCat(refused.message(), "; ", text)};
}

std::string CheckpointsText(const v1::JobStatus& job) {
  const std::string named = absl::StrFormat("job %d (\"%s\")", job.job_id(), job.spec().name());
  const v1::CheckpointInfo *newest = nullptr, *best = nullptr;
  for (const v1::CheckpointInfo& info : job.checkpoints()) {
    const v1::CheckpointInfo*& found = info.best() ? best : newest;
    if (found == nullptr || info.step() >= found->step()) found = &info;
  }
  if (newest != nullptr)
    return absl::StrFormat("%s: its newest checkpoint, of step %d, is %s", named, newest->step(), newest->path());
  if (best != nullptr)
    return absl::StrFormat("%s: its only checkpoint, the best one, of step %d, is %s", named, best->step(),
                           best->path());
  const bool ended = IsFinal(job.state());
  const std::string instead =
      ended ? absl::StrFormat(
                  "; it cannot be resumed, but another job can begin with its weights: `cairn export %d`, "
                  "then initial_weights",
                  job.job_id())
            : "";
  const std::string& dir = job.spec().checkpoints().dir();
  if (dir.empty()) return absl::StrCat(named, " writes no checkpoints, since it has no checkpoints.dir", instead);
  const std::string why = job.checkpoint_error().empty() ? "" : absl::StrCat(" (", job.checkpoint_error(), ")");
  if (!ended) return absl::StrCat(named, " has none yet in its checkpoints.dir, ", dir, why);
  return absl::StrCat(named, " has no checkpoint in its checkpoints.dir, ", dir, why, instead);
}

}  // namespace

absl::Status ExplainResumeFrom(const absl::Status& refused, const v1::JobSpec& spec, const GetJobFn& get_job) {
  const std::optional<JobRef> meant = JobMeant(refused, spec);
  if (!meant) return refused;
  const absl::StatusOr<v1::JobStatus> job = get_job(*meant);
  if (job.ok()) return Add(refused, CheckpointsText(*job));
  if (meant->id == 0 || !absl::IsNotFound(job.status())) return refused;
  return Add(refused, absl::StrFormat("there is no job %d: it was deleted, or never was; `cairn jobs` lists those that "
                                      "are kept, and the checkpoints of one that was deleted are where it wrote them",
                                      meant->id));
}

}  // namespace cairn
