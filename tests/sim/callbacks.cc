#include "tests/sim/callbacks.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/model/callback_check.h"
#include "common/model/fault_check.h"
#include "tests/sim/checkers.h"

namespace cairn::sim {

void RandomCallbacks(v1::JobSpec& spec) {
  const uint64_t chance = spec.seed() >> 20;
  if (chance % 4 != 0) return;
  spec.set_epochs(spec.epochs() + 2);
  v1::Checkpoints& rule = *spec.mutable_checkpoints();
  const int keep_max = std::max(2, rule.keep_max());
  rule.Clear();
  rule.set_dir(kCheckpointDir);
  rule.set_keep_max(keep_max);
  rule.set_every_epochs(1);
  if (chance / 4 % 4 != 0) {
    v1::EarlyStopping& stopping = *spec.add_callbacks()->mutable_early_stopping();
    stopping.set_patience(static_cast<int32_t>(chance / 16 % 3));
    stopping.set_restore_best_weights(IsSynchronous(spec) && chance / 64 % 4 != 0);
  }
  if (chance / 4 % 4 == 0 || chance / 256 % 2 == 0) {
    v1::ModelCheckpoint& model = *spec.add_callbacks()->mutable_model_checkpoint();
    model.set_filepath("/models/{epoch}.safetensors");
    model.set_save_best_only(chance / 512 % 2 == 0);
  }
  if (chance / 1024 % 2 == 0) spec.add_callbacks()->mutable_tensorboard()->set_log_dir("/logs");
}

double LossOfEpoch(const v1::JobSpec& spec, int64_t epoch) {
  const PhiloxBlock noise = Philox({static_cast<uint32_t>(spec.seed()), static_cast<uint32_t>(spec.seed() >> 32)},
                                   {static_cast<uint32_t>(epoch), 7, 0, 0});
  return 0.125 * (1 + noise[0] % 12);
}

ExpectedEnd EndOf(const v1::JobSpec& spec, const StepPlan& plan, int64_t first_epoch) {
  const v1::EarlyStopping* stopping = nullptr;
  const v1::ModelCheckpoint* model = nullptr;
  for (const v1::Callback& c : spec.callbacks()) {
    if (c.has_early_stopping()) stopping = &c.early_stopping();
    if (c.has_model_checkpoint()) model = &c.model_checkpoint();
  }
  ExpectedEnd end;
  end.epochs = plan.total_steps / plan.steps_per_epoch;
  double best = std::numeric_limits<double>::infinity(), best_saved = best;
  int64_t best_epoch = end.epochs - 1, wait = 0;
  for (int64_t epoch = first_epoch; epoch < end.epochs; ++epoch) {
    const double loss = LossOfEpoch(spec, epoch);
    if (model != nullptr && (!model->save_best_only() || loss < best_saved)) {
      best_saved = loss;
      end.files[absl::StrCat("/models/", epoch + 1, ".safetensors")] = (epoch + 1) * plan.steps_per_epoch;
    }
    if (stopping == nullptr) continue;
    ++wait;
    if (loss < best) {
      best = loss;
      best_epoch = epoch;
      wait = 0;
    }
    if (wait >= stopping->patience() && wait > 0 && epoch > 0) end.epochs = epoch + 1;
  }
  end.steps = end.epochs * plan.steps_per_epoch;
  end.weights =
      stopping != nullptr && stopping->restore_best_weights() ? (best_epoch + 1) * plan.steps_per_epoch : end.steps;
  return end;
}

void CallbackChecker::Saved(const std::string& path, const CheckpointContents& contents) {
  const auto expected = facts_.end.files.find(path);
  if (expected == facts_.end.files.end())
    return world_.Fail(absl::StrCat("callbacks: ", path, " is written, which nobody asked for"));
  const int64_t step = contents.manifest.step, epoch = (expected->second - 1) / facts_.plan.steps_per_epoch;
  const bool right = facts_.synchronous ? step == expected->second
                                        : step > epoch * facts_.plan.steps_per_epoch && step <= expected->second;
  if (!right)
    return world_.Fail(absl::StrCat("callbacks: ", path, " is made of step ", step, ", not of ", expected->second));
  saved_.insert(path);
}

void CallbackChecker::Restart(int64_t first_epoch) {
  saved_.clear();
  epochs_.clear();
  for (int32_t epoch = 0; epoch < first_epoch; ++epoch) epochs_.insert(epoch);
}

void CallbackChecker::EndsWithoutBest(const v1::JobStatus& status) {
  const bool told = std::any_of(status.notes().begin(), status.notes().end(), [](const auto& note) {
    return note.callback() == "early_stopping" && absl::StartsWith(note.text(), "its weights");
  });
  if (!told) world_.Fail("callbacks: the job ends with other weights than those of its best epoch, and nobody is told");
}

void CallbackChecker::Wrote(const v1::WriteSummaries& write) {
  for (const v1::EpochResult& epoch : write.epochs()) {
    const double loss = LossOfEpoch(facts_.spec, epoch.epoch());
    const v1::MetricSums& sums = epoch.validation();
    if (sums.examples() > 0 && sums.loss() != loss * static_cast<double>(sums.examples())) {
      world_.Fail(
          absl::StrCat("callbacks: epoch ", epoch.epoch(), " has another validation loss in its log than it had"));
    }
    epochs_.insert(epoch.epoch());
  }
}

void CallbackChecker::AtEnd(const v1::JobStatus& status) {
  if (facts_.spec.callbacks().empty()) return;
  if (status.total_steps() != facts_.end.steps || status.epochs_size() != facts_.end.epochs) {
    world_.Fail(absl::StrCat("callbacks: the job ends after ", status.epochs_size(), " epochs, ", status.total_steps(),
                             " steps; by its figures it was to be ", facts_.end.epochs, ", ", facts_.end.steps));
  }
  for (const auto& [path, step] : facts_.end.files) {
    if (saved_.contains(path)) continue;
    const bool told = std::any_of(status.notes().begin(), status.notes().end(),
                                  [&](const auto& note) { return absl::StartsWith(note.text(), "not saved"); });
    // An asynchronous chief's checkpoint may be of a moment at which other replicas had not begun the epoch.
    if (told && status.state() == v1::SUCCEEDED)
      world_.Fail(absl::StrCat("callbacks: ", path, " was not saved, and the job is a plain success"));
    if (told && (failures_ > 0 || !facts_.synchronous)) continue;
    world_.Fail(
        absl::StrCat("callbacks: ", path, " was not saved", told ? ", and no disk was full" : ", and nobody is told"));
  }
  const int64_t logged = static_cast<int64_t>(epochs_.size());
  const bool refused = failures_ > 0 && logged < facts_.end.epochs;
  if (WritesSummaries(facts_.spec) && logged != facts_.end.epochs && !refused) {
    world_.Fail(absl::StrCat("callbacks: ", epochs_.size(), " epochs are in the log, the job had ", facts_.end.epochs));
  }
}

}  // namespace cairn::sim
