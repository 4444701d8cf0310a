#include "client/cli/sweep/definition.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/cli/job_file.h"
#include "client/cli/set_field.h"
#include "common/formats/expand_model.h"
#include "common/model/callback_check.h"
#include "common/model/job_check.h"
#include "common/model/job_outputs.h"
#include "common/model/metric_sums.h"
#include "common/model/nearest.h"

namespace cairn {
namespace {

constexpr size_t kJobNameBytes = 63;

template <typename... Args>
absl::Status Bad(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}

int Digits(size_t trials) { return static_cast<int>(absl::StrCat(trials).size()); }

// The trial's values in the job. Errors are those of --set, with the flag's name.
absl::Status Assign(const Assignment& assignment, v1::JobSpec* job) {
  for (const auto& [path, value] : assignment) {
    const absl::Status status = ApplySetting(absl::StrCat(path, "=", value), job);
    if (status.ok()) continue;
    return Bad(absl::StripPrefix(status.message(), "--set "));
  }
  return absl::OkStatus();
}

// A job goes on while it is cancelled, so that the newest may be beyond what the trial may resume from (sweep.cc).
constexpr int kTrialCheckpoints = 3;

// Trials that are paused need a checkpoint of the rung.
void AddCheckpoints(const SweepDefinition& definition, v1::JobSpec* job) {
  if (!definition.flags.halving.on) return;
  v1::Checkpoints& checkpoints = *job->mutable_checkpoints();
  if (checkpoints.dir().empty()) checkpoints.set_dir(absl::StrCat(definition.folder, "/checkpoints"));
  const bool has_rule =
      checkpoints.has_every_steps() || checkpoints.has_every_epochs() || checkpoints.has_every_minutes();
  if (!has_rule) checkpoints.set_every_epochs(definition.flags.halving.min_epochs);
  if (!checkpoints.has_keep_max()) checkpoints.set_keep_max(kTrialCheckpoints);
}

absl::Status CheckHalving(const SweepFlags& flags, const v1::JobSpec& job) {
  if (!flags.halving.on) return absl::OkStatus();
  for (int i = 0; i < job.callbacks_size(); ++i) {
    const v1::Callback& callback = job.callbacks(i);
    if (!callback.has_early_stopping() && !callback.has_reduce_lr_on_plateau()) continue;
    return Bad("--halving: callbacks[", i, "].", CallbackName(callback),
               " forgets what it has counted when a trial is ",
               "paused at a rung and goes on from its checkpoint; leave it out of the job, or sweep without --halving");
  }
  const v1::Checkpoints& checkpoints = job.checkpoints();
  if (checkpoints.has_every_steps() || checkpoints.has_every_minutes()) {
    return Bad("--halving: checkpoints.", checkpoints.has_every_steps() ? "every_steps" : "every_minutes",
               ": a trial that is paused goes on from the end of an epoch; use every_epochs, or leave it out");
  }
  if (checkpoints.has_keep_max() && checkpoints.keep_max() > 0 && checkpoints.keep_max() < kTrialCheckpoints) {
    return Bad("--halving: checkpoints.keep_max: ", checkpoints.keep_max(), "; a trial that is paused needs ",
               kTrialCheckpoints, " or more, or leave it out");
  }
  const int every = job.validation_freq() > 0 ? job.validation_freq() : 1;
  if (absl::StartsWith(flags.by, "val_") && flags.halving.min_epochs % every != 0) {
    return Bad("--min-epochs ", flags.halving.min_epochs, ": the job is validated after every ", every,
               " epochs (validation_freq); give a multiple of that");
  }
  return absl::OkStatus();
}

absl::Status CheckFigure(const std::string& by, const v1::JobSpec& job) {
  if (by.empty()) return Bad("--by: missing; say by which figure trials are compared, such as --by val_accuracy");
  std::vector<std::string> known = {"loss"};
  for (int i = 0; i < FigureCount(job); ++i) known.push_back(MetricName(job, i));
  const std::string base(absl::StripPrefix(by, "val_"));
  if (std::find(known.begin(), known.end(), base) != known.end()) return absl::OkStatus();
  const std::string nearest = Nearest(base, known);
  return Bad(
      "--by ", by, ": is not a figure of this job; use one of ", absl::StrJoin(known, ", "),
      ", with val_ before it for the validation split",
      nearest.empty() ? "" : absl::StrCat("; did you mean ", by.substr(0, by.size() - base.size()), nearest, "?"));
}

absl::StatusOr<SweepSpace> SpaceOf(const SweepFlags& flags, const v1::JobSpec& job) {
  SweepSpace space;
  space.random = flags.random;
  space.seed = flags.seed;
  for (const std::string& text : flags.grid) {
    CAIRN_ASSIGN_OR_RETURN(GridAxis axis, ParseGrid(text));
    space.grid.push_back(std::move(axis));
  }
  for (const std::string& text : flags.ranges) {
    CAIRN_ASSIGN_OR_RETURN(RangeAxis axis, ParseRange(text, job));
    space.ranges.push_back(std::move(axis));
  }
  return space;
}

// The job with all defaults filled in.
absl::StatusOr<v1::JobSpec> Checked(const SweepDefinition& definition, v1::JobSpec job) {
  CAIRN_RETURN_IF_ERROR(ExpandJob(&job));
  CAIRN_ASSIGN_OR_RETURN(CheckedJob checked, CheckJob(job));
  CAIRN_RETURN_IF_ERROR(CheckFigure(definition.flags.by, checked.spec));
  CAIRN_RETURN_IF_ERROR(CheckHalving(definition.flags, checked.spec));
  return std::move(checked.spec);
}

absl::StatusOr<bool> MoreIsBetterFor(const SweepFlags& flags, const v1::JobSpec& job) {
  if (flags.mode.empty()) return MoreIsBetter(job, flags.by);
  if (flags.mode != "max" && flags.mode != "min") return Bad("--mode ", flags.mode, ": use max or min");
  return flags.mode == "max";
}

std::string Beside(const std::string& file, const std::string& trial) {
  const size_t slash = file.rfind('/');
  return slash == std::string::npos ? absl::StrCat(trial, "/", file)
                                    : absl::StrCat(file.substr(0, slash), "/", trial, file.substr(slash));
}

}  // namespace

std::string TrialJobName(const SweepDefinition& definition, const Trial& trial, size_t trials) {
  const std::string& job = definition.job.name();
  const std::string suffix = absl::StrFormat("-t%0*d", Digits(trials), trial.number);
  return (job.empty() ? std::string("job") : job).substr(0, kJobNameBytes - suffix.size()) + suffix;
}

void SeparateOutputs(const std::string& trial, v1::JobSpec* job) {
  const auto below = [&](const std::string& folder) { return absl::StrCat(folder, "/", trial); };
  if (job->has_checkpoints()) job->mutable_checkpoints()->set_dir(below(job->checkpoints().dir()));
  for (v1::Callback& callback : *job->mutable_callbacks()) {
    if (callback.has_tensorboard())
      callback.mutable_tensorboard()->set_log_dir(below(callback.tensorboard().log_dir()));
    if (callback.has_csv_logger())
      callback.mutable_csv_logger()->set_filename(Beside(callback.csv_logger().filename(), trial));
    if (callback.has_model_checkpoint())
      callback.mutable_model_checkpoint()->set_filepath(Beside(callback.model_checkpoint().filepath(), trial));
    if (callback.has_backup_and_restore())
      callback.mutable_backup_and_restore()->set_backup_dir(below(callback.backup_and_restore().backup_dir()));
  }
}

v1::JobSpec Resumed(v1::JobSpec job, const std::string& checkpoint) {
  job.set_resume_from(checkpoint);
  job.clear_initial_weights();
  job.clear_initial_weights_skip();
  return job;
}

absl::StatusOr<v1::JobSpec> JobOfTrial(const SweepDefinition& definition, const Trial& trial, size_t trials,
                                       const ShapeCloser& close_shape) {
  v1::JobSpec job = definition.job;
  CAIRN_RETURN_IF_ERROR(Assign(trial.parameters, &job));
  job.set_name(TrialJobName(definition, trial, trials));
  AddCheckpoints(definition, &job);
  CAIRN_RETURN_IF_ERROR(MakeDataPathAbsolute(&job));
  CAIRN_RETURN_IF_ERROR(CheckResumeFrom(job));
  MakeFilePathsAbsolute(&job);
  SeparateOutputs(absl::StrFormat("trial-%0*d", Digits(trials), trial.number), &job);
  // The next run may write a checkpoint of a step that this one's folder has already.
  if (trial.runs > 1 && job.has_checkpoints()) {
    job.mutable_checkpoints()->set_dir(absl::StrCat(job.checkpoints().dir(), "/run-", trial.runs));
  }
  CAIRN_RETURN_IF_ERROR(close_shape(&job));
  return job;
}

absl::StatusOr<SweepPlan> MakePlan(const SweepDefinition& definition, const ShapeCloser& close_shape) {
  const SweepFlags& flags = definition.flags;
  CAIRN_ASSIGN_OR_RETURN(const SweepSpace space, SpaceOf(flags, definition.job));
  CAIRN_ASSIGN_OR_RETURN(std::vector<Assignment> assignments, MakeTrials(space));
  SweepPlan plan;
  int epochs = 0;
  for (Assignment& assignment : assignments) {
    Trial trial;
    trial.number = static_cast<int>(plan.trials.size()) + 1;
    trial.parameters = std::move(assignment);
    auto job = JobOfTrial(definition, trial, assignments.size(), close_shape);
    if (job.ok()) job = Checked(definition, *std::move(job));
    if (!job.ok()) {
      const std::string where = absl::StrFormat("trial %d (%s)", trial.number, AssignmentText(trial.parameters));
      return Annotate(job.status(), where);
    }
    if (trial.number == 1) {
      epochs = job->epochs();
      CAIRN_ASSIGN_OR_RETURN(plan.options.more_is_better, MoreIsBetterFor(flags, *job));
    }
    if (flags.halving.on && job->epochs() != epochs)
      return Bad("--halving: trials are compared after equal numbers of epochs; sweep other fields than `epochs`");
    plan.trials.push_back(std::move(trial));
  }
  plan.options.key = definition.key;
  plan.options.by = flags.by;
  plan.options.halving = flags.halving;
  if (flags.halving.on) {
    CAIRN_ASSIGN_OR_RETURN(plan.options.rungs, Rungs(flags.halving, epochs));
  }
  return plan;
}

}  // namespace cairn
