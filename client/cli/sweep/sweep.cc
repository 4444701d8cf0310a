#include "client/cli/sweep/sweep.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/model/callback_check.h"

namespace cairn {
namespace {

constexpr std::pair<TrialState, const char*> kStates[] = {
    {TrialState::kWaiting, "waiting"},
    {TrialState::kSubmitting, "submitting"},
    {TrialState::kRunning, "running"},
    {TrialState::kPausing, "pausing"},
    {TrialState::kPaused, "paused"},
    {TrialState::kStopping, "stopping"},
    {TrialState::kInterrupting, "interrupting"},
    {TrialState::kStopped, "stopped"},
    {TrialState::kSucceeded, "succeeded"},
    {TrialState::kEndedWithErrors, "ended with errors"},
    {TrialState::kFailed, "failed"},
    {TrialState::kCancelled, "cancelled"},
};

}  // namespace

const char* TrialStateText(TrialState state) {
  for (const auto& [known, text] : kStates) {
    if (known == state) return text;
  }
  return "unknown";
}

absl::StatusOr<TrialState> TrialStateOf(const std::string& text) {
  for (const auto& [state, known] : kStates) {
    if (text == known) return state;
  }
  return absl::InvalidArgumentError(absl::StrCat("there is no state \"", text, "\" of a trial"));
}

Sweep::Sweep(SweepOptions options, std::vector<Trial> trials)
    : options_(std::move(options)), trials_(std::move(trials)) {}

bool Sweep::done() const {
  return std::all_of(trials_.begin(), trials_.end(), [](const Trial& t) { return t.is_final(); });
}

std::string Sweep::KeyOf(int trial) const {
  return absl::StrFormat("sweep-%s-%d-%d", options_.key, trials_[trial].number, trials_[trial].runs);
}

int Sweep::Active() const {
  return static_cast<int>(std::count_if(trials_.begin(), trials_.end(), [](const Trial& t) { return t.is_active(); }));
}

void Sweep::MarkChanged(const Trial& trial) {
  if (std::find(changed_.begin(), changed_.end(), trial.number - 1) == changed_.end())
    changed_.push_back(trial.number - 1);
}

void Sweep::SetState(Trial& trial, TrialState state, const std::string& note) {
  trial.state = state;
  MarkChanged(trial);
  if (!note.empty()) notes_.push_back(absl::StrFormat("trial %d: %s", trial.number, note));
}

std::string Sweep::ScoreText(std::optional<double> score) const {
  return score ? absl::StrFormat("%s: %s", options_.by, FigureText(*score)) : absl::StrFormat("no %s", options_.by);
}

// ---- what the cluster says ----

void Sweep::OnSubmitted(int index, const v1::JobStatus& job) {
  Trial& trial = trials_[index];
  trial.jobs.push_back(job.job_id());
  SetState(trial, TrialState::kRunning,
           absl::StrFormat("job %d%s - %s", job.job_id(), Resumes(index) ? ", from its checkpoint" : "",
                           AssignmentText(trial.parameters)));
}

void Sweep::OnRefused(int index, const std::string& why) {
  trials_[index].reason = absl::StrCat("refused: ", why);
  SetState(trials_[index], TrialState::kFailed, trials_[index].reason);
}

void Sweep::OnJobGone(int index, const std::string& why) {
  Trial& trial = trials_[index];
  if (trial.state == TrialState::kStopping) return SetState(trial, TrialState::kStopped, "");
  trial.reason = why;
  SetState(trial, TrialState::kFailed, why);
}

void Sweep::TakeFigures(Trial& trial, const v1::JobStatus& job) {
  if (trial.state == TrialState::kStopping) return;
  trial.steps_per_epoch = job.steps_per_epoch();
  for (const v1::EpochResult& epoch : job.epochs()) {
    if (!HasFigures(epoch)) continue;  // of a job that was resumed after it
    const int number = epoch.epoch() + 1;
    if (const auto score = FigureOf(job, epoch, options_.by); score && !trial.scores.contains(number)) {
      trial.scores[number] = *score;
      MarkChanged(trial);
    }
    if (number < trial.epochs) continue;
    Figures figures = MeanFigures(job.spec(), epoch.train());
    for (const auto& [name, value] : MeanFigures(job.spec(), epoch.validation()))
      figures.emplace_back("val_" + name, value);
    if (number > trial.epochs || figures.size() > trial.figures.size()) MarkChanged(trial);
    trial.epochs = number;
    trial.figures = std::move(figures);
  }
  ChooseCheckpoint(trial, job);
}

// A job trains on while it is cancelled, so its newest checkpoint may be of an epoch whose figures never came.
void Sweep::ChooseCheckpoint(Trial& trial, const v1::JobStatus& job) {
  std::string path = job.spec().resume_from();
  int64_t step = trial.resumed_step;
  for (const v1::CheckpointInfo& checkpoint : job.checkpoints()) {
    if (checkpoint.best() || checkpoint.step() <= step) continue;
    if (checkpoint.step() > trial.epochs * trial.steps_per_epoch) continue;
    path = checkpoint.path();
    step = checkpoint.step();
  }
  if (step == trial.checkpoint_step && path == trial.checkpoint) return;
  trial.checkpoint = path;
  trial.checkpoint_step = step;
  MarkChanged(trial);
}

void Sweep::OnJob(int index, const v1::JobStatus& job) {
  Trial& trial = trials_[index];
  if (trial.is_final()) return;
  TakeFigures(trial, job);
  if (IsFinal(job.state())) OnEnd(trial, job);
}

void Sweep::OnEnd(Trial& trial, const v1::JobStatus& job) {
  const bool by_us = job.state() == v1::CANCELLED;
  if (trial.state == TrialState::kStopping) return SetState(trial, TrialState::kStopped, "");
  if (by_us && trial.state == TrialState::kPausing) {
    return SetState(
        trial, TrialState::kPaused,
        trial.checkpoint_step > 0 ? "" : "has no checkpoint of an epoch with figures, so it will begin anew");
  }
  if (by_us && trial.state == TrialState::kInterrupting) {
    if (trial.checkpoint_step > 0) return SetState(trial, TrialState::kPaused, "");
    trial.scores.clear();  // it begins anew
    trial.figures.clear();
    trial.epochs = 0;
    return SetState(trial, TrialState::kWaiting, "");
  }
  trial.reason = job.reason();
  const std::string why = job.reason().empty() ? "" : absl::StrCat(" - ", job.reason());
  switch (job.state()) {
    case v1::SUCCEEDED:
      return SetState(trial, TrialState::kSucceeded, absl::StrCat("succeeded - ", ScoreText(trial.LastScore()), why));
    case v1::ENDED_WITH_ERRORS:
      return SetState(trial, TrialState::kEndedWithErrors,
                      absl::StrCat("ended with errors - ", ScoreText(trial.LastScore()), why));
    case v1::CANCELLED:
      return SetState(trial, TrialState::kCancelled, absl::StrFormat("job %d was cancelled", trial.job()));
    default: return SetState(trial, TrialState::kFailed, absl::StrFormat("job %d failed%s", trial.job(), why));
  }
}

void Sweep::Interrupt() { interrupted_ = true; }

// ---- what to do ----

bool Sweep::HasArrived(const Trial& trial) const {
  if (trial.is_final()) return true;
  if (trial.rung >= static_cast<int>(options_.rungs.size())) return false;
  return trial.scores.contains(options_.rungs[trial.rung]);
}

// Chooses who goes on at the first rung that was not decided, once all its trials have arrived. Returns whether it did.
bool Sweep::DecideRung() {
  int level = static_cast<int>(options_.rungs.size());
  for (const Trial& trial : trials_) {
    if (trial.state != TrialState::kStopping && trial.state != TrialState::kStopped && !trial.is_out())
      level = std::min(level, trial.rung);
  }
  if (level == static_cast<int>(options_.rungs.size())) return false;
  std::vector<Standing> standings;
  for (const Trial& trial : trials_) {
    // Those that were stopped at an earlier rung did not pass it; those of this one are not yet told apart.
    if (trial.rung != level || trial.state == TrialState::kStopping || trial.state == TrialState::kStopped) continue;
    if (!HasArrived(trial)) return false;
    standings.push_back({trial.number, trial.is_out() ? std::nullopt : trial.ScoreAt(options_.rungs[level])});
  }
  const std::vector<int> go_on = Survivors(standings, options_.halving.factor, options_.more_is_better);
  for (const Standing& standing : standings) {
    Trial& trial = trials_[standing.trial - 1];
    if (std::find(go_on.begin(), go_on.end(), trial.number) != go_on.end()) {
      ++trial.rung;
      MarkChanged(trial);
    } else if (!trial.is_out()) {
      trial.reason = absl::StrFormat("not among the best %d of %d after epoch %d", go_on.size(), standings.size(),
                                     options_.rungs[level]);
      // It counts with what it was compared by, though it may have trained on meanwhile.
      trial.scores.erase(trial.scores.upper_bound(options_.rungs[level]), trial.scores.end());
      const bool has_job = trial.is_active();
      SetState(trial, has_job ? TrialState::kStopping : TrialState::kStopped,
               absl::StrFormat("stopped - %s, %s", ScoreText(standing.score), trial.reason));
    }
  }
  return true;
}

// It has something to train, and no job.
bool Sweep::WantsPlace(const Trial& trial) const {
  return trial.state == TrialState::kWaiting || (trial.state == TrialState::kPaused && !HasArrived(trial));
}

// Trials at their rung give their places to those that are on their way to it. Where nobody waits they train on.
void Sweep::PauseForOthers() {
  auto waiting = std::count_if(trials_.begin(), trials_.end(), [&](const Trial& t) { return WantsPlace(t); });
  waiting -= options_.max_parallel - Active();  // these have places
  for (const Trial& trial : trials_) {
    if (trial.state == TrialState::kPausing || trial.state == TrialState::kStopping) --waiting;  // so do these, soon
  }
  for (Trial& trial : trials_) {
    if (waiting <= 0) return;
    if (trial.state != TrialState::kRunning || !HasArrived(trial) || trial.steps_per_epoch == 0) continue;
    if (trial.checkpoint_step < trial.steps_per_epoch * options_.rungs[trial.rung]) continue;
    SetState(trial, TrialState::kPausing,
             absl::StrFormat("paused after epoch %d - %s", options_.rungs[trial.rung],
                             ScoreText(trial.ScoreAt(options_.rungs[trial.rung]))));
    --waiting;
  }
}

void Sweep::SubmitMore(SweepEffects* effects) {
  int places = options_.max_parallel - Active();
  for (Trial& trial : trials_) {
    if (trial.state == TrialState::kSubmitting) effects->submit.push_back(trial.number - 1);  // once more, after a stop
  }
  for (Trial& trial : trials_) {
    if (places <= 0) return;
    if (!WantsPlace(trial)) continue;
    ++trial.runs;
    trial.resumed_step = trial.checkpoint_step;
    SetState(trial, TrialState::kSubmitting, "");
    effects->submit.push_back(trial.number - 1);
    --places;
  }
}

SweepEffects Sweep::Decide() {
  SweepEffects effects;
  if (interrupted_) {
    for (Trial& trial : trials_) {
      if (trial.state == TrialState::kRunning) SetState(trial, TrialState::kInterrupting, "");
    }
  } else {
    while (DecideRung()) {
    }
    PauseForOthers();
    SubmitMore(&effects);
  }
  for (const Trial& trial : trials_) {
    const bool ends = trial.state == TrialState::kPausing || trial.state == TrialState::kStopping ||
                      trial.state == TrialState::kInterrupting;
    if (ends) effects.cancel.push_back(trial.number - 1);
  }
  effects.notes = std::exchange(notes_, {});
  effects.changed = std::exchange(changed_, {});
  return effects;
}

std::vector<const Trial*> Sweep::Ranking() const {
  std::vector<const Trial*> ranking;
  for (const Trial& trial : trials_) ranking.push_back(&trial);
  const auto standing = [](const Trial& t) { return Standing{t.number, t.LastScore()}; };
  std::sort(ranking.begin(), ranking.end(), [&](const Trial* a, const Trial* b) {
    if (a->is_out() != b->is_out()) return b->is_out();
    if (a->rung != b->rung) return a->rung > b->rung;
    return IsBetter(standing(*a), standing(*b), options_.more_is_better);
  });
  return ranking;
}

}  // namespace cairn
