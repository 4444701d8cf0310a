#include "client/cli/progress.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/colours.h"
#include "client/job_client.h"
#include "common/report/figures.h"

namespace cairn {
namespace {

constexpr int kBarCells = 30;
constexpr int kBarCellsMin = 5;
constexpr int kEventsAtFirst = 5;
constexpr char kClearToEnd[] = "\x1b[K";

std::string DrawBar(int64_t done, int64_t total, int cells) {
  if (total <= 0 || cells < kBarCellsMin) return "";
  const int full = static_cast<int>(std::clamp<int64_t>(done, 0, total) * cells / total);
  std::string bar(static_cast<size_t>(cells), '.');
  std::fill_n(bar.begin(), full, '=');
  if (full < cells) bar[static_cast<size_t>(full)] = '>';
  return absl::StrCat("[", bar, "] ");
}

std::string FigureList(const Figures& figures, const char* prefix = "") {
  std::string text;
  for (const auto& [name, value] : figures) absl::StrAppend(&text, " - ", prefix, name, ": ", FigureText(value));
  return text;
}

std::string ScaleText(const v1::JobStatus& job) {
  return job.loss_scale() > 0 ? absl::StrFormat(" - loss_scale: %.0f", job.loss_scale()) : "";
}

std::string RateText(float rate) { return rate > 0 ? absl::StrCat(" - learning_rate: ", FigureText(rate)) : ""; }

bool ValidationDue(const v1::JobStatus& job, int epoch) {
  if (job.spec().validation_by() == v1::BY_EVALUATOR) return false;
  const int freq = std::max(1, job.spec().validation_freq());
  return job.data().validation_examples() > 0 && (epoch + 1) % freq == 0;
}

// An epoch's result is complete once its validation is, or if nothing more will come.
bool IsWhole(const v1::JobStatus& job, int i) {
  const v1::EpochResult& result = job.epochs(i);
  return IsFinal(job.state()) || i + 1 < job.epochs_size() || !ValidationDue(job, result.epoch()) ||
         result.validation().examples() >= job.data().validation_examples();
}

int64_t StepsOf(const v1::JobStatus& job, int epoch) {
  return std::clamp<int64_t>(job.step() - epoch * job.steps_per_epoch(), 0, job.steps_per_epoch());
}

// The index of the first entry after the last printed one; the coordinator drops the oldest entries.
template <typename List, typename Told>
int AfterLast(const List& list, const Told& told) {
  int next = list.size();
  while (next > 0 && !told(list[next - 1])) --next;
  return next;
}

std::string TimeLeft(const v1::JobStatus& job, int64_t steps_left) {
  if (job.images_per_second() <= 0 || steps_left <= 0) return "";
  const double seconds = static_cast<double>(steps_left) * job.spec().batch_size() / job.images_per_second();
  return absl::StrFormat(" - %s left", ShortDuration(absl::Seconds(seconds)));
}

}  // namespace

std::string Progress::Line(const std::string& text) {
  const bool over = bar_open_;
  bar_open_ = false;
  return over ? absl::StrCat("\r", text, kClearToEnd, "\n") : absl::StrCat(text, "\n");
}

std::string Progress::Bar(const std::string& text) {
  bar_open_ = true;
  // The last column stays free: a terminal may wrap there.
  return absl::StrCat("\r", text.substr(0, static_cast<size_t>(std::max(1, options_.width - 1))), kClearToEnd);
}

int Progress::CellsBeside(const std::string& rest) const {
  return std::min(kBarCells, options_.width - 4 - static_cast<int>(rest.size()));
}

std::string Progress::Note(const std::string& text) { return Line(text); }

std::string Progress::StateLine(const v1::JobStatus& job) {
  if (job.state() == state_ && job.reason() == reason_) return "";
  state_ = job.state();
  reason_ = job.reason();
  std::string text = absl::StrFormat("job %d \"%s\": %s", job.job_id(), job.spec().name(), StateText(job.state()));
  if (IsFinal(job.state()) && job.started_unix_ms() > 0 && job.finished_unix_ms() >= job.started_unix_ms()) {
    absl::StrAppend(&text, " after ",
                    ShortDuration(absl::Milliseconds(job.finished_unix_ms() - job.started_unix_ms())));
  }
  if (!job.digest().empty()) absl::StrAppend(&text, " - digest ", job.digest());
  if (!job.reason().empty()) absl::StrAppend(&text, " - ", job.reason());
  return Line(InColourOf(job.state(), std::move(text), options_.colours));
}

std::string Progress::EpochHead(const v1::JobStatus& job, int epoch) {
  if (!options_.terminal || head_printed_ >= epoch) return "";
  head_printed_ = epoch;
  return Line(absl::StrFormat("Epoch %d/%d", epoch + 1, job.spec().epochs()));
}

// Checkpoints since the last update; at the first update the newest one.
std::string Progress::CheckpointLines(const v1::JobStatus& job) {
  std::string text;
  const bool first = checkpoints_until_ == 0;
  int64_t until = checkpoints_until_;
  for (const v1::CheckpointInfo& info : job.checkpoints()) {
    if (info.best()) {
      const std::string best = absl::StrFormat("best so far: step %d - %s: %s", info.step(),
                                               job.spec().checkpoints().save_best(), FigureText(info.monitored()));
      if (std::exchange(best_noted_, best) != best) absl::StrAppend(&text, Line(best));
    } else if (info.written_unix_ms() > checkpoints_until_) {
      until = std::max(until, info.written_unix_ms());
      if (!first || &info == &job.checkpoints(job.checkpoints_size() - 1)) {
        absl::StrAppend(&text, Line(absl::StrFormat("checkpoint %s", info.path())));
      }
    }
  }
  checkpoints_until_ = until;
  if (std::exchange(checkpoint_error_, job.checkpoint_error()) != job.checkpoint_error() &&
      !job.checkpoint_error().empty()) {
    absl::StrAppend(&text, Line(absl::StrFormat("no checkpoint: %s", job.checkpoint_error())));
  }
  return text;
}

// Validations after a number of steps, and those of an evaluator.
std::string Progress::ValidationLines(const v1::JobStatus& job) {
  std::string text;
  for (const v1::StepValidation& validation : job.validations()) {
    if (!validations_told_.insert(validation.step()).second) continue;
    absl::StrAppend(&text, Line(absl::StrFormat("step %d%s%s", validation.step(),
                                                validation.checkpoint().empty() ? "" : " (evaluator)",
                                                FigureList(MeanFigures(job.spec(), validation.sums()), "val_"))));
  }
  return text;
}

// What callbacks did, each note once; the coordinator drops the oldest.
std::string Progress::NoteLines(const v1::JobStatus& job) {
  std::string text;
  int next = AfterLast(job.notes(), [&](const v1::CallbackNote& note) {
    return note.epoch() == last_note_.epoch() && note.text() == last_note_.text() &&
           note.callback() == last_note_.callback();
  });
  for (; next < job.notes_size(); ++next) {
    last_note_ = job.notes(next);
    absl::StrAppend(&text, Line(NoteText(last_note_)));
  }
  return text;
}

// What happened, each event once; of events before the first status only the newest.
std::string Progress::EventLines(const v1::JobStatus& job) {
  std::string text;
  int next = AfterLast(job.events(), [&](const v1::JobEvent& event) {
    return event.unix_ms() == last_event_.unix_ms() && event.text() == last_event_.text();
  });
  if (!began_) next = std::max(next, job.events_size() - kEventsAtFirst);
  for (; next < job.events_size(); ++next) {
    last_event_ = job.events(next);
    absl::StrAppend(&text, Line(EventText(last_event_, options_.zone)));
  }
  return text;
}

// For a job that is degraded when the watch begins; later changes are reported by events.
std::string Progress::DegradedLine(const v1::JobStatus& job) {
  return !began_ && job.has_degraded() ? Line(DegradedText(job.degraded(), options_.zone)) : "";
}

std::string Progress::EpochResults(const v1::JobStatus& job) {
  std::string text;
  // A job that resumed from a checkpoint has no figures of the epochs before it.
  while (epochs_printed_ < job.epochs_size() && job.epochs(epochs_printed_).train().examples() == 0 &&
         job.epochs(epochs_printed_).seconds() == 0) {
    ++epochs_printed_;
  }
  for (; epochs_printed_ < job.epochs_size() && IsWhole(job, epochs_printed_); ++epochs_printed_) {
    const v1::EpochResult& result = job.epochs(epochs_printed_);
    std::string figures = absl::StrCat(
        " - ", ShortDuration(absl::Seconds(result.seconds())), FigureList(MeanFigures(job.spec(), result.train())),
        FigureList(MeanFigures(job.spec(), result.validation()), "val_"), RateText(result.learning_rate()));
    if (result.staleness_max() > 0) {
      absl::StrAppendFormat(&figures, " - staleness: %.2f (at most %d)", result.staleness_mean(),
                            result.staleness_max());
    }
    if (epochs_printed_ + 1 == job.epochs_size()) figures += ScaleText(job);
    if (options_.terminal) {
      const int64_t steps = job.steps_per_epoch();
      const std::string rest = absl::StrCat(steps, "/", steps, figures);
      text += EpochHead(job, result.epoch());
      text += Line(absl::StrCat(DrawBar(1, 1, CellsBeside(rest)), rest));
    } else {
      absl::StrAppend(&text, Line(absl::StrFormat("epoch %d/%d%s", result.epoch() + 1, job.spec().epochs(), figures)));
    }
  }
  return text;
}

std::string Progress::RunningEpoch(const v1::JobStatus& job) {
  const bool pending = epochs_printed_ < job.epochs_size();  // its validation is still being computed
  // The steps may be ahead of the results: an epoch's bar stays until its result replaces it.
  const int epoch = pending ? job.epochs(epochs_printed_).epoch() : std::min(job.epoch(), job.epochs_size());
  if (!options_.terminal || job.state() != v1::RUNNING || job.steps_per_epoch() <= 0 || epoch >= job.spec().epochs())
    return "";
  const int64_t steps = job.steps_per_epoch(), done = pending ? steps : StepsOf(job, epoch);
  const v1::MetricSums& sums = pending                ? job.epochs(epochs_printed_).train()
                               : epoch == job.epoch() ? job.epoch_sums()
                                                      : v1::MetricSums::default_instance();
  std::string rest = absl::StrCat(done, "/", steps, FigureList(MeanFigures(job.spec(), sums)), ScaleText(job));
  if (pending) {
    rest += " - validating";
  } else if (job.images_per_second() > 0) {
    absl::StrAppend(&rest, " - ", Thousands(static_cast<uint64_t>(job.images_per_second())), " images/s",
                    TimeLeft(job, steps - done));
  }
  if (job.has_degraded()) rest += " - degraded";
  const std::string head =
      EpochHead(job, epoch);  // before Bar: each call continues the line that the previous one left
  return head + Bar(absl::StrCat(DrawBar(done, steps, CellsBeside(rest)), rest));
}

std::string Progress::Update(const v1::JobStatus& job) {
  // Results are printed above the line that says how the job ended.
  std::string text = IsFinal(job.state()) ? EpochResults(job) : StateLine(job);
  if (!IsFinal(job.state())) text += EpochResults(job);
  text += ValidationLines(job);
  text += CheckpointLines(job);
  text += NoteLines(job);
  text += EventLines(job);
  text += DegradedLine(job);
  began_ = true;
  if (IsFinal(job.state())) text += StateLine(job);
  text += RunningEpoch(job);
  return text;
}

}  // namespace cairn
