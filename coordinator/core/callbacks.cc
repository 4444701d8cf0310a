#include "coordinator/core/callbacks.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/decimal.h"
#include "common/model/callback_check.h"
#include "common/model/job_check.h"
#include "common/model/job_outputs.h"
#include "common/model/path_template.h"

namespace cairn {
namespace {

// Keras' monitor_op(current - min_delta, best), min_delta with the sign of the mode. NaN is never better.
bool Improves(v1::MonitorMode mode, double min_delta, double current, double best) {
  return mode == v1::MODE_MAX ? current - min_delta > best : current + min_delta < best;
}

double Worst(v1::MonitorMode mode) { return mode == v1::MODE_MAX ? -INFINITY : INFINITY; }

// Formats a figure for users.
std::string FigureText(double value) { return absl::StrFormat("%.6g", value); }

std::string EpochsText(int epochs) { return epochs == 1 ? "1 epoch" : absl::StrCat(epochs, " epochs"); }

struct Deciding {
  const v1::JobStatus& status;
  const v1::EpochResult& result;
  const int epoch;
  float learning_rate;
  EpochDecision& decision;

  template <typename... Args>
  void Note(const v1::Callback& callback, const Args&... args) const {
    v1::CallbackNote& note = decision.notes.emplace_back();
    note.set_epoch(epoch);
    note.set_callback(CallbackName(callback));
    note.set_text(absl::StrCat(args...));
  }
  void Stop(std::string reason, bool failed) const {
    if (decision.stop && (decision.failed || !failed)) return;
    decision.stop = true;
    decision.failed = failed;
    decision.reason = std::move(reason);
  }
};

void EarlyStop(const Deciding& d, const v1::Callback& callback, v1::StoredCallback& state) {
  const v1::EarlyStopping& c = callback.early_stopping();
  const std::optional<double> current = FigureOf(d.status, d.result, c.monitor());
  if (!current || d.epoch < c.start_from_epoch()) return;
  const double min_delta = Decimal(c.min_delta());
  if (state.best_epoch() == 0) state.set_best_epoch(d.epoch + 1);
  state.set_wait(state.wait() + 1);
  const double best = state.has_best() ? state.best() : Worst(c.mode());
  if (Improves(c.mode(), min_delta, *current, best)) {
    state.set_best(*current);
    state.set_best_epoch(d.epoch + 1);
    if (!c.has_baseline() || Improves(c.mode(), min_delta, *current, Decimal(c.baseline()))) state.set_wait(0);
    return;
  }
  if (state.wait() < c.patience() || d.epoch == 0) return;
  const std::string on = state.has_best() ? absl::StrCat(" on ", FigureText(state.best())) : "";
  const std::string why = absl::StrCat(c.monitor(), " did not improve", on, " for ", EpochsText(state.wait()));
  d.Note(callback, why, kStopNote);
  d.Stop(absl::StrCat("stopped early after epoch ", d.epoch + 1, ": ", why), false);
}

void ReduceRate(const Deciding& d, const v1::Callback& callback, v1::StoredCallback& state) {
  const v1::ReduceLrOnPlateau& c = callback.reduce_lr_on_plateau();
  const std::optional<double> current = FigureOf(d.status, d.result, c.monitor());
  if (!current) return;
  if (state.cooldown() > 0) {
    state.set_cooldown(state.cooldown() - 1);
    state.set_wait(0);
  }
  const double best = state.has_best() ? state.best() : Worst(c.mode());
  if (Improves(c.mode(), Decimal(c.min_delta()), *current, best)) {
    state.set_best(*current);
    state.set_wait(0);
    return;
  }
  if (state.cooldown() > 0) return;
  state.set_wait(state.wait() + 1);
  const float rate = d.decision.learning_rate.value_or(d.learning_rate);
  if (state.wait() < c.patience() || rate <= c.min_lr()) return;
  const auto reduced =
      static_cast<float>(std::max(static_cast<double>(rate) * Decimal(c.factor()), Decimal(c.min_lr())));
  const std::string on = state.has_best() ? absl::StrCat(" on ", FigureText(state.best())) : "";
  d.Note(callback, c.monitor(), " did not improve", on, " for ", EpochsText(state.wait()),
         "; the learning rate is now ", FigureText(reduced));
  d.decision.learning_rate = reduced;
  state.set_cooldown(c.cooldown());
  state.set_wait(0);
}

std::map<std::string, double> FiguresOf(const v1::JobStatus& status, const v1::EpochResult& result) {
  std::vector<std::string> names{"loss"};
  for (int i = 0; i < FigureCount(status.spec()); ++i) names.push_back(MetricName(status.spec(), i));
  std::map<std::string, double> figures;
  for (const std::string& base : names) {
    for (const std::string& name : {base, "val_" + base}) {
      if (const auto figure = FigureOf(status, result, name)) figures[name] = *figure;
    }
  }
  return figures;
}

void SaveModel(const Deciding& d, const v1::Callback& callback, v1::StoredCallback& state) {
  const v1::ModelCheckpoint& c = callback.model_checkpoint();
  if (SaveSteps(c.save_freq()) > 0) return;
  if (c.save_best_only()) {
    const std::optional<double> current = FigureOf(d.status, d.result, c.monitor());
    if (!current) return;  // the epoch has no figure to compare
    const double start = c.has_initial_value_threshold() ? Decimal(c.initial_value_threshold()) : Worst(c.mode());
    if (!Improves(c.mode(), 0, *current, state.has_best() ? state.best() : start)) return;
    state.set_best(*current);
  }
  const auto path = PathTemplate::Parse(c.filepath());
  const auto filled = path.ok() ? path->Fill({{"epoch", d.epoch + 1}}, FiguresOf(d.status, d.result)) : path.status();
  if (!filled.ok()) return d.Note(callback, "the model was not saved: filepath: ", filled.status().message());
  d.decision.saves.push_back(*filled);
}

void StopOnNan(const Deciding& d, const v1::Callback& callback) {
  if (d.result.train().examples() == 0 || std::isfinite(d.result.train().loss())) return;
  d.Note(callback, "the loss is not finite", kStopNote);
  d.Stop(absl::StrCat("the loss is not finite in epoch ", d.epoch + 1,
                      "; lower optimizer.learning_rate, or check the data"),
         true);
}

}  // namespace

EpochDecision DecideEpoch(const v1::JobStatus& status, int epoch, float learning_rate,
                          google::protobuf::RepeatedPtrField<v1::StoredCallback>* states) {
  EpochDecision decision;
  const Deciding deciding{status, status.epochs(epoch), epoch, learning_rate, decision};
  while (states->size() < status.spec().callbacks_size()) states->Add();
  for (int i = 0; i < status.spec().callbacks_size(); ++i) {
    const v1::Callback& callback = status.spec().callbacks(i);
    v1::StoredCallback& state = *states->Mutable(i);
    if (callback.has_early_stopping()) EarlyStop(deciding, callback, state);
    if (callback.has_reduce_lr_on_plateau()) ReduceRate(deciding, callback, state);
    if (callback.has_model_checkpoint()) SaveModel(deciding, callback, state);
    if (callback.has_terminate_on_nan()) StopOnNan(deciding, callback);
  }
  return decision;
}

std::vector<std::string> SavesAtStep(const v1::JobStatus& status, int64_t step) {
  std::vector<std::string> saves;
  const int64_t epoch_steps = std::max<int64_t>(1, status.steps_per_epoch());
  for (const v1::Callback& callback : status.spec().callbacks()) {
    const int64_t every = SaveSteps(callback.model_checkpoint().save_freq());
    if (every == 0 || step <= 0 || step % every != 0) continue;
    const auto path = PathTemplate::Parse(callback.model_checkpoint().filepath());
    if (!path.ok()) continue;  // was checked at submission
    const auto filled =
        path->Fill({{"epoch", (step - 1) / epoch_steps + 1}, {"batch", (step - 1) % epoch_steps + 1}}, {});
    if (filled.ok()) saves.push_back(*filled);
  }
  return saves;
}

int BestEpoch(const v1::JobSpec& spec, const google::protobuf::RepeatedPtrField<v1::StoredCallback>& states) {
  for (int i = 0; i < std::min(spec.callbacks_size(), states.size()); ++i) {
    if (spec.callbacks(i).early_stopping().restore_best_weights()) return states.Get(i).best_epoch() - 1;
  }
  return -1;
}

}  // namespace cairn
