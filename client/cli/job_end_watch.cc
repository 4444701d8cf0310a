#include "client/cli/job_end_watch.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/commands.h"

namespace cairn {
namespace {

constexpr absl::Duration kEvaluatorPatience = absl::Seconds(30);

// Whether an evaluator may still be working on the job's last checkpoints.
bool AwaitsEvaluator(const v1::JobStatus& job) {
  if (job.spec().validation_by() != v1::BY_EVALUATOR || job.state() == v1::FAILED || job.state() == v1::CANCELLED)
    return false;
  return std::any_of(job.checkpoints().begin(), job.checkpoints().end(), [&](const v1::CheckpointInfo& checkpoint) {
    return !checkpoint.best() && std::none_of(job.validations().begin(), job.validations().end(),
                                              [&](const auto& v) { return v.step() == checkpoint.step(); });
  });
}

}  // namespace

int ExitCodeOf(v1::JobState end) {
  return end == v1::SUCCEEDED ? kExitOk : end == v1::ENDED_WITH_ERRORS ? kExitErrors : kExitFailed;
}

JobEndWatch::JobEndWatch(const std::string& directory, std::string name)
    : name_(std::move(name)), path_(absl::StrCat(directory, "/", name_, ".ended")) {}

std::optional<int> JobEndWatch::Remembered() const {
  int code = 0;
  std::ifstream file(path_);
  if (file >> code && code >= 0 && code < 128) return code;
  return std::nullopt;
}

std::optional<int> JobEndWatch::Ask(JobClient& client, absl::Time now) {
  JobRef ref;
  ref.name = name_;
  return Consider(client.Get(ref), now);
}

std::optional<int> JobEndWatch::Consider(const absl::StatusOr<v1::JobStatus>& job, absl::Time now) {
  const bool answered = job.ok() || absl::IsNotFound(job.status());
  silent_since_ = answered ? absl::InfiniteFuture() : std::min(silent_since_, now);
  if (answered) missing_ = !job.ok();
  if (missing_ && now - silent_since_ >= kRefusedAfter) return kExitUsage;
  if (!job.ok() || !IsFinal(job->state())) return std::nullopt;
  seen_ = std::min(seen_, now);
  if (AwaitsEvaluator(*job) && now - seen_ < kEvaluatorPatience) return std::nullopt;
  const int code = ExitCodeOf(job->state());
  Remember(code);
  return code;
}

// The file is complete or absent: it is renamed into place.
void JobEndWatch::Remember(int code) const {
  const std::string partial = absl::StrCat(path_, ".partial");
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), error);
  std::ofstream file(partial);
  file << code << "\n";
  file.close();
  if (file.good()) std::filesystem::rename(partial, path_, error);
  if (!file.good() || error) {
    absl::FPrintF(stderr,
                  "cairn run: warning: %s cannot be written; a container that is started again asks the coordinator\n",
                  path_);
  }
}

}  // namespace cairn
