#include "worker/reports/board_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"
#include "common/base/roots.h"
#include "common/model/fault_check.h"
#include "common/report/figures.h"
#include "worker/limits.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

constexpr char kTrain[] = "train", kValidation[] = "validation";
constexpr char kFilePrefix[] = "events.out.tfevents.";
constexpr int kStampDigits = 10;
constexpr char kEpochTag[] = "epoch_loss";  // present for every epoch

// When an event was: the step, and seconds since 1970.
struct Moment {
  int64_t step = 0;
  double wall_time = 0;
};

tensorboard::Event EventAt(const Moment& at) {
  tensorboard::Event event;
  event.set_step(at.step);
  event.set_wall_time(at.wall_time);
  return event;
}

void AddOne(const std::string& tag, double value, const Moment& at, std::vector<tensorboard::Event>* events) {
  tensorboard::Event& event = events->emplace_back(EventAt(at));
  AddScalar(tag, static_cast<float>(value), event.mutable_summary());
}

// One event per figure, as tf.summary.scalar writes them.
void AddFigures(const v1::JobSpec& spec, const v1::MetricSums& sums, const std::string& prefix,
                const std::string& suffix, const Moment& at, std::vector<tensorboard::Event>* events) {
  for (const auto& [name, value] : MeanFigures(spec, sums)) {
    AddOne(absl::StrCat(prefix, name, suffix), value, at, events);
  }
}

// The time stamp in a file's name: the second in which it was created, or one more than that of the previous file; -1:
// not a file of TensorBoard or TensorFlow.
int64_t StampOf(absl::string_view name) {
  int64_t stamp = -1;
  const bool fits = absl::ConsumePrefix(&name, kFilePrefix) && name.find('.') == kStampDigits &&
                    absl::SimpleAtoi(name.substr(0, kStampDigits), &stamp) && stamp >= 0 && stamp < kBoardStampMax;
  return fits ? stamp : -1;
}

// The file that TensorBoard reads last, whoever wrote it; empty: there is none.
std::string LastFile(const std::string& folder) {
  std::string last;
  for (const FolderEntry& entry : EntriesOf(folder)) {
    if (StampOf(entry.name) >= 0) last = std::max(last, entry.name);
  }
  return last;
}

absl::StatusOr<FileDescriptor> Lock(const std::string& folder) {
  FileDescriptor lock = OpenPath(folder, O_RDONLY | O_DIRECTORY, Access::kWrite);
  if (lock.get() < 0) return FileError(folder, "cannot open");
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return lock;
  return absl::UnavailableError(absl::StrCat(folder, ": another worker writes there; it is tried again"));
}

// The number of epochs in the job's files in `folder`, counted from 0.
int64_t EpochsIn(const std::string& folder, const std::string& part) {
  int64_t next = 0;
  for (const FolderEntry& entry : EntriesOf(folder)) {
    if (!absl::StrContains(entry.name, part)) continue;
    const auto events = ReadEvents(absl::StrCat(folder, "/", entry.name));
    if (!events.ok()) continue;
    for (const tensorboard::Event& event : *events) {
      for (const tensorboard::Summary::Value& value : event.summary().value()) {
        if (value.tag() == kEpochTag) next = std::max(next, event.step() + 1);
      }
    }
  }
  return next;
}

}  // namespace

// The prefix of the names of the job's files.
std::string BoardLog::Prefix(const v1::WriteSummaries& command) const {
  return absl::StrFormat(".cairn-%d-%d.", command.job_id(), command.submitted_unix_ms());
}

