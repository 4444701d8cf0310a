#include "worker/checkpointer.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cairn/v1/storage.pb.h"
#include "common/base/log.h"
#include "common/model/fault_check.h"
#include "common/model/optimizer_slots.h"

namespace cairn {
namespace {

using Outcome = replica::CheckpointDone::Outcome;

constexpr size_t kDeletedKept = 64;
// Checkpoints at the end of an epoch that wait for the epoch's figures, with save_best.
constexpr size_t kComparedLater = 2;

}  // namespace

struct Checkpointer::Cut {
  struct Part {
    v1::PartitionRange range;
    std::string ps;
    bool header = false;  // tensor 0 has come
    v1::PartitionImage image;
    absl::Status status;  // of a tensor that does not fit
  };
  int64_t step = 0;
  std::optional<uint64_t> want_version;
  std::shared_ptr<const v1::AssignReplicas> assignment;
  Done done;
  Buffer values;
  std::vector<Buffer> slots;
  std::vector<Part> parts;         // each touched by the answers to its own request alone, until all are there
  std::atomic<size_t> missing{0};  // partitions
  absl::Mutex mutex;
  absl::Status failed ABSL_GUARDED_BY(mutex);

  absl::Status Keep(size_t index, const Frame& frame);
};

// One tensor of one partition.
absl::Status Checkpointer::Cut::Keep(size_t index, const Frame& frame) {
  Part& part = parts[index];
  const uint64_t begin = part.range.begin(), end = part.range.end();
  if (frame.tensor == 0) {
    if (!part.image.ParseFromString(frame.image)) return absl::InternalError("the image's header cannot be read");
    part.header = true;
    if (part.image.begin() != begin || part.image.end() != end || part.image.slots() != slots.size() ||
        frame.tensors != slots.size() + 1 ||
        part.image.sequences().last_sequence_size() != assignment->spec().replicas()) {
      return absl::InternalError("the image is not of this job's partition");
    }
    if (want_version && part.image.version() != *want_version) {
      return absl::UnavailableError(
          absl::StrFormat("version %d came, %d was wanted", part.image.version(), *want_version));
    }
  }
  const size_t bytes = static_cast<size_t>(end - begin) * sizeof(float);
  if (frame.tensor > slots.size() || frame.dtype != v1::FLOAT32 || frame.payload.size() != bytes) {
    return absl::InternalError(
        absl::StrFormat("tensor %d of the image has %d bytes, expected %d", frame.tensor, frame.payload.size(), bytes));
  }
  Buffer& into = frame.tensor == 0 ? values : slots[frame.tensor - 1];
  std::memcpy(into.mutable_data() + begin * sizeof(float), frame.payload.data(), bytes);
  return absl::OkStatus();
}

Checkpointer::Checkpointer(JobId job, const CheckpointerServices& services) : job_(job), services_(services) {}

void Checkpointer::Know(const v1::AssignReplicas& assignment) {
  absl::MutexLock lock(&mutex_);
  for (const v1::CheckpointInfo& info : assignment.checkpoints()) {
    const auto same = [&](const v1::CheckpointInfo& k) { return k.path() == info.path(); };
    if (std::none_of(known_.begin(), known_.end(), same) &&
        std::find(deleted_.begin(), deleted_.end(), info.path()) == deleted_.end()) {
      known_.push_back(info);
    }
  }
  std::stable_sort(known_.begin(), known_.end(),
                   [](const auto& a, const auto& b) { return a.written_unix_ms() < b.written_unix_ms(); });
}

void Checkpointer::Take(replica::TakeCheckpoint take, std::shared_ptr<const v1::AssignReplicas> assignment, Done done) {
  auto cut = std::make_shared<Cut>();
  cut->step = take.step;
  cut->assignment = std::move(assignment);
  cut->done = std::move(done);
  cut->missing = take.requests.size();
  cut->parts.resize(take.requests.size());
  uint64_t space = 0;
  for (const v1::Route& route : cut->assignment->routes()) {
    if (route.range().partition() >= cut->parts.size()) continue;
    Cut::Part& part = cut->parts[route.range().partition()];
    part.range = route.range();
    part.ps = route.ps();
    space = std::max(space, route.range().end());
  }
  // The partitions cover it; it is not touched here, on the training's thread.
  cut->values = Buffer::Allocate(space * sizeof(float));
  for (size_t i = 0; i < SlotNames(cut->assignment->spec().optimizer()).size(); ++i) {
    cut->slots.push_back(Buffer::Allocate(space * sizeof(float)));
  }
  if (!take.requests.empty()) cut->want_version = take.requests.front().frame.want_version;
  for (size_t i = 0; i < take.requests.size(); ++i) {
    replica::TakeCheckpoint::Request& request = take.requests[i];
    services_.connections->Snapshot(
        request.address, std::move(request.frame),
        [cut, i](Frame tensor) {
          Cut::Part& part = cut->parts[i];
          if (part.status.ok()) part.status = cut->Keep(i, tensor);
        },
        [self = shared_from_this(), cut, i](absl::StatusOr<Frame> last) { self->OnPartition(cut, i, last); });
  }
}

// The answer of one partition is complete.
void Checkpointer::OnPartition(const std::shared_ptr<Cut>& cut, size_t index, const absl::StatusOr<Frame>& last) {
  absl::Status status = last.status();
  if (status.ok()) {
    const Cut::Part& part = cut->parts[index];
    status = part.status;
    if (status.ok() && !part.header) status = absl::InternalError("the answer holds no image");
  }
  if (!status.ok()) {
    absl::MutexLock lock(&cut->mutex);
    if (cut->failed.ok()) cut->failed = Annotate(status, absl::StrCat("ps \"", cut->parts[index].ps, "\""));
  }
  if (cut->missing.fetch_sub(1) > 1) return;
  absl::Status failed;
  {
    absl::MutexLock lock(&cut->mutex);
    failed = cut->failed;
  }
  if (failed.ok()) {
    services_.executor->Post([self = shared_from_this(), cut] { self->Write(*cut); });
    return;
  }
  Report(nullptr, {},
         Annotate(failed, absl::StrFormat("step %d: the partitions could not be cut, it is tried again", cut->step)));
  cut->done(Outcome::kNoCut);
}

// ---- on the executor ----

void Checkpointer::Write(Cut& cut) {
  v1::CheckpointInfo info;
  const absl::Time begin = services_.clock->Now();
  const absl::StatusOr<std::string> path = WriteFiles(cut, info);
  cut.values = {};
  cut.slots.clear();
  if (!path.ok()) {
    Report(nullptr, {}, Annotate(path.status(), absl::StrFormat("step %d", info.step())));
    cut.done(Outcome::kNotWritten);
    return;
  }
  LogInfo("job %d: checkpoint %s written in %.2f s", job_.value, *path,
          absl::ToDoubleSeconds(services_.clock->Now() - begin));
  {
    absl::MutexLock lock(&mutex_);
    std::erase_if(known_, [&](const v1::CheckpointInfo& k) { return k.path() == info.path(); });
    std::erase(deleted_, info.path());
    known_.push_back(info);
  }
  Report(&info, Prune(cut.assignment->spec(), cut.assignment->steps_per_epoch()), absl::OkStatus());
  cut.done(Outcome::kWritten);
}

absl::StatusOr<std::string> Checkpointer::WriteFiles(Cut& cut, v1::CheckpointInfo& info) {
  const v1::AssignReplicas& assignment = *cut.assignment;
  info.set_step(cut.step);
  CAIRN_ASSIGN_OR_RETURN(Graph graph, Graph::Build(assignment.spec().model()));
  CheckpointContents contents;
  contents.graph = std::make_shared<const Graph>(std::move(graph));
  contents.values = cut.values;
  contents.slots = cut.slots;
  if (contents.values.size() != static_cast<size_t>(contents.graph->space_size()) * sizeof(float)) {
    return absl::InternalError("the routes do not cover the model");
  }
  CheckpointManifest& m = contents.manifest;
  m.job_id = job_.value;
  m.spec = assignment.spec();
  m.synchronous = IsSynchronous(m.spec);
  m.step = cut.step;
  m.steps_per_epoch = assignment.steps_per_epoch();
  m.total_steps = assignment.total_steps();
  m.train_examples = assignment.data().train_examples();
  if (!m.synchronous) m.replica_step.assign(static_cast<size_t>(m.spec.replicas()), INT64_MAX);
  for (const Cut::Part& part : cut.parts) {
    CheckpointPartition& p = m.partitions.emplace_back();
    p.begin = part.range.begin();
    p.end = part.range.end();
    p.version = part.image.version();
    if (m.synchronous) continue;
    p.sequences.assign(part.image.sequences().last_sequence().begin(), part.image.sequences().last_sequence().end());
    for (size_t r = 0; r < p.sequences.size(); ++r) {
      m.replica_step[r] = std::min(m.replica_step[r], static_cast<int64_t>(p.sequences[r]));
    }
  }
  if (!m.synchronous) m.step = *std::min_element(m.replica_step.begin(), m.replica_step.end());
  info.set_step(m.step);
  const int64_t now = absl::ToUnixMillis(services_.clock->Now());
  info.set_written_unix_ms(now);
  CAIRN_ASSIGN_OR_RETURN(const std::string path,
                         WriteCheckpoint(assignment.spec().checkpoints().dir(), std::move(contents), now));
  info.set_path(path);
  return path;
}

// Removes what is beyond keep_max; returns the paths.
std::vector<std::string> Checkpointer::Prune(const v1::JobSpec& spec, int64_t steps_per_epoch) {
  const v1::Checkpoints& rule = spec.checkpoints();
  std::vector<std::string> removed;
  {
    absl::MutexLock lock(&mutex_);
    size_t newer = 0, compared_later = 0;
    for (size_t i = known_.size(); i-- > 0;) {
      if (known_[i].best()) continue;
      bool stays = newer++ < static_cast<size_t>(std::max(rule.keep_max(), 1));
      if (!rule.save_best().empty() && known_[i].step() % std::max<int64_t>(steps_per_epoch, 1) == 0) {
        stays |= compared_later++ < kComparedLater;
      }
      if (stays) continue;
      removed.push_back(known_[i].path());
      deleted_.push_back(known_[i].path());
      known_.erase(known_.begin() + static_cast<int64_t>(i));
    }
    while (deleted_.size() > kDeletedKept) deleted_.pop_front();
  }
  for (const std::string& path : removed) {
    if (const absl::Status status = RemoveCheckpoint(path); !status.ok()) {
      LogWarning("job %d: %s", job_.value, status.message());
    }
  }
  return removed;
}

void Checkpointer::MarkBest(const v1::MarkBest& command, std::shared_ptr<const v1::AssignReplicas> assignment) {
  services_.executor->Post([self = shared_from_this(), command, assignment = std::move(assignment)] {
    const std::string& dir = assignment->spec().checkpoints().dir();
    v1::CheckpointInfo info;
    {
      absl::MutexLock lock(&self->mutex_);
      for (const v1::CheckpointInfo& known : self->known_) {
        if (!known.best() && known.step() == command.step()) info = known;
      }
    }
    if (info.path().empty()) {
      LogWarning("job %d: the best checkpoint, of step %d, is not there any more", self->job_.value, command.step());
      return;
    }
    const absl::StatusOr<std::string> path = KeepAsBest(dir, info.path());
    if (!path.ok()) {
      self->Report(nullptr, {}, Annotate(path.status(), absl::StrFormat("step %d, the best one", command.step())));
      return;
    }
    info.set_path(*path);
    info.set_best(true);
    info.set_monitored(command.monitored());
    {
      absl::MutexLock lock(&self->mutex_);
      std::erase_if(self->known_, [](const v1::CheckpointInfo& k) { return k.best(); });
      self->known_.push_back(info);
    }
    LogInfo("job %d: checkpoint of step %d is the best: %g", self->job_.value, command.step(), command.monitored());
    self->Report(&info, {}, absl::OkStatus());
  });
}

// ---- reports ----

void Checkpointer::Report(const v1::CheckpointInfo* info, const std::vector<std::string>& deleted,
                          const absl::Status& status) {
  v1::NodeMessage message;
  v1::CheckpointReport& report = *message.mutable_checkpoint();
  report.set_job_id(job_.value);
  if (info != nullptr) *report.mutable_checkpoint() = *info;
  for (const std::string& path : deleted) report.add_deleted(path);
  if (!status.ok()) {
    LogWarning("job %d: no checkpoint: %s", job_.value, status.message());
    report.set_error(std::string(status.message()));
  }
  services_.send(std::move(message));
}

void Checkpointer::ReportAgain() {
  std::vector<v1::CheckpointInfo> known;
  std::vector<std::string> deleted;
  {
    absl::MutexLock lock(&mutex_);
    known = known_;
    deleted.assign(deleted_.begin(), deleted_.end());
  }
  for (size_t i = 0; i < known.size(); ++i) {
    Report(&known[i], i == 0 ? deleted : std::vector<std::string>(), absl::OkStatus());
  }
}

}  // namespace cairn
