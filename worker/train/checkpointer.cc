#include "worker/train/checkpointer.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/log.h"
#include "common/model/checkpoint_name.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/limits.h"

namespace cairn {
namespace {

using Outcome = replica::CheckpointDone::Outcome;

}  // namespace

struct Checkpointer::UnderWay {
  UnderWay(const replica::TakeCheckpoint& take, std::shared_ptr<const v1::AssignReplicas> assignment, Done on_done)
      : cut(take.step, take.requests.empty() ? std::nullopt : take.requests.front().frame.want_version,
            std::move(assignment)),
        last_try(take.last_try),
        done(std::move(on_done)),
        missing(take.requests.size()) {}

  CheckpointCut cut;
  const bool last_try;
  Done done;
  std::atomic<size_t> missing;  // partitions
  absl::Mutex mutex;
  absl::Status failed ABSL_GUARDED_BY(mutex);
};

Checkpointer::Checkpointer(JobId job, const CheckpointerServices& services) : job_(job), services_(services) {}

std::unique_ptr<JobCheckpoints> Checkpointer::CheckpointsOf(const v1::AssignReplicas& assignment,
                                                            RemoteFiles* remote) const {
  return CheckpointsIn(assignment.spec().checkpoints().dir(),
                       CheckpointOwner::Of(job_.value, assignment.submitted_unix_ms(), assignment.spec()), remote);
}

void Checkpointer::Post(const v1::AssignReplicas& assignment, FileQueues::Task task) {
  services_.files->Post(job_, {assignment.spec().checkpoints().dir()}, std::move(task));
}

void Checkpointer::Know(std::shared_ptr<const v1::AssignReplicas> assignment) {
  {
    absl::MutexLock lock(&mutex_);
    if (!book_.Know(assignment->checkpoints())) return;
  }
  Post(*assignment, [self = shared_from_this(), assignment](RemoteFiles* remote) {
    if (const std::vector<int64_t> gone = self->Prune(*assignment, remote); !gone.empty()) {
      self->Report(nullptr, gone, absl::OkStatus());
    }
  });
}

void Checkpointer::Take(replica::TakeCheckpoint take, std::shared_ptr<const v1::AssignReplicas> assignment, Done done) {
  auto under_way = std::make_shared<UnderWay>(take, std::move(assignment), std::move(done));
  for (size_t i = 0; i < take.requests.size(); ++i) {
    replica::TakeCheckpoint::Request& request = take.requests[i];
    services_.connections->Snapshot(
        request.address, std::move(request.frame), [under_way, i](Frame tensor) { under_way->cut.Add(i, tensor); },
        [self = shared_from_this(), under_way, i](absl::StatusOr<Frame> last) {
          self->OnPartition(under_way, i, last.status());
        });
  }
}

// The answer of one partition is complete.
void Checkpointer::OnPartition(const std::shared_ptr<UnderWay>& under_way, size_t index, const absl::Status& end) {
  if (const absl::Status status = under_way->cut.End(index, end); !status.ok()) {
    absl::MutexLock lock(&under_way->mutex);
    if (under_way->failed.ok()) under_way->failed = status;
  }
  if (under_way->missing.fetch_sub(1) > 1) return;
  absl::Status failed;
  {
    absl::MutexLock lock(&under_way->mutex);
    failed = under_way->failed;
  }
  if (failed.ok()) {
    Post(under_way->cut.assignment(),
         [self = shared_from_this(), under_way](RemoteFiles* remote) { self->Write(*under_way, remote); });
    return;
  }
  if (under_way->last_try) {
    v1::CheckpointInfo info;
    info.set_step(under_way->cut.step());
    ReportNotWritten(info, Annotate(failed, absl::StrFormat("step %d: the partitions could not be cut", info.step())));
  } else {
    Report(nullptr, {},
           Annotate(failed, absl::StrFormat("step %d: the partitions could not be cut, it is tried again",
                                            under_way->cut.step())));
  }
  under_way->done(Outcome::kNoCut);
}

// ---- in a task ----

void Checkpointer::Write(UnderWay& under_way, RemoteFiles* remote) {
  v1::CheckpointInfo info;
  const absl::Time begin = services_.clock->Now();
  const absl::Status status = WriteFiles(under_way.cut, remote, info);
  if (absl::IsCancelled(status)) {
    LogInfo("job %d: the checkpoint of step %d is given up: %s", job_.value, info.step(), status.message());
    under_way.done(Outcome::kNotWritten);
    return;
  }
  if (!status.ok()) {
    ReportNotWritten(info, Annotate(status, absl::StrFormat("step %d", info.step())));
    under_way.done(Outcome::kNotWritten);
    return;
  }
  LogInfo("job %d: checkpoint %s written in %.2f s", job_.value,
          CheckpointPath(under_way.cut.assignment().spec(), info.step()),
          absl::ToDoubleSeconds(services_.clock->Now() - begin));
  {
    absl::MutexLock lock(&mutex_);
    book_.Written(info);
    not_written_.reset();
  }
  if (const std::optional<BestWanted> wanted = best_wanted_) KeepBest(*wanted, remote);
  Report(&info, Prune(under_way.cut.assignment(), remote), absl::OkStatus());
  under_way.done(Outcome::kWritten);
}

absl::Status Checkpointer::WriteFiles(const CheckpointCut& cut, RemoteFiles* remote, v1::CheckpointInfo& info) {
  info.set_step(cut.step());
  CAIRN_ASSIGN_OR_RETURN(CheckpointContents contents, cut.Contents(job_));
  info.set_step(contents.manifest.step);
  // What is written later counts as newer, also where the clock of the chief before was ahead of this one.
  const std::string& dir = cut.assignment().spec().checkpoints().dir();
  const int64_t now = std::max(absl::ToUnixMillis(services_.clock->Now()), NewestWrittenUnixMs(dir, remote) + 1);
  info.set_written_unix_ms(now);
  const std::unique_ptr<JobCheckpoints> own = CheckpointsOf(cut.assignment(), remote);
  const absl::Status status = own->Write(std::move(contents), now).status();
  NoteSetAside(*own);
  return status;
}

void Checkpointer::NoteSetAside(JobCheckpoints& own) {
  absl::MutexLock lock(&mutex_);
  for (std::string& text : own.TakeSetAside()) {
    if (set_aside_.first.size() < kSetAsideReportedMax) set_aside_.first.push_back(text);
    if (set_aside_.news.size() < kSetAsideReportedMax) set_aside_.news.push_back(std::move(text));
  }
}

std::vector<int64_t> Checkpointer::Prune(const v1::AssignReplicas& assignment, RemoteFiles* remote) {
  const std::unique_ptr<JobCheckpoints> own = CheckpointsOf(assignment, remote);
  if (const absl::Status open = own->Open(); !open.ok()) {
    LogWarning("job %d: old checkpoints are not removed: %s", job_.value, open.message());
    return {};
  }
  std::vector<int64_t> gone = ForgetMissing(*own);
  CheckpointBook::Pruned removed;
  std::vector<v1::CheckpointInfo> before;
  {
    absl::MutexLock lock(&mutex_);
    before = book_.known();
    removed = book_.Prune(assignment.spec().checkpoints(), assignment.steps_per_epoch());
  }
  for (const int64_t step : removed.not_compared) {
    LogWarning(
        "job %d: checkpoint of step %d is removed before its epoch's %s was known, that of %d later epochs is not "
        "either: it may have been the best one",
        job_.value, step, assignment.spec().checkpoints().save_best(), kComparedLaterMax);
  }
  for (const int64_t step : removed.steps) {
    const absl::Status status = own->Remove(CheckpointName(step));
    if (status.ok()) {
      gone.push_back(step);
      continue;
    }
    LogWarning("job %d: an old checkpoint is removed later: %s", job_.value, status.message());
    absl::MutexLock lock(&mutex_);
    for (const v1::CheckpointInfo& info : before) {
      if (!info.best() && info.step() == step) book_.NotRemoved(info);
    }
  }
  return gone;
}

// A step that a chief before has told of is known by hearsay: it pushes no other one out unless it is there, as a
// checkpoint of this job.
std::vector<int64_t> Checkpointer::ForgetMissing(JobCheckpoints& own) {
  std::vector<v1::CheckpointInfo> known;
  {
    absl::MutexLock lock(&mutex_);
    known = book_.known();
  }
  std::vector<int64_t> gone;
  for (const v1::CheckpointInfo& info : known) {
    if (info.best()) continue;
    const absl::Status status = own.Check(CheckpointName(info.step()));
    if (!absl::IsNotFound(status) && !absl::IsFailedPrecondition(status)) continue;
    LogWarning("job %d: a known checkpoint is missing: %s", job_.value, status.message());
    gone.push_back(info.step());
    absl::MutexLock lock(&mutex_);
    book_.Forget(info.step());
  }
  return gone;
}

void Checkpointer::MarkBest(const v1::MarkBest& command, std::shared_ptr<const v1::AssignReplicas> assignment) {
  const BestWanted wanted{command, services_.clock->Now(), std::move(assignment)};
  Post(*wanted.assignment,
       [self = shared_from_this(), wanted](RemoteFiles* remote) { self->KeepBest(wanted, remote); });
}

void Checkpointer::KeepBest(const BestWanted& wanted, RemoteFiles* remote) {
  const int64_t step = wanted.command.step();
  LetGoOfBest();
  const std::unique_ptr<JobCheckpoints> own = CheckpointsOf(*wanted.assignment, remote);
  if (own->BestKeptAt() > std::max(wanted.asked, best_kept_)) {
    LogWarning(
        "job %d: checkpoint of step %d is not kept as the best: another worker has kept one since that was asked for",
        job_.value, step);
    return;
  }
  std::optional<v1::CheckpointInfo> info;
  {
    absl::MutexLock lock(&mutex_);
    info = book_.Find(step);
  }
  if (!info) {
    LogWarning("job %d: the best checkpoint, of step %d, is not there any more", job_.value, step);
    return;
  }
  const absl::Status status = own->KeepAsBest(step).status();
  NoteSetAside(*own);
  if (absl::IsCancelled(status)) {
    return LogInfo("job %d: the copy of the best checkpoint is given up: %s", job_.value, status.message());
  }
  if (!status.ok()) {
    Report(nullptr, {}, Annotate(status, absl::StrFormat("step %d, the best one", step)));
    if (absl::IsNotFound(status) || absl::IsFailedPrecondition(status)) return;
    best_wanted_ = wanted;
    absl::MutexLock lock(&mutex_);
    book_.Hold(step);
    return;
  }
  best_kept_ = own->BestKeptAt();
  info->set_best(true);
  info->set_monitored(wanted.command.monitored());
  {
    absl::MutexLock lock(&mutex_);
    book_.Best(*info);
  }
  LogInfo("job %d: checkpoint of step %d is the best: %g", job_.value, step, wanted.command.monitored());
  Report(&*info, {}, absl::OkStatus());
}

void Checkpointer::LetGoOfBest() {
  best_wanted_.reset();
  absl::MutexLock lock(&mutex_);
  book_.Hold(std::nullopt);
}

// ---- reports ----

void Checkpointer::Report(const v1::CheckpointInfo* info, const std::vector<int64_t>& deleted,
                          const absl::Status& status) {
  v1::NodeMessage message;
  v1::CheckpointReport& report = *message.mutable_checkpoint();
  report.set_job_id(job_.value);
  if (info != nullptr) *report.mutable_checkpoint() = *info;
  report.mutable_deleted_steps()->Assign(deleted.begin(), deleted.end());
  {
    absl::MutexLock lock(&mutex_);
    for (std::string& text : std::exchange(set_aside_.news, {})) report.add_set_aside(std::move(text));
  }
  if (!status.ok()) {
    LogWarning("job %d: no checkpoint: %s", job_.value, status.message());
    report.set_error(std::string(status.message()));
  }
  services_.send(std::move(message));
}

void Checkpointer::ReportNotWritten(const v1::CheckpointInfo& info, const absl::Status& why) {
  {
    absl::MutexLock lock(&mutex_);
    not_written_ = {info, why};
  }
  Report(&info, {}, why);
}

void Checkpointer::ReportAgain() {
  std::vector<v1::CheckpointInfo> known;
  std::vector<int64_t> deleted;
  std::optional<std::pair<v1::CheckpointInfo, absl::Status>> not_written;
  {
    absl::MutexLock lock(&mutex_);
    not_written = not_written_;
    std::vector<std::string> again = set_aside_.first;
    for (std::string& text : set_aside_.news) {  // not reported yet
      if (std::find(again.begin(), again.end(), text) == again.end()) again.push_back(std::move(text));
    }
    set_aside_.news = std::move(again);
    known = book_.known();
    deleted.assign(book_.deleted().begin(), book_.deleted().end());
  }
  for (size_t i = 0; i < known.size(); ++i) {
    Report(&known[i], i == 0 ? deleted : std::vector<int64_t>(), absl::OkStatus());
  }
  if (not_written) Report(&not_written->first, {}, not_written->second);
}

}  // namespace cairn
