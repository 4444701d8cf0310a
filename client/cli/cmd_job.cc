// cairn job ID: prints everything that the coordinator knows about a job.
#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/cli/commands.h"
#include "common/report/figures.h"
#include "common/report/json.h"

namespace cairn {
namespace {

constexpr int kNotesShown = 10;
constexpr int kEventsShown = 20;

constexpr int kValidationsShown = 5;

void Field(std::string* text, const char* name, const std::string& value) {
  if (!value.empty()) absl::StrAppend(text, absl::StrFormat("  %-11s %s\n", name, value));
}

std::string TimeText(int64_t unix_ms) {
  if (unix_ms == 0) return "";
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixMillis(unix_ms), absl::LocalTimeZone());
}

std::string DataText(const v1::JobStatus& job) {
  const v1::DataInfo& data = job.data();
  if (data.train_examples() == 0) return job.spec().data().path();
  return absl::StrFormat("%s (%s: %s train, %s validation, %s test)", job.spec().data().path(),
                         v1::Data::Format_Name(data.format()), Thousands(data.train_examples()),
                         Thousands(data.validation_examples()), Thousands(data.test_examples()));
}

std::string ModelText(const v1::JobStatus& job) {
  return absl::StrFormat("%s%d layers, %s parameters (%s trainable)",
                         job.spec().model().name().empty() ? "" : job.spec().model().name() + ": ",
                         job.spec().model().layers_size(), Thousands(static_cast<uint64_t>(job.parameters())),
                         Thousands(static_cast<uint64_t>(job.trainable_parameters())));
}

std::string TrainingText(const v1::JobSpec& spec) {
  std::string text =
      absl::StrFormat("%s, batch %d, %s, %s, seed %d", v1::Strategy_Name(spec.strategy()), spec.batch_size(),
                      CountText(spec.epochs(), "epoch"), CountText(spec.replicas(), "replica"), spec.seed());
  if (spec.backups() > 0) absl::StrAppendFormat(&text, ", %s", CountText(spec.backups(), "backup"));
  if (spec.has_staleness_bound()) absl::StrAppend(&text, ", staleness bound ", spec.staleness_bound());
  if (spec.local_sync() > 1) absl::StrAppend(&text, ", in groups of ", spec.local_sync());
  return text;
}

// "GPU", "GPU, then CPU"
std::string DevicesText(const v1::JobStatus& job) {
  std::vector<std::string> names;
  for (const int device : job.devices()) names.push_back(v1::Device_Name(device));
  return absl::StrJoin(names, ", then ");
}

std::string PlacementText(const v1::JobStatus& job) {
  std::map<std::string, std::vector<int>> replicas;
  for (const auto& r : job.replicas()) replicas[r.worker().empty() ? "(waiting)" : r.worker()].push_back(r.replica());
  struct Copies {
    int primaries = 0, backups = 0, in_sync = 0;
  };
  std::map<std::string, Copies> partitions;
  for (const auto& p : job.partitions()) {
    ++partitions[p.primary().empty() ? "(waiting)" : p.primary()].primaries;
    for (const auto& b : p.backups()) {
      ++partitions[b.node()].backups;
      partitions[b.node()].in_sync += b.in_sync();
    }
  }
  std::vector<std::string> parts;
  for (const auto& [worker, list] : replicas) {
    parts.push_back(absl::StrFormat("%s: replicas %s%s", worker, absl::StrJoin(list, ","),
                                    worker == job.chief() ? " (chief)" : ""));
  }
  for (const auto& [ps, copies] : partitions) {
    parts.push_back(absl::StrCat(ps, ": ", CountText(copies.primaries, "partition")));
    if (copies.backups == 0) continue;
    absl::StrAppend(&parts.back(), " + ", CountText(copies.backups, "backup"));
    if (copies.in_sync < copies.backups) absl::StrAppend(&parts.back(), " (", copies.in_sync, " in sync)");
  }
  return absl::StrJoin(parts, "; ");
}

// Appends another column. There may be fewer rows than epochs: the first ones have no validation.
template <typename Cell>
void AddColumn(const v1::JobStatus& job, const char* name, const Cell& cell, std::vector<std::string>& header,
               std::vector<std::vector<std::string>>& rows) {
  const int first = job.epochs_size() - static_cast<int>(rows.size());  // earlier epochs have no figures
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].resize(header.size());
    rows[i].push_back(cell(job.epochs(first + static_cast<int>(i))));
  }
  header.push_back(name);
}

std::string EpochTable(const v1::JobStatus& job) {
  if (job.epochs_size() == 0) return "";
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> header = {"  EPOCH", "SECONDS"};
  const v1::EpochResult& last = job.epochs(job.epochs_size() - 1);
  for (const auto& [name, value] : MeanFigures(job.spec(), last.train())) header.push_back(name);
  const size_t train_columns = header.size();
  for (const v1::EpochResult& epoch : job.epochs()) {
    // Before the checkpoint from which the job resumed.
    if (epoch.train().examples() == 0 && epoch.seconds() == 0) continue;
    std::vector<std::string> row = {absl::StrFormat("  %d", epoch.epoch() + 1),
                                    absl::StrFormat("%.1f", epoch.seconds())};
    for (const auto& [name, value] : MeanFigures(job.spec(), epoch.train())) row.push_back(FigureText(value));
    row.resize(std::max(row.size(), train_columns));
    for (const auto& [name, value] : MeanFigures(job.spec(), epoch.validation())) {
      if (header.size() < row.size() + 1) header.push_back("val_" + name);
      row.push_back(FigureText(value));
    }
    rows.push_back(std::move(row));
  }
  if (last.learning_rate() > 0) {
    AddColumn(
        job, "learning_rate", [](const v1::EpochResult& e) { return absl::StrFormat("%g", e.learning_rate()); }, header,
        rows);
  }
  if (std::any_of(job.epochs().begin(), job.epochs().end(),
                  [](const v1::EpochResult& e) { return e.staleness_max() > 0; })) {
    AddColumn(
        job, "staleness",
        [](const v1::EpochResult& e) {
          return absl::StrFormat("%.2f (at most %d)", e.staleness_mean(), e.staleness_max());
        },
        header, rows);
  }
  rows.insert(rows.begin(), header);
  return Table(rows);
}

