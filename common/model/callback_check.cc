#include "common/model/callback_check.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/bad.h"
#include "common/model/given.h"
#include "common/model/job_check.h"
#include "common/model/job_outputs.h"
#include "common/model/limits.h"
#include "common/model/metric_sums.h"
#include "common/model/model_file_name.h"
#include "common/model/path_template.h"
#include "common/model/schedule_check.h"

namespace cairn {
namespace {

std::vector<std::string> FigureNames(const v1::JobSpec& spec) {
  std::vector<std::string> names{"loss"};
  for (int i = 0; i < FigureCount(spec); ++i) names.push_back(MetricName(spec, i));
  return names;
}

bool IsFigure(const v1::JobSpec& spec, absl::string_view name) {
  const std::vector<std::string> known = FigureNames(spec);
  return std::find(known.begin(), known.end(), std::string(absl::StripPrefix(name, "val_"))) != known.end();
}

bool OfValidation(absl::string_view figure) { return absl::StartsWith(figure, "val_"); }

// Checks one callback; every error begins with its field.
class Checker {
 public:
  Checker(v1::JobSpec* spec, int index)
      : spec_(spec), prefix_(absl::StrCat("callbacks[", index, "].", CallbackName(spec->callbacks(index)))) {}

  v1::JobSpec& spec() const { return *spec_; }

  template <typename... Args>
  absl::Status BadField(const char* field, const Args&... args) const {
    return Bad(prefix_, ".", field, ": ", absl::StrCat(args...));
  }
  template <typename... Args>
  absl::Status BadWhole(const Args&... args) const {
    return Bad(prefix_, ": ", absl::StrCat(args...));
  }
  absl::Status NotNegative(const char* field, int64_t value) const {
    return value >= 0 ? absl::OkStatus() : BadField(field, value, " is negative; use 0 or more");
  }
  absl::Status NotNegative(const char* field, float value) const {
    if (value >= 0 && std::isfinite(value)) return absl::OkStatus();
    return BadField(field, value, " is negative or not finite; use 0 or more");
  }
  absl::Status Path(const char* field, const std::string& path, const char* what) const {
    if (path.empty()) return BadField(field, "missing; give ", what, " as the workers see it");
    if (path.size() > kPathBytesMax) return BadField(field, "longer than ", kPathBytesMax, " bytes; use a shorter one");
    return absl::OkStatus();
  }
  // "epoch" if unset.
  absl::Status Frequency(const char* field, std::string* frequency) const {
    if (frequency->empty()) *frequency = "epoch";
    if (*frequency == "epoch" || SaveSteps(*frequency) > 0) return absl::OkStatus();
    return BadField(field, "\"", frequency->substr(0, 32),
                    "\" is neither \"epoch\" nor a number of steps; use one of them");
  }
  // Fills in the monitored figure and its direction.
  template <typename Monitoring>
  absl::Status Monitor(Monitoring* callback) const {
    if (callback->monitor().empty()) callback->set_monitor("val_loss");
    const std::string& monitor = callback->monitor();
    if (!IsFigure(*spec_, monitor)) {
      return BadField("monitor", "\"", monitor.substr(0, 64), "\" is not a figure of this job; use one of ",
                      absl::StrJoin(FigureNames(*spec_), ", "), ", with val_ before it for the validation split");
    }
    if (!v1::MonitorMode_IsValid(callback->mode())) {
      return BadField("mode", static_cast<int>(callback->mode()),
                      " is not known; use MODE_MIN, MODE_MAX or leave it out");
    }
    if (callback->mode() == v1::MODE_AUTO) {
      callback->set_mode(MoreIsBetter(*spec_, monitor) ? v1::MODE_MAX : v1::MODE_MIN);
    }
    if (!OfValidation(monitor) || spec_->validation_by() != v1::BY_EVALUATOR) return absl::OkStatus();
    return BadField("monitor", "\"", monitor,
                    "\" comes from an evaluator, for which the training does not wait; use "
                    "validation_by: BY_REPLICAS, or monitor \"",
                    absl::StripPrefix(monitor, "val_"), "\"");
  }