absl::StatusOr<FileDescriptor> BoardLog::Open(const v1::WriteSummaries& command, const char* kind, double now,
                                              Log& log) {
  static std::atomic<int> serial{0};
  const std::string folder = absl::StrCat(options_.log_dir(), "/", kind), job = Prefix(command);
  CAIRN_RETURN_IF_ERROR(MakeFolders(folder));
  CAIRN_ASSIGN_OR_RETURN(FileDescriptor lock, Lock(folder));
  const std::string last = LastFile(folder);
  if (log.file && fs::path(log.file->path()).filename() == last) return lock;
  log.file.reset();
  log.next = EpochsIn(folder, job);
  const int64_t stamp = std::max(static_cast<int64_t>(now), StampOf(last) + 1);
  const std::string path = absl::StrFormat("%s/%s%0*d.%s.%d.%d%sv2", folder, kFilePrefix, kStampDigits, stamp, host_,
                                           ::getpid(), serial++, job);
  CAIRN_ASSIGN_OR_RETURN(log.file, EventFile::Create(path, now));
  return lock;
}

bool BoardLog::WantsWeights(const v1::WriteSummaries& command) const {
  return options_.histogram_freq() > 0 && !command.epochs().empty() && HasFigures(*command.epochs().rbegin()) &&
         command.epochs().rbegin()->epoch() % options_.histogram_freq() == 0;
}

absl::Status BoardLog::Write(const v1::WriteSummaries& command, const Graph& graph, absl::Span<const float> weights,
                             double now) {
  const v1::JobSpec& spec = command.spec();
  const bool first = !train_.file.has_value();
  CAIRN_ASSIGN_OR_RETURN(const FileDescriptor train_lock, Open(command, kTrain, now, train_));
  std::vector<tensorboard::Event> train, validation;
  if (first && train_.next == 0 && options_.write_graph()) {
    train.push_back(EventAt({0, now}));
    train.back().set_graph_def(GraphOf(graph).SerializeAsString());
  }
  for (const v1::StepValidation& figures : command.train_steps()) {
    AddFigures(spec, figures.sums(), "batch_", "", {figures.step(), now}, &train);
  }
  int64_t next = train_.next;
  for (const v1::EpochResult& epoch : command.epochs()) {
    if (!HasFigures(epoch) || epoch.epoch() < train_.next) continue;
    const Moment at{epoch.epoch(), now};
    AddFigures(spec, epoch.train(), "epoch_", "", at, &train);
    AddOne("epoch_learning_rate", epoch.learning_rate(), at, &train);
    AddOne("epoch_images_per_second", epoch.images_per_second(), at, &train);
    if (!IsSynchronous(spec)) {
      AddOne("epoch_staleness_mean", epoch.staleness_mean(), at, &train);
      AddOne("epoch_staleness_max", static_cast<double>(epoch.staleness_max()), at, &train);
    }
    next = epoch.epoch() + 1;
  }
  if (next > train_.next && WantsWeights(command) && weights.size() >= static_cast<size_t>(graph.space_size())) {
    for (const Variable& v : graph.variables()) {
      train.push_back(EventAt({next - 1, now}));
      AddHistogram(absl::StrCat(v.name, "/histogram"),
                   weights.subspan(static_cast<size_t>(v.offset), static_cast<size_t>(v.size)), kHistogramBuckets,
                   train.back().mutable_summary());
    }
  }
  const bool validated = !command.validations().empty() ||
                         std::any_of(command.epochs().begin(), command.epochs().end(),
                                     [](const v1::EpochResult& e) { return e.validation().examples() > 0; });
  if (validated) {
    CAIRN_ASSIGN_OR_RETURN(const FileDescriptor validation_lock, Open(command, kValidation, now, validation_));
    for (const v1::StepValidation& v : command.validations()) {
      AddFigures(spec, v.sums(), "evaluation_", "_vs_iterations", {v.step(), now}, &validation);
    }
    for (const v1::EpochResult& epoch : command.epochs()) {
      if (epoch.epoch() < validation_.next) continue;
      AddFigures(spec, epoch.validation(), "epoch_", "", {epoch.epoch(), now}, &validation);
    }
    CAIRN_RETURN_IF_ERROR(validation_.file->Add(validation));
    if (!command.epochs().empty())
      validation_.next = std::max<int64_t>(validation_.next, command.epochs().rbegin()->epoch() + 1);
  }
  CAIRN_RETURN_IF_ERROR(train_.file->Add(train));
  train_.next = next;
  return absl::OkStatus();
}

}  // namespace cairn