std::string CheckpointsText(const v1::JobStatus& job) {
  std::vector<std::string> parts;
  for (const v1::CheckpointInfo& info : job.checkpoints()) {
    parts.push_back(info.best() ? absl::StrFormat("%s (best: step %d, %s %s)", info.path(), info.step(),
                                                  job.spec().checkpoints().save_best(), FigureText(info.monitored()))
                                : info.path());
  }
  return absl::StrJoin(parts, ", ");
}

std::string JobText(const v1::JobStatus& job) {
  std::string text = absl::StrFormat("job %d \"%s\": %s\n", job.job_id(), job.spec().name(), StateText(job.state()));
  Field(&text, "reason", job.reason());
  if (!job.owner().empty()) {
    Field(&text, "owner",
          job.groups().empty() ? job.owner() : absl::StrCat(job.owner(), ", of ", absl::StrJoin(job.groups(), ", ")));
  }
  if (job.has_degraded()) Field(&text, "copies", DegradedText(job.degraded(), absl::LocalTimeZone()));
  Field(&text, "model", ModelText(job));
  Field(&text, "data", DataText(job));
  Field(&text, "optimizer", OptimizerText(job.spec().optimizer()));
  Field(&text, "training", TrainingText(job.spec()));
  if (job.total_steps() > 0) {
    Field(&text, "step",
          absl::StrFormat("%s of %s, epoch %d of %d", Thousands(static_cast<uint64_t>(job.step())),
                          Thousands(static_cast<uint64_t>(job.total_steps())),
                          std::min(job.epoch() + 1, job.spec().epochs()), job.spec().epochs()));
  }
  if (job.state() == v1::RUNNING && job.has_images_per_second()) {
    Field(&text, "speed", absl::StrFormat("%s images/s", Thousands(static_cast<uint64_t>(job.images_per_second()))));
  }
  Field(&text, "device", DevicesText(job));
  if (job.loss_scale() > 0) Field(&text, "loss scale", absl::StrFormat("%.0f", job.loss_scale()));
  if (job.state() == v1::RUNNING && job.staleness_max() > 0) {
    Field(&text, "staleness",
          absl::StrFormat("%.2f in the mean, at most %d", job.staleness_mean(), job.staleness_max()));
  }
  for (int i = std::max(0, job.validations_size() - kValidationsShown); i < job.validations_size(); ++i) {
    const v1::StepValidation& v = job.validations(i);
    std::vector<std::string> figures;
    for (const auto& [name, value] : MeanFigures(job.spec(), v.sums())) {
      figures.push_back(absl::StrCat("val_", name, " ", FigureText(value)));
    }
    Field(&text, i + 1 == job.validations_size() ? "validation" : "",
          absl::StrFormat("step %d: %s%s", v.step(), absl::StrJoin(figures, ", "),
                          v.checkpoint().empty() ? "" : " (evaluator)"));
  }
  if (job.state() == v1::RUNNING && job.learning_rate() > 0)
    Field(&text, "rate", absl::StrFormat("%g", job.learning_rate()));
  Field(&text, "submitted", TimeText(job.submitted_unix_ms()));
  Field(&text, "started", TimeText(job.started_unix_ms()));
  Field(&text, "finished", TimeText(job.finished_unix_ms()));
  Field(&text, "placement", PlacementText(job));
  if (!job.restored_from().empty()) {
    Field(&text, "restored", absl::StrFormat("from %s, step %d", job.restored_from(), job.restored_step()));
  }
  Field(&text, "checkpoints", CheckpointsText(job));
  Field(&text, "", job.checkpoint_error().empty() ? "" : "not written: " + job.checkpoint_error());
  for (int i = std::max(0, job.notes_size() - kNotesShown); i < job.notes_size(); ++i) {
    Field(&text, i + kNotesShown <= job.notes_size() || i == 0 ? "notes" : "", NoteText(job.notes(i)));
  }
  for (int i = std::max(0, job.events_size() - kEventsShown); i < job.events_size(); ++i) {
    const v1::JobEvent& event = job.events(i);
    const char* const name = i + kEventsShown <= job.events_size() || i == 0 ? "events" : "";
    Field(&text, name, absl::StrCat(TimeText(event.unix_ms()), event.warning() ? "  warning: " : "  ", event.text()));
  }
  Field(&text, "digest", job.digest());
  return text + EpochTable(job);
}

}  // namespace

int RunJob(const Globals& globals, const std::string& name) {
  const auto ref = JobRef::Parse(name);
  if (!ref.ok()) return Fail(ref.status());
  const auto job = JobClient(globals.client).Get(*ref);
  if (!job.ok()) return Fail(job.status());
  absl::PrintF("%s", globals.json ? JobJson(*job) + "\n" : JobText(*job));
  return kExitOk;
}

}  // namespace cairn