 private:
  v1::JobSpec* spec_;
  const std::string prefix_;
};

// ---- one callback each ----

absl::Status CheckBackup(const Checker& check, v1::BackupAndRestore* backup) {
  CAIRN_RETURN_IF_ERROR(check.Path("backup_dir", backup->backup_dir(), "a directory that all workers share,"));
  CAIRN_RETURN_IF_ERROR(check.Frequency("save_freq", backup->mutable_save_freq()));
  if (!backup->has_delete_checkpoint()) backup->set_delete_checkpoint(true);
  v1::JobSpec& spec = check.spec();
  if (spec.has_checkpoints() && spec.checkpoints().dir() != backup->backup_dir()) {
    return check.BadWhole("the job has `checkpoints` in \"", spec.checkpoints().dir(),
                          "\" already, which do the same; leave one of them out");
  }
  if (spec.has_checkpoints()) return absl::OkStatus();
  v1::Checkpoints& checkpoints = *spec.mutable_checkpoints();
  checkpoints.set_dir(backup->backup_dir());
  checkpoints.set_keep_max(2);
  const int64_t steps = SaveSteps(backup->save_freq());
  if (steps > 0) {
    checkpoints.set_every_steps(steps);
  } else {
    checkpoints.set_every_epochs(1);
  }
  return absl::OkStatus();
}

absl::Status CheckEarlyStopping(const Checker& check, v1::EarlyStopping* stopping) {
  CAIRN_RETURN_IF_ERROR(check.Monitor(stopping));
  CAIRN_RETURN_IF_ERROR(check.NotNegative("min_delta", stopping->min_delta()));
  CAIRN_RETURN_IF_ERROR(check.NotNegative("patience", int64_t{stopping->patience()}));
  CAIRN_RETURN_IF_ERROR(check.NotNegative("start_from_epoch", int64_t{stopping->start_from_epoch()}));
  if (stopping->has_baseline() && !std::isfinite(stopping->baseline())) {
    return check.BadField("baseline", stopping->baseline(), " is not finite; use a number, or leave it out");
  }
  if (!stopping->restore_best_weights()) return absl::OkStatus();
  v1::JobSpec& spec = check.spec();
  if (!spec.has_checkpoints()) {
    return check.BadField(
        "restore_best_weights",
        "the weights come from checkpoints, and this job writes none; add checkpoints { dir: \"...\" }, "
        "a directory that all workers share");
  }
  v1::Checkpoints& checkpoints = *spec.mutable_checkpoints();
  if (checkpoints.every_epochs() > 1) {
    return check.BadField("restore_best_weights", "any epoch may be the best, and checkpoints.every_epochs is ",
                          checkpoints.every_epochs(), "; set it to 1");
  }
  checkpoints.set_every_epochs(1);
  const v1::Checkpoints::Mode mode = stopping->mode() == v1::MODE_MAX ? v1::Checkpoints::MAX : v1::Checkpoints::MIN;
  const bool same = checkpoints.save_best() == stopping->monitor() &&
                    (checkpoints.mode() == v1::Checkpoints::MODE_UNSPECIFIED || checkpoints.mode() == mode);
  if (!checkpoints.save_best().empty() && !same) {
    return check.BadField("restore_best_weights", "it keeps the best checkpoint by \"", stopping->monitor(),
                          "\", but checkpoints.save_best is \"", checkpoints.save_best(),
                          "\"; leave save_best and mode out, or make them equal");
  }
  checkpoints.set_save_best(stopping->monitor());
  checkpoints.set_mode(mode);
  return absl::OkStatus();
}

absl::Status CheckReduceRate(const Checker& check, v1::ReduceLrOnPlateau* reduce) {
  CAIRN_RETURN_IF_ERROR(check.Monitor(reduce));
  if (!reduce->has_factor()) reduce->set_factor(0.1f);
  if (!(reduce->factor() > 0 && reduce->factor() < 1)) {
    return check.BadField("factor", reduce->factor(), " is not between 0 and 1; use a number such as 0.1");
  }
  if (!reduce->has_patience()) reduce->set_patience(10);
  if (!reduce->has_min_delta()) reduce->set_min_delta(1e-4f);
  CAIRN_RETURN_IF_ERROR(check.NotNegative("patience", int64_t{reduce->patience()}));
  CAIRN_RETURN_IF_ERROR(check.NotNegative("min_delta", reduce->min_delta()));
  CAIRN_RETURN_IF_ERROR(check.NotNegative("cooldown", int64_t{reduce->cooldown()}));
  CAIRN_RETURN_IF_ERROR(check.NotNegative("min_lr", reduce->min_lr()));
  if (!check.spec().optimizer().has_schedule()) return absl::OkStatus();
  return check.BadWhole("optimizer.schedule sets the learning rate too; leave one of them out");
}

absl::Status CheckScheduler(const Checker& check, v1::LearningRateScheduler* scheduler) {
  v1::JobSpec& spec = check.spec();
  if (spec.optimizer().has_schedule()) {
    return check.BadWhole("optimizer.schedule sets the learning rate too; leave one of them out");
  }
  if (!scheduler->has_schedule()) return check.BadField("schedule", "missing; use exponential_decay { ... }, say");
  v1::Optimizer optimizer = spec.optimizer();
  *optimizer.mutable_schedule() = scheduler->schedule();
  const absl::Status status = ResolveSchedule(&optimizer);
  if (!status.ok()) {
    return check.BadField("schedule",
                          absl::StripPrefix(absl::StripPrefix(status.message(), "optimizer.schedule"), "."));
  }
  *scheduler->mutable_schedule() = optimizer.schedule();
  return absl::OkStatus();
}

absl::Status CheckTensorBoard(const Checker& check, v1::TensorBoard* board) {
  if (board->log_dir().empty()) board->set_log_dir("logs");
  CAIRN_RETURN_IF_ERROR(check.Path("log_dir", board->log_dir(), "a directory"));
  CAIRN_RETURN_IF_ERROR(check.NotNegative("histogram_freq", int64_t{board->histogram_freq()}));
  if (!board->has_write_graph()) board->set_write_graph(true);
  return check.Frequency("update_freq", board->mutable_update_freq());
}

absl::Status CheckCsv(const Checker& check, v1::CsvLogger* csv) {
  CAIRN_RETURN_IF_ERROR(check.Path("filename", csv->filename(), "a file"));
  if (csv->separator().empty()) csv->set_separator(",");
  const std::string& separator = csv->separator();
  if (separator.size() == 1 && !absl::StrContains("\r\n\"", separator)) return absl::OkStatus();
  return check.BadField("separator", "\"", separator.substr(0, 16),
                        "\" is not one character; use \",\", \";\" or a tab");
}

// The checkpoint directory of a job with model files if the user named none: next to the model files.
std::string DirectoryBeside(const PathTemplate& path, const std::string& job) {
  const std::string beginning = path.Beginning();
  const size_t slash = beginning.rfind('/');
  return absl::StrCat(slash == std::string::npos ? "" : beginning.substr(0, slash + 1), ".cairn-", job);
}

absl::Status CheckNames(const Checker& check, const PathTemplate& path, int64_t steps) {
  for (const std::string& name : path.Names()) {
    if (name == "epoch" || (name == "batch" && steps > 0)) continue;
    if (name == "batch") {
      return check.BadField("filepath", "{batch} is known where save_freq is a number of steps; leave it out");
    }
    if (!IsFigure(check.spec(), name)) {
      return check.BadField("filepath", "{", name.substr(0, 64), "} is not a figure of this job; use epoch, ",
                            absl::StrJoin(FigureNames(check.spec()), ", "),
                            ", with val_ before a figure for the validation split");
    }
    if (steps > 0) {
      return check.BadField("filepath", "{", name,
                            "} is known after epochs, and save_freq is a number of steps; use {epoch} "
                            "and {batch}");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckModelCheckpoint(const Checker& check, v1::ModelCheckpoint* model,
                                  std::vector<std::string>* warnings) {
  CAIRN_RETURN_IF_ERROR(check.Path("filepath", model->filepath(), "the file's name"));
  CAIRN_RETURN_IF_ERROR(check.Frequency("save_freq", model->mutable_save_freq()));
  const int64_t steps = SaveSteps(model->save_freq());
  const absl::StatusOr<PathTemplate> path = PathTemplate::Parse(model->filepath());
  if (!path.ok()) return check.BadField("filepath", path.status().message());
  CAIRN_RETURN_IF_ERROR(CheckNames(check, *path, steps));
  if (ModelFileKindOf(model->filepath()) == ModelFileKind::kUnknown) {
    return check.BadField(
        "filepath", "\"", model->filepath().substr(0, 200),
        "\" does not say by its end which kind of file it is; end it in .safetensors, .keras, .weights.h5 or .onnx");
  }
  if (model->save_best_only()) {
    CAIRN_RETURN_IF_ERROR(check.Monitor(model));
    if (steps > 0) {
      return check.BadField("save_best_only", "figures to compare exist only after epochs; use save_freq: \"epoch\"");
    }
  }
  if (model->has_initial_value_threshold() && !model->save_best_only()) {
    return check.BadField("initial_value_threshold", "it has an effect only with save_best_only; set both or neither");
  }
  if (std::isnan(model->initial_value_threshold())) {
    return check.BadField("initial_value_threshold", "nan is not a number; use one, or leave it out");
  }
  // Model files are made from checkpoints.
  v1::JobSpec& spec = check.spec();
  v1::Checkpoints& checkpoints = *spec.mutable_checkpoints();
  if (checkpoints.dir().empty()) {
    checkpoints.set_dir(DirectoryBeside(*path, spec.name()));
    if (!checkpoints.has_keep_max()) checkpoints.set_keep_max(2);
    warnings->push_back(absl::StrCat("callbacks: model files are made from checkpoints, which go to \"",
                                     checkpoints.dir(), "\"; set checkpoints.dir for another place"));
  }
  if (steps == 0) {
    if (checkpoints.every_epochs() > 1) {
      return check.BadField("save_freq", "model files are made from checkpoints, and checkpoints.every_epochs is ",
                            checkpoints.every_epochs(), "; set it to 1");
    }
    checkpoints.set_every_epochs(1);
  } else if (checkpoints.every_steps() == 0) {
    checkpoints.set_every_steps(steps);
  } else if (steps % checkpoints.every_steps() != 0) {
    return check.BadField("save_freq", "model files are made from checkpoints, and ", steps,
                          " is not a multiple of checkpoints.every_steps ", checkpoints.every_steps(),
                          "; leave every_steps out, or make it so");
  }
  return absl::OkStatus();
}

absl::Status CheckOne(v1::JobSpec* spec, int index, std::vector<std::string>* warnings) {
  v1::Callback* callback = spec->mutable_callbacks(index);
  const Checker check(spec, index);
  switch (callback->kind_case()) {
    case v1::Callback::kModelCheckpoint:
      return CheckModelCheckpoint(check, callback->mutable_model_checkpoint(), warnings);
    case v1::Callback::kBackupAndRestore: return absl::OkStatus();  // it was checked first
    case v1::Callback::kEarlyStopping: return CheckEarlyStopping(check, callback->mutable_early_stopping());
    case v1::Callback::kReduceLrOnPlateau: return CheckReduceRate(check, callback->mutable_reduce_lr_on_plateau());
    case v1::Callback::kLearningRateScheduler:
      return CheckScheduler(check, callback->mutable_learning_rate_scheduler());
    case v1::Callback::kTensorboard: return CheckTensorBoard(check, callback->mutable_tensorboard());
    case v1::Callback::kCsvLogger: return CheckCsv(check, callback->mutable_csv_logger());
    case v1::Callback::kTerminateOnNan: return absl::OkStatus();
    case v1::Callback::KIND_NOT_SET: break;
  }
  return Bad("callbacks[", index, "]: it is empty; name one, such as early_stopping { patience: 3 }");
}

// Checks callbacks that a job may have only once, and those that exclude each other.
absl::Status CheckTogether(const v1::JobSpec& spec) {
  int backup = -1, scheduler = -1, stopping = -1;
  for (int i = 0; i < spec.callbacks_size(); ++i) {
    const v1::Callback& callback = spec.callbacks(i);
    int* former = callback.has_backup_and_restore()                  ? &backup
                  : callback.has_learning_rate_scheduler()           ? &scheduler
                  : callback.early_stopping().restore_best_weights() ? &stopping
                                                                     : nullptr;
    if (former != nullptr && *former >= 0) {
      return Bad("callbacks[", i, "].", CallbackName(callback), ": callbacks[", *former,
                 "] is one already, and a job has one at most", former == &stopping ? " with restore_best_weights" : "",
                 "; leave one of them out");
    }
    if (former != nullptr) *former = i;
  }
  for (int i = 0; scheduler >= 0 && i < spec.callbacks_size(); ++i) {
    if (!spec.callbacks(i).has_reduce_lr_on_plateau()) continue;
    return Bad("callbacks[", i, "].reduce_lr_on_plateau: callbacks[", scheduler,
               "].learning_rate_scheduler sets the learning rate in each epoch; leave one of them out");
  }
  return absl::OkStatus();
}

// Checks the user's values, before callbacks fill in theirs.
absl::Status CheckCheckpointNumbers(const v1::Checkpoints& c) {
  CAIRN_RETURN_IF_ERROR(AtLeastOne("checkpoints.every_steps", c.has_every_steps(), c.every_steps(), "no such rule"));
  CAIRN_RETURN_IF_ERROR(
      AtLeastOne("checkpoints.every_epochs", c.has_every_epochs(), c.every_epochs(), "1 where no other rule is set"));
  if (c.has_every_minutes() && (!(c.every_minutes() > 0) || !std::isfinite(c.every_minutes()))) {
    return Bad("checkpoints.every_minutes: ", c.every_minutes(),
               " is not allowed; leave it out for no such rule, or give a number such as 10");
  }
  CAIRN_RETURN_IF_ERROR(AtLeastOne("checkpoints.keep_max", c.has_keep_max(), c.keep_max(), "3"));
  return absl::OkStatus();
}

}  // namespace

std::string CallbackName(const v1::Callback& callback) {
  const auto* field = v1::Callback::descriptor()->FindFieldByNumber(callback.kind_case());
  return field == nullptr ? "" : field->name();
}

int64_t SaveSteps(const std::string& save_freq) {
  int64_t steps = 0;
  if (!absl::SimpleAtoi(save_freq, &steps) || steps < 0 || steps > kSaveStepsMax) return 0;
  return steps;
}

absl::Status CheckCallbacks(v1::JobSpec* spec, std::vector<std::string>* warnings) {
  if (spec->callbacks_size() > kCallbacksMax) {
    return Bad("callbacks: ", spec->callbacks_size(), " of them; at most ", kCallbacksMax, " are allowed");
  }
  CAIRN_RETURN_IF_ERROR(CheckTogether(*spec));
  CAIRN_RETURN_IF_ERROR(CheckCheckpointNumbers(spec->checkpoints()));
  // Backup first: the other callbacks use its checkpoints.
  for (int i = 0; i < spec->callbacks_size(); ++i) {
    if (!spec->callbacks(i).has_backup_and_restore()) continue;
    CAIRN_RETURN_IF_ERROR(CheckBackup(Checker(spec, i), spec->mutable_callbacks(i)->mutable_backup_and_restore()));
  }
  for (int i = 0; i < spec->callbacks_size(); ++i) CAIRN_RETURN_IF_ERROR(CheckOne(spec, i, warnings));
  return absl::OkStatus();
}

absl::Status CheckCallbacksAgainstData(const v1::JobSpec& spec, const v1::DataInfo& data) {
  if (data.validation_examples() > 0) return absl::OkStatus();
  for (int i = 0; i < spec.callbacks_size(); ++i) {
    const v1::Callback& c = spec.callbacks(i);
    const std::string& monitor = c.has_early_stopping()         ? c.early_stopping().monitor()
                                 : c.has_reduce_lr_on_plateau() ? c.reduce_lr_on_plateau().monitor()
                                 : c.has_model_checkpoint()     ? c.model_checkpoint().monitor()
                                                                : std::string();
    if (OfValidation(monitor) && (!c.has_model_checkpoint() || c.model_checkpoint().save_best_only())) {
      return Bad("callbacks[", i, "].", CallbackName(c), ".monitor: \"", monitor,
                 "\" needs a validation split, and the data has none; set data.validation_split, or monitor \"",
                 absl::StripPrefix(monitor, "val_"), "\"");
    }
    if (!c.has_model_checkpoint()) continue;
    const absl::StatusOr<PathTemplate> path = PathTemplate::Parse(c.model_checkpoint().filepath());
    if (!path.ok()) continue;
    for (const std::string& name : path->Names()) {
      if (!OfValidation(name)) continue;
      return Bad("callbacks[", i, "].model_checkpoint.filepath: {", name,
                 "} needs a validation split, and the data has none; set data.validation_split, or use another figure");
    }
  }
  return absl::OkStatus();
}

}  // namespace cairn
